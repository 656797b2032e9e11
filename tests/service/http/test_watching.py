"""Seen from outside: metrics that parsers accept, a log that cannot be flooded, names of keys."""

from __future__ import annotations

import http.client
import json
import logging
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

import dyclu
from dyclu.service.http.keys import digest, new_key
from dyclu.service.http.log import QUIET, Refusals
from dyclu.service.http.views import metrics
from dyclu.service.refusal import Refusal
from dyclu.service.settings import settings
from tests.service.running import ARMS, Running, process, running, told, wait_until

KEYS = {name: new_key() for name in ("shop", "news", "ops", "old", "next")}
OPEN = {"Accept": "application/openmetrics-text; version=1.0.0"}


def text_of(data: Path, *, shop: str = "", more: str = "", limits: str = "") -> str:
    return f"""
        data = "{data}"
        port = 0
        {more}
        [[operators]]
        digest = "{digest(KEYS["ops"])}"
        name = "night-watch"
        [tenants.shop]
        dim = 2
        policy = "linucb"
        {shop}
        [tenants.shop.limits]
        {limits}
        [[tenants.shop.keys]]
        digest = "{digest(KEYS["shop"])}"
        role = "read-write"
        name = "checkout"
        [[tenants.shop.keys]]
        digest = "{digest(KEYS["old"])}"
        role = "read-write"
        name = "retired"
        expires = 2020-01-01T00:00:00Z
        [tenants.news]
        dim = 2
        policy = "linucb"
        [[tenants.news.keys]]
        digest = "{digest(KEYS["news"])}"
        role = "read-only"
        """


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("watching")
    (folder / "s.toml").write_text(text_of(folder / "data"))
    with running(settings({}, environment={}, file=folder / "s.toml")) as made:
        ask(made.http, "shop").raise_for_status()
        yield made


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


def ask(http: httpx.Client, name: str, **headers: str) -> httpx.Response:
    body = {"user": "ana", "arms": ARMS}
    return http.post("/v1/decisions", json=body, headers=bearer(name) | headers)


