"""The page, in a real browser: it loads, it is live, and it complains of nothing."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.tenants import crowd
from dyclu.service.http.keys import digest
from dyclu.service.spec import PolicySpec
from dyclu.service.tenant.start import Progress
from tests.service.browser import Browser, browser
from tests.service.running import Running, running, told, wait_until

PARTS = ("index.html", "page.css", "page.js", "icon.svg")
TASTES = np.array([[1.0, 0.0, 0.2], [-0.5, 1.0, 0.0], [0.0, -1.0, 0.8]])


@pytest.mark.parametrize("name", PARTS)
def test_the_page_loads_nothing_from_other_hosts(name: str) -> None:
    content = resources.files("dyclu.service").joinpath("dashboard", name).read_text()
    outside = [url for url in re.findall(r"(?:https?:)?//[\w.]+", content) if "w3.org" not in url]
    assert not [url for url in outside if url.startswith(("http", "//")) and "." in url]
    assert "innerHTML" not in content
    assert "eval(" not in content


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as made:
        yield made


def live(service: Running, rounds: int, *, shift: int = 0, seed: int = 0) -> None:
    """Let everybody live for some rounds; after a shift, everybody has another taste."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(rounds):
        for user in range(9):
            x = rng.normal(size=3)
            y = x @ TASTES[(user + shift) % 3] + 0.05 * rng.normal()
            rows.append({"user": f"user-{user}", "features": x.tolist(), "reward": float(y)})
    for start in range(0, len(rows), 500):
        body = {"observations": rows[start : start + 500]}
        assert service.http.post("/v1/observations", json=body).status_code == 200


POLICIES: dict[str, dict[str, float]] = {"dyclu": {"noise": 0.05}, "atlas": {}}


@pytest.fixture(scope="module", params=POLICIES)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    flags = {"dim": 3, "policy": request.param, "options": POLICIES[request.param]}
    with running(told(tmp_path_factory.mktemp("page"), **flags)) as made:
        live(made, 25)
        yield made


def test_a_change_appears_on_the_page_within_two_seconds(service: Running, window: Browser) -> None:
    window.open(service.url)
    wait_until(lambda: window.text("#users") == "9", seconds=10)
    assert window.text("#state") == "well"
    before = int(window.text("#changes-total"))
    seen = window.run("return document.querySelectorAll('#changes tr').length")
    live(service, 12, shift=1, seed=1)
    happened = time.monotonic()
    wait_until(
        lambda: window.run("return document.querySelectorAll('#changes tr').length") > seen,
        seconds=5,
    )
    assert time.monotonic() - happened < 2.0
    wait_until(lambda: int(window.text("#changes-total")) > before, seconds=2)
    assert window.run("return document.querySelectorAll('#alarms .bar').length") > 0
    latest = service.http.get("/v1/changes").json()["changes"][-1]
    expected = [latest["user"], str(latest["before"]), str(latest["after"])]
    wait_until(lambda: top_row(window)[1:4] == expected, seconds=3)
    assert top_row(window)[4].endswith("%")
    wait_until(lambda: window.run("return document.querySelectorAll('#map circle').length"))
    assert window.complaints() == []


def top_row(window: Browser) -> list[str]:
    """When, user, from, to and certainty of the latest change on the page."""
    cells = "document.querySelectorAll('#changes tr:first-child td')"
    found: list[str] = window.run(f"return [...{cells}].map((one) => one.textContent)")
    return found


def test_clicking_a_user_shows_their_timeline(service: Running, window: Browser) -> None:
    window.open(service.url)
    wait_until(lambda: window.run("return document.querySelectorAll('#changes tr').length"))
    window.run("document.querySelector('#changes button').click()")
    wait_until(lambda: window.text("#user-name").startswith("user-"))
    assert window.run("return document.querySelectorAll('#timeline .stretch').length") >= 2
    belief = "follows" in window.text("#user-facts")
    assert belief == bool(service.http.get("/v1/users/user-0").json()["belief"])
    window.run("who.value = 'nobody'; lookup.requestSubmit()")
    wait_until(lambda: "no such user" in window.text("#user-note"))
    # The browser itself notes the 404 that was asked for; the page must not.
    assert all("404" in one for one in window.complaints())