def values(text: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    found = [one for family in parse_plain(text) for one in family.samples]
    return {tuple(sorted(one.labels.items())): one.value for one in found if one.name == name}


@pytest.mark.parametrize("name", ["shop", "ops"])
def test_metrics_are_valid_for_prometheus_and_for_openmetrics(service: Running, name: str) -> None:
    plain = service.http.get("/metrics", headers=bearer(name))
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    opened = service.http.get("/metrics", headers=bearer(name) | OPEN)
    assert opened.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert opened.text.endswith("# EOF\n")
    families = {"plain": list(parse_plain(plain.text)), "open": list(parse_open(opened.text))}  # type: ignore[no-untyped-call]
    for found in families.values():
        names = [family.name for family in found]
        assert len(set(names)) == len(names)
        assert all(family.documentation and family.type != "unknown" for family in found)
    assert {one.name for one in families["plain"]} == {one.name for one in families["open"]}


def test_metrics_tell_about_process_disk_and_version(service: Running) -> None:
    text = service.http.get("/metrics", headers=bearer("shop")).text
    shop = (("tenant", "shop"),)
    assert values(text, "dyclu_journal_bytes")[shop] > 4096
    assert values(text, "dyclu_queue_lines")[shop] == 0
    assert values(text, "dyclu_build_info") == {(("version", dyclu.__version__),): 1}
    assert 0 < time.time() - values(text, "process_start_time_seconds")[()] < 3600
    assert values(text, "process_resident_memory_bytes")[()] > 1e7
    assert values(text, "process_cpu_seconds_total")[()] > 0.1
    assert 5 < values(text, "process_open_fds")[()] < values(text, "process_max_fds")[()]
    assert values(text, "dyclu_snapshot_age_seconds") == {}
    service.service.tenants["shop"].save()
    text = service.http.get("/metrics", headers=bearer("shop")).text
    assert 0 <= values(text, "dyclu_snapshot_age_seconds")[shop] < 60


def test_a_latency_is_in_its_bucket_and_all_above(service: Running) -> None:
    text = service.http.get("/metrics", headers=bearer("shop")).text
    buckets = {
        float(dict(labels)["le"]): value
        for labels, value in values(text, "dyclu_request_seconds_bucket").items()
        if dict(labels)["call"] == "decide"
    }
    ordered = [buckets[bound] for bound in sorted(buckets)]
    assert ordered == sorted(ordered)
    count = values(text, "dyclu_request_seconds_count")[(("call", "decide"), ("tenant", "shop"))]
    assert buckets[float("inf")] == count >= 1


def test_an_operator_sees_metrics_and_health_of_all_tenants_and_no_data(service: Running) -> None:
    text = service.http.get("/metrics", headers=bearer("ops")).text
    assert set(values(text, "dyclu_ready")) == {(("tenant", "shop"),), (("tenant", "news"),)}
    tenants = service.http.get("/tenants", headers=bearer("ops")).json()["tenants"]
    assert [(one["tenant"], one["status"]) for one in tenants] == [("shop", "ok"), ("news", "ok")]
    own = service.http.get("/tenants", headers=bearer("news")).json()["tenants"]
    assert [one["tenant"] for one in own] == ["news"]
    assert service.http.get("/tenants").status_code == 401
    for path in ("/v1/policy", "/v1/users/ana", "/v1/changes", "/v1/models", "/v1/activity"):
        assert service.http.get(path, headers=bearer("ops")).status_code == 403
    assert ask(service.http, "ops").status_code == 403
    assert service.http.delete("/v1/users/ana", headers=bearer("ops")).status_code == 403
    assert service.http.get("/v1/users/ana", headers=bearer("shop")).status_code == 200


def test_a_key_that_has_expired_is_refused(service: Running) -> None:
    refused = ask(service.http, "old")
    assert refused.status_code == 401
    assert "retired has expired" in refused.json()["error"]["message"]


def test_wrong_keys_are_counted_and_make_few_lines_of_log(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Two hundred wrong keys left no trace at all before."""
    label = (("code", "no-key"), ("status", "401"))

    def count() -> float:
        text = service.http.get("/metrics", headers=bearer("ops")).text
        return values(text, "dyclu_strangers_refused_total").get(label, 0)

    before = count()
    for number in range(200):
        wrong = {"Authorization": f"Bearer dyclu_{number}"}
        assert service.http.get("/v1/policy", headers=wrong).status_code == 401
    assert count() == before + 200
    service.service.refusals.summarise()
    lines = [one.getMessage() for one in caplog.records if "refused" in one.getMessage()]
    assert 1 <= len(lines) <= 4
    assert any("no-key" in line for line in lines)
    assert sum(int(line.split()[1]) for line in lines if " more " in line) >= 190


def test_refusals_of_one_kind_make_one_line_until_some_time_has_passed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    refusals = Refusals(clock=lambda: now)
    for _ in range(100):
        refusals.count(Refusal(401, "no-key", "no"), tenant=None, client="10.0.0.7")
    refusals.count(Refusal(429, "limit", "much"), tenant="shop", client="10.0.0.8")
    assert len(caplog.records) == 2
    refusals.summarise()
    assert "refused 99 more with no-key" in caplog.records[-1].getMessage()
    refusals.summarise()
    assert len(caplog.records) == 3
    now = QUIET
    refusals.count(Refusal(401, "no-key", "no"), tenant=None, client="10.0.0.7")
    assert len(caplog.records) == 4
    assert refusals.strangers == {(401, "no-key"): 101}


def test_every_answer_has_a_request_id(service: Running) -> None:
    own = service.http.get("/healthz", headers={"X-Request-Id": "trace-7"})
    assert own.headers["x-request-id"] == "trace-7"
    ids = {ask(service.http, "shop").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    bad = service.http.get("/healthz", headers={"X-Request-Id": 'a"b'})
    assert bad.headers["x-request-id"] not in ('a"b', "")


GET = "GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"
HEAD = GET.replace("GET", "HEAD")
ANSWERS = {
    "page": (GET.format("/", ""), 200),
    "script of the page": (GET.format("/page.js", ""), 200),
    "probe": (GET.format("/readyz", ""), 200),
    "metrics": (GET.format("/metrics", "Authorization: Bearer {shop}\r\n"), 200),
    "metrics for strangers": (GET.format("/metrics", ""), 401),
    "tenants": (GET.format("/tenants", "Authorization: Bearer {shop}\r\n"), 200),
    "cluster": (GET.format("/v1/cluster", "Authorization: Bearer {shop}\r\n"), 404),
    "OpenAPI document": (GET.format("/openapi.json", ""), 200),
    "call": (GET.format("/v1/policy", "Authorization: Bearer {shop}\r\n"), 200),
    "call of one": (GET.format("/v1/users/nobody", "Authorization: Bearer {shop}\r\n"), 404),
    "call by head": (HEAD.format("/v1/users/nobody", "Authorization: Bearer {shop}\r\n"), 404),
    "template": (GET.format("/v1/users/%7Bid%7D", "Authorization: Bearer {shop}\r\n"), 422),
    "refused call": (GET.format("/v1/policy", ""), 401),
    "unknown path": (GET.format("/nothing", ""), 404),
    "wrong method": (GET.format("/v1/decisions", ""), 405),
    "no host": ("GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two keys": (GET.format("/v1/policy", "Authorization: a\r\nAuthorization: b\r\n"), 400),
    "long headers": (GET.format("/healthz", f"X-Long: {'a' * 40_000}\r\n"), 431),
}
"""Requests of all kinds of answers, each with its status."""


def answer_to(url: str, request: str) -> tuple[int, dict[str, str]]:
    """Send the bytes of a request; return status and headers of the answer."""
    place = httpx.URL(url)
    with socket.create_connection((place.host, place.port or 0), timeout=20) as one:
        one.sendall(request.encode())
        response = http.client.HTTPResponse(one, method=request.split()[0])
        response.begin()
        response.read()
        names = [name.lower() for name, _ in response.getheaders()]
        assert names.count("x-request-id") == 1
        return response.status, {k.lower(): v for k, v in response.getheaders()}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("told", ["trace-7", None, 'a"b'])
def test_every_kind_of_answer_has_the_request_id(
    service: Running, kind: str, told: str | None
) -> None:
    request, status = ANSWERS[kind]
    request = request.replace("{shop}", KEYS["shop"])
    if told is not None:
        request = request.replace("HTTP/1.1\r\n", f"HTTP/1.1\r\nX-Request-Id: {told}\r\n", 1)
    found, headers = answer_to(service.url, request)
    assert found == status
    if told == "trace-7":
        assert headers["x-request-id"] == told
    else:
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]+", headers["x-request-id"])


def test_each_request_beside_the_page_and_probes_is_one_line_of_the_json_log(
    tmp_path: Path,
) -> None:
    """Its id finds it there; the page and probes would be most of the log."""
    with as_process(tmp_path, more='log = "json"') as (child, asking):
        for kind, (request, _) in ANSWERS.items():
            told = f"HTTP/1.1\r\nX-Request-Id: {kind.replace(' ', '-')}\r\n"
            request = request.replace("{shop}", KEYS["shop"])
            answer_to(str(asking.base_url), request.replace("HTTP/1.1\r\n", told, 1))
        child.send_signal(signal.SIGTERM)
        _, log = child.communicate(timeout=20)
    lines = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    found = {line["request_id"]: (line["call"], line["status"], line["key"]) for line in requests}
    assert len(found) == len(requests)
    assert found == {
        "metrics": ("metrics", 200, "checkout"),
        "metrics-for-strangers": ("metrics", 401, None),
        "tenants": ("tenants", 200, "checkout"),
        "cluster": ("cluster", 404, "checkout"),
        "call": ("policy", 200, "checkout"),
        "call-of-one": ("user", 404, "checkout"),
        "call-by-head": ("user", 404, "checkout"),
        "template": ("user", 422, "checkout"),
        "refused-call": ("policy", 401, None),
        "unknown-path": ("unknown", 404, None),
        "wrong-method": ("unknown", 405, None),
        "no-host": ("refused", 400, None),
        "two-keys": ("refused", 400, None),
        "long-headers": ("refused", 431, None),
    }


@contextmanager
def as_process(folder: Path, **more: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    (folder / "s.toml").write_text(text_of(folder / "data", **more))
    with (
        process(folder / "data", f"--config={folder / 's.toml'}") as (child, url),
        httpx.Client(base_url=url) as http,
    ):
        yield child, http


def test_the_log_is_json_with_request_tenant_key_status_and_duration(tmp_path: Path) -> None:
    with as_process(tmp_path, more='log = "json"') as (child, http):
        ask(http, "shop", **{"X-Request-Id": "r-1"}).raise_for_status()
        assert ask(http, "old").status_code == 401
        child.send_signal(signal.SIGTERM)
        _, log = child.communicate(timeout=20)
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    first, second = requests
    assert first.pop("time") < second["time"]
    assert 0 < first.pop("milliseconds") < 10_000
    assert first == {
        "level": "info", "message": "request", "request_id": "r-1", "tenant": "shop",
        "key": "checkout", "call": "decide", "status": 200, "client": "127.0.0.1",
    }  # fmt: skip
    assert (second["status"], second["tenant"], second["key"]) == (401, None, None)
    refused = next(line for line in lines if line.get("code") == "expired")
    assert refused["level"] == "warning"
    for key in KEYS.values():
        assert key not in log


def reload(child: subprocess.Popen[str], folder: Path, **more: str) -> None:
    (folder / "s.toml").write_text(text_of(folder / "data", **more))
    child.send_signal(signal.SIGHUP)


def test_sighup_reloads_keys_limits_and_settings_that_do_not_touch_the_journal(
    tmp_path: Path,
) -> None:
    """It ended the service before. Requests before and after are served by one process."""
    with as_process(tmp_path) as (child, http):
        first = ask(http, "shop")
        assert first.json()["propensity"] == 1.0
        new = (
            f'[[tenants.shop.keys]]\ndigest = "{digest(KEYS["next"])}"\nrole = "read-only"\n'
            "[tenants.shop.limits]\n"
        )
        told = text_of(tmp_path / "data", shop="epsilon = 0.5").replace(
            "[tenants.shop.limits]", f"{new}max_arms = 2"
        )
        (tmp_path / "s.toml").write_text(told)
        assert http.get("/v1/policy", headers=bearer("next")).status_code == 401
        child.send_signal(signal.SIGHUP)
        wait_until(lambda: http.get("/v1/policy", headers=bearer("next")).status_code == 200)
        refused = ask(http, "shop")
        assert "(limit max_arms)" in refused.json()["error"]["message"]
        assert http.get("/v1/policy", headers=bearer("shop")).json()["epsilon"] == 0.5
        reward = http.post(
            f"/v1/decisions/{first.json()['decision_id']}/reward",
            json={"value": 1.0},
            headers=bearer("shop"),
        )
        assert reward.status_code == 200
        reload(child, tmp_path)
        wait_until(lambda: http.get("/v1/policy", headers=bearer("next")).status_code == 401)
        assert ask(http, "shop").status_code == 200
        assert child.poll() is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"shop": "options = {alpha = 0.9}"}, "[shop] options cannot change while it runs"),
        ({"more": "max_headers = 10000"}, "max_headers cannot change while it runs"),
        ({"shop": "epsilon = 7.0"}, "epsilon"),
        ({"shop": "nonsense ="}, "is not TOML"),
    ],
)
def test_settings_that_cannot_be_reloaded_change_nothing(
    tmp_path: Path, more: dict[str, str], said: str
) -> None:
    with as_process(tmp_path) as (child, http):
        reload(child, tmp_path, limits="max_arms = 1", **more)
        assert child.stderr is not None
        for line in child.stderr:
            if "the settings stay as they were" in line:
                break
        assert said in line
        assert ask(http, "shop").status_code == 200
        assert http.get("/readyz").status_code == 200


def test_a_request_log_is_not_written_if_the_log_is_plain(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        ask(service.http, "shop").raise_for_status()
    assert not [one for one in caplog.records if one.name == "dyclu.service.requests"]


def test_counters_do_not_fall_when_a_user_is_erased(tmp_path: Path) -> None:
    """Prometheus would take a fall for a restart, and count everything again."""
    with running(told(tmp_path)) as made:
        for user in ("ana", "bob", "bob"):
            made.decide(user)
        assert 'dyclu_decisions_total{tenant="default"} 3' in made.http.get("/metrics").text
        made.http.delete("/v1/users/bob")
        assert made.service.tenants["default"].state.total.decisions == 1
        assert 'dyclu_decisions_total{tenant="default"} 3' in made.http.get("/metrics").text
        made.decide("ana")
        assert 'dyclu_decisions_total{tenant="default"} 4' in made.http.get("/metrics").text


def test_a_request_for_an_unknown_path_is_counted(tmp_path: Path) -> None:
    with running(told(tmp_path)) as made:
        assert made.http.get("/wp-login.php").status_code == 404
        assert made.http.put("/v1/decisions").status_code == 405
        figures = made.http.get("/metrics").text
    assert 'dyclu_strangers_refused_total{status="404",code="route"} 1' in figures
    assert 'dyclu_strangers_refused_total{status="405",code="route"} 1' in figures


def test_metrics_are_answered_if_a_snapshot_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: object) -> float:
        raise FileNotFoundError

    figures = tuple((*one[:3], gone) for one in metrics._OF_ANY_TENANT)
    monkeypatch.setattr(metrics, "_OF_ANY_TENANT", figures)
    with running(told(tmp_path)) as made:
        answer = made.http.get("/metrics")
    assert answer.status_code == 200
    assert "dyclu_snapshot_age_seconds" in answer.text