def test_certainties_are_not_rounded_up(service: Running, window: Browser) -> None:
    window.open(service.url)
    shares = {0.5: "50 %", 0.9984: "99.8 %", 0.9999: "> 99.9 %", 1.0: "> 99.9 %"}
    assert {share: window.run(f"return percent({share})") for share in shares} == shares


def test_the_map_keeps_distances(service: Running, window: Browser) -> None:
    """Any two models are as far apart on the page as their estimates are, but for one scale."""
    window.open(service.url)
    wait_until(lambda: window.run("return document.querySelectorAll('#map circle').length"))
    # What an earlier test made the service learn may reach the map a moment later.
    wait_until(lambda: scales_of_map(service, window).std() < 1e-6, seconds=5)


def scales_of_map(service: Running, window: Browser) -> NDArray[np.float64]:
    """Return the distances of any two models on the page by those of their estimates, scaled."""
    models = service.http.get("/v1/models").json()["models"]
    here = np.array([[one["x"], one["y"]] for one in models])
    circles = "[...document.querySelectorAll('#map circle')]"
    there = np.array(
        window.run(f"return {circles}.map((c) => [+c.getAttribute('cx'), +c.getAttribute('cy')])")
    )
    if len(here) != len(there):
        return np.array([0.0, 1.0])
    pairs = [
        np.linalg.norm(at[:, None] - at[None], axis=2)[np.triu_indices(len(at), 1)]
        for at in (here, there)
    ]
    ratio = pairs[1] / pairs[0]
    scaled: NDArray[np.float64] = ratio / ratio.mean()
    return scaled


LABELS = """
  const boxes = [...document.querySelectorAll('#map g')].map((one) => one.getBoundingClientRect());
  return boxes.map((one) => [one.left, one.top, one.right, one.bottom]);
"""


def test_labels_of_the_map_do_not_overlap(service: Running, window: Browser) -> None:
    window.open(service.url)
    wait_until(lambda: window.run("return document.querySelectorAll('#map circle').length"))
    # Twelve models of equal size, close together.
    models: list[dict[str, float]] = [
        {"id": 1000 + i, "users": 50, "observations": 9, "growth": 0, "x": i % 4, "y": i // 4}
        for i in range(12)
    ]
    models += [one | {"id": one["id"] + 12, "x": one["x"] + 0.1} for one in models]
    drawn = {"version": 1, "total": 24, "users_elsewhere": 0, "models": models}
    window.run(f"view.mapped = Infinity; showMap({json.dumps(drawn)}, {{rewards: 1}})")
    boxes = window.run(LABELS)
    assert 12 <= len(boxes) < 24
    for one, other in itertools.combinations(boxes, 2):
        apart_x = one[2] <= other[0] + 1 or other[2] <= one[0] + 1
        assert apart_x or one[3] <= other[1] + 1 or other[3] <= one[1] + 1


def test_counts_have_whole_numbers_on_their_axis(service: Running, window: Browser) -> None:
    window.open(service.url)
    wait_until(lambda: window.text("#users") == "9")
    told = "#alarms text[text-anchor=end]"
    script = """
      const rows = [{at: 0, changes: 1}, {at: 5, changes: 0}];
      const curve = {kind: "bar", value: (row) => row.changes};
      chart("alarms", rows, [curve], {zero: true, whole: true});
    """
    shown = f"return [...document.querySelectorAll('{told}')].map((one) => one.textContent)"
    ticks = window.run(script + shown)[:-1]
    assert ticks == ["0", "1"]


def test_equal_curves_can_both_be_seen(service: Running, window: Browser) -> None:
    window.open(service.url)
    wait_until(lambda: window.run("return document.querySelectorAll('#traffic .curve').length"))
    style = "getComputedStyle(document.querySelector('#traffic .{}'))"
    below, above = (style.format(name) for name in ("decisions", "rewards"))
    wide = [float(window.run(f"return parseFloat({one}.strokeWidth)")) for one in (below, above)]
    assert wide[0] >= 2 * wide[1]


def test_health_and_latency_are_on_the_page(service: Running, window: Browser) -> None:
    window.open(service.url)
    wait_until(lambda: window.text("#journal").endswith("MB"))
    assert window.text("#queue") == "0"
    # From two readings on, there are requests between them.
    window.run("view.measured = 0")
    wait_until(lambda: window.text("#latency").startswith(("≤", ">")), seconds=20)
    assert window.text("#failed") == "0"


def test_a_long_id_does_not_stretch_the_page(service: Running, window: Browser) -> None:
    window.open(service.url)
    wait_until(lambda: window.text("#users") == "9")
    window.phone(380, 800)
    window.run("who.value = 'y'.repeat(128); lookup.requestSubmit()")
    wait_until(lambda: "no such user" in window.text("#user-note"))
    window.run("tenant.textContent = 'x'.repeat(64)")
    assert window.run("return document.documentElement.scrollWidth") <= 380


def test_the_page_says_how_far_a_start_is(tmp_path: Path, window: Browser) -> None:
    with running(told(tmp_path)) as made:
        tenant = made.service.tenants["default"]
        window.open(made.url)
        wait_until(lambda: window.text("#state") == "well")
        tenant._start.progress = Progress(done=3000, total=6000, began=time.monotonic() - 9)
        tenant._serves = False
        wait_until(
            lambda: window.text("#state").startswith("starting: 3,000 of 6,000 lines, about")
        )
        tenant._serves = True
        wait_until(lambda: window.text("#state") == "well")


def test_the_age_on_the_page_is_that_of_the_oldest_snapshot(
    service: Running, window: Browser
) -> None:
    window.open(service.url)
    wait_until(lambda: window.text("#memory") != "–")
    series = "".join(
        f'dyclu_snapshot_age_seconds{{tenant="shop/{number}"}} {age}\n'
        f'dyclu_queue_lines{{tenant="shop/{number}"}} 2\n'
        for number, age in enumerate((30, 70, 50))
    )
    # In one script, since the page shows its own figures every five seconds.
    shown = window.run(
        f"showHealth({json.dumps(series)});"
        "return ['snapshot', 'queue'].map((id) => document.getElementById(id).textContent)"
    )
    assert shown == ["70 s", "6"]


def test_the_page_fits_a_phone_and_dark_mode(
    service: Running, window: Browser, tmp_path: Path
) -> None:
    window.open(service.url)
    wait_until(lambda: window.run("return document.querySelectorAll('#map circle').length"))
    background = {}
    for dark in (False, True):
        window.dark(dark)
        background[dark] = window.run("return getComputedStyle(document.body).backgroundColor")
    assert background[False] != background[True]
    window.phone(380, 800)
    wide = window.run("return document.documentElement.scrollWidth")
    assert wide <= 380
    window.picture(tmp_path / "phone.png")
    assert (tmp_path / "phone.png").stat().st_size > 10_000


def test_negative_numbers_on_an_axis_keep_their_sign_on_a_phone(
    service: Running, window: Browser
) -> None:
    """A sign that is cut off makes another number."""
    window.open(service.url)
    window.phone(380, 800)
    left = window.run(
        "const one = document.querySelector('#alarms').appendChild("
        "document.createElementNS('http://www.w3.org/2000/svg', 'text'));"
        "one.textContent = '-0.002'; one.setAttribute('text-anchor', 'end');"
        "one.setAttribute('x', LEFT - 6); const at = one.getBBox().x; one.remove(); return at"
    )
    assert left >= 0


def test_times_and_models_of_changes_are_on_one_line(service: Running, window: Browser) -> None:
    live(service, 12, shift=1, seed=1)
    window.ask("POST", "goog/cdp/execute", RESET)
    window.size(1280, 900)
    window.open(service.url)
    wait_until(lambda: window.run("return document.querySelectorAll('#changes tr').length") > 5)
    # A long id takes what room it gets.
    lines = window.run(
        "document.querySelector('#changes button').textContent = 'x'.repeat(90);"
        "const numbers = [1, 3, 4].map((n) => `#changes td:nth-child(${n})`);"
        "return [...document.querySelectorAll(numbers)].map("
        "(one) => { const range = document.createRange(); range.selectNode(one.firstChild);"
        " return range.getClientRects().length })"
    )
    assert set(lines) == {1}


RESET = {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}}
ASKED_FOR = ("v1/policy", "v1/activity", "v1/changes?since=0", "v1/models", "v1/users/u99999")


def test_the_page_shows_a_hundred_thousand_users(tmp_path: Path, window: Browser) -> None:
    """None of what the page asks for once a second may take long: requests wait meanwhile."""
    data = crowd(tmp_path, PolicySpec("linucb", 3, {}), users=100_000, life=1)
    with running(told(data, dim=3, options={})) as made:
        window.open(made.url)
        wait_until(lambda: window.text("#users") == "100,000", seconds=10)
        window.run("who.value = 'u99999'; lookup.requestSubmit()")
        wait_until(lambda: window.text("#user-name") == "u99999")
        assert window.complaints() == []
        for path in ASKED_FOR:
            quickest = min(seconds_for(made, path) for _ in range(5))
            assert quickest < 0.05, path
            assert len(made.http.get(path).content) < 300_000


def seconds_for(service: Running, path: str) -> float:
    began = time.perf_counter()
    assert service.http.get(path).status_code == 200
    return time.perf_counter() - began


def test_the_page_asks_for_a_key(tmp_path: Path, window: Browser) -> None:
    given = told(tmp_path, keys=f"{digest('open sesame')} read-only")
    with running(given) as locked:
        window.open(locked.url)
        wait_until(lambda: window.text("#state") == "needs a key")
        assert window.run("return main.hidden") is True
        window.run("key.value = 'open sesame'; login.requestSubmit()")
        wait_until(lambda: window.text("#state") == "well")
        assert window.run("return main.hidden") is False
        assert all("401" in one for one in window.complaints())


def click_rarely(service: Running) -> None:
    """Let nine users click once in 25 rewards: DyClu sets the clicks aside."""
    rows = [
        {"user": f"user-{i % 9}", "features": [1.0, 0.0, 0.0], "reward": float(i % 25 == 24)}
        for i in range(900)
    ]
    for start in range(0, len(rows), 450):
        body = {"observations": rows[start : start + 450]}
        assert service.http.post("/v1/observations", json=body).status_code == 200


def test_warnings_of_the_policy_are_on_the_page(tmp_path: Path, window: Browser) -> None:
    given = told(tmp_path, dim=3, policy="dyclu", options={"noise": 0.1})
    with running(given) as made:
        window.open(made.url)
        wait_until(lambda: window.text("#state") == "well")
        assert window.run("return warnings.hidden") is True
        click_rarely(made)
        (sentence,) = made.http.get("/v1/policy").json()["warnings"]
        assert "The surprises hold" in sentence
        wait_until(lambda: window.text("#warning-list") == sentence)
        assert window.run("return warnings.hidden") is False
        # Drawn once: a reader can select the text while the page is live.
        window.run("document.querySelector('#warning-list li').dataset.seen = 'yes'")
        time.sleep(2.5)
        assert window.run("return document.querySelector('#warning-list li').dataset.seen") == "yes"
        window.phone(380, 800)
        assert window.run("return document.documentElement.scrollWidth") <= 380
        assert window.complaints() == []
