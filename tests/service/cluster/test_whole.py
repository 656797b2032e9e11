"""Views of a whole tenant: sums over partitions of several processes, never over some of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs
from msgspec.json import decode

from dyclu.client.partitions import with_partition
from dyclu.service import schema
from dyclu.service.cluster.keeper import not_here
from dyclu.service.http.answers import Answer
from dyclu.service.http.calls import CALLS
from dyclu.service.http.routing import KEY, PARTITIONS, Routed
from dyclu.service.http.views.openapi import document
from tests.service.browser import Browser, browser
from tests.service.cluster.test_cluster import PATIENCE, insist, member, partitions
from tests.service.cluster.test_taking_over import keeper_of
from tests.service.http.test_rewards import serve_both_groups
from tests.service.http.test_watching import values
from tests.service.postgres import Postgres
from tests.service.running import ARMS, Running, wait_until

USERS, COUNT = 400, 4
RULES: dict[str, Any] = {
    "partitions": COUNT,
    "control": 0.4,
    "options": {"alpha": 0.1, "shared": True},
}
VIEWS = ("lift", "policy", "activity")


@pytest.fixture(scope="module")
def pair(
    server: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Running]]:
    """Two processes with two partitions each, which have served users of both groups."""
    store, folder = server.fresh(), tmp_path_factory.mktemp("whole")
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(member(store, folder, name=name, lease=10.0, **RULES))
            for name in "ab"
        )
        for one in (a, b):
            wait_until(lambda u=one: partitions(u) == {"a": 2, "b": 2}, seconds=PATIENCE)
            wait_until(lambda u=one: ready(u), seconds=PATIENCE)
        serve_both_groups(a, USERS)
        yield a, b


def ready(made: Running) -> bool:
    return bool(made.http.get("/readyz").json()["status"] == "ok")


def view(made: Running, name: str, partition: int | None = None) -> dict[str, Any]:
    path = f"/v1/{name}" + ("" if partition is None else f"?partition={partition}")
    answer = made.http.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_lift_of_a_tenant_is_that_of_all_its_partitions(pair: tuple[Running, Running]) -> None:
    found, other = (view(one, "lift") for one in pair)
    assert found == other
    parts = [view(pair[0], "lift", number) for number in range(COUNT)]
    for group in ("treated", "control"):
        for what in ("decisions", "reward"):
            assert found[group][what] == sum(one[group][what] for one in parts) > 0
            assert found["days"][-1][group][what] == sum(
                day[group][what] for one in parts for day in one["days"][-1:]
            )
    assert found["treated"]["decisions"] + found["control"]["decisions"] == 3 * USERS
    assert found["lift"] == pytest.approx(found["treated"]["mean"] - found["control"]["mean"])
    # Four times the users: about half the width. Groups are drawn by a secret hash, so one of a
    # partition may have too few users for an interval.
    assert 0 < found["low"] < found["lift"] < found["high"]
    widths = [one["high"] - one["low"] for one in parts if one["high"] is not None]
    assert found["high"] - found["low"] < 0.75 * min(widths)
    assert found["since"] == min(one["since"] for one in parts)
    assert found["verdict"].startswith("The policy earns more than the baseline")


def test_counts_and_activity_of_a_tenant_are_those_of_all_its_partitions(
    pair: tuple[Running, Running],
) -> None:
    parts = [view(pair[0], "policy", number) for number in range(COUNT)]
    for made in pair:
        whole = view(made, "policy")
        assert (whole["tenant"], whole["partitions"]) == ("default", COUNT)
        for name in ("version", "decisions", "rewards", "pending", "users", "changes"):
            assert whole[name] == sum(one[name] for one in parts), name
        assert whole["users"] == USERS
        minutes = view(made, "activity")["minutes"]
        assert sum(one["decisions"] for one in minutes) == 3 * USERS
        assert len({one["at"] for one in minutes}) == len(minutes)
    assert [one["tenant"] for one in parts] == [f"default/{number}" for number in range(COUNT)]


def test_a_warning_says_which_partitions_it_is_about(pair: tuple[Running, Running]) -> None:
    a, b = pair
    owned = [sorted(number for _, number in keeper_of(made).serving) for made in pair]
    for made, number in ((a, owned[0][0]), (b, owned[1][1])):
        keeper_of(made).serving["default", number].tenant.snapshots.complaints.append("full")
    numbers = sorted((owned[0][0], owned[1][1]))
    try:
        for made in pair:
            assert view(made, "policy")["warnings"] == [
                f"partitions {numbers[0]}, {numbers[1]}: full"
            ]
    finally:
        for made in pair:
            for one in keeper_of(made).serving.values():
                one.tenant.snapshots.complaints.clear()


def test_the_owner_logs_a_request_with_the_id_of_the_process_that_was_asked(
    pair: tuple[Running, Running],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each request is one that is passed on: to an owner, as a part of a batch, as one of a sum."""
    caplog.set_level(logging.INFO, logger="dyclu.service.requests")
    for made in pair:
        settings = structs.replace(made.service.settings, log="json")
        monkeypatch.setattr(made.service, "settings", settings)
    a, b = pair
    number = next(number for _, number in keeper_of(b).serving)
    never_made = with_partition("0005f6c1a2b3c4-00112233445566ff", number)
    rewards = {"rewards": [{"decision_id": never_made, "value": 1.0}]}
    ids = set()
    for told in ({"X-Request-Id": "r-1"}, {}):
        for ask in (
            partial(a.http.post, f"/v1/decisions/{never_made}/reward", json={"value": 1.0}),
            partial(a.http.post, "/v1/rewards:batch", json=rewards),
            partial(a.http.get, "/v1/lift"),
        ):
            caplog.clear()
            answer = ask(headers=told)
            ids.add(answer.headers["x-request-id"])
            wait_until(lambda: len(logged_ids(caplog)) == 2, seconds=20)
            assert logged_ids(caplog) == [answer.headers["x-request-id"]] * 2
    assert "r-1" in ids
    assert len(ids) == 4


def logged_ids(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the ids of the requests that were logged."""
    lines: list[Any] = [one for one in caplog.records if one.name == "dyclu.service.requests"]
    return [line.fields["request_id"] for line in lines]


def test_every_call_that_takes_a_partition_says_so_in_the_openapi_document(
    pair: tuple[Running, Running],
) -> None:
    for call in CALLS:
        if call.method == "GET" and "{id}" not in call.path:
            status = pair[0].http.get(f"{call.path}?partition={COUNT}").status_code
            takes = "partition" in call.query
            assert (status, takes) == ((422, True) if takes else (200, False)), call.name


def test_the_view_of_a_cluster_is_as_the_openapi_document_says(
    pair: tuple[Running, Running],
) -> None:
    answer = pair[0].http.get("/v1/cluster")
    found = decode(answer.content, type=schema.ClusterView)
    assert len(found.partitions) == COUNT
    told = document()
    shown = told["paths"]["/v1/cluster"]["get"]["responses"]["200"]["content"]
    assert shown["application/json"]["schema"]["$ref"].endswith("/ClusterView")
    properties = told["components"]["schemas"]["ClusterView"]["properties"]
    assert set(properties) == set(answer.json())


def test_metrics_of_a_cluster_count_requests_connections_and_bytes_of_a_tenant(
    pair: tuple[Running, Running],
) -> None:
    a, _ = pair
    assert a.http.get("/v1/users/u0").status_code == 200
    budget = a.service.budgets["default"]
    with budget.request(now=0.0), budget.body() as held:
        held.add(500)
        text = a.http.get("/metrics").text
    tenant = (("tenant", "default"),)
    # Those of the tenant in this process, once: they are not those of a partition.
    assert values(text, "dyclu_active_requests") == {tenant: 1}
    assert values(text, "dyclu_body_bytes") == {tenant: 500}
    assert values(text, "dyclu_connections") == {tenant: budget.connections}
    assert budget.connections > 0
    owned = {(("tenant", f"default/{number}"),) for _, number in keeper_of(a).serving}
    assert set(values(text, "dyclu_ready")) == owned


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("why", ["starts", "is handed over", "its lease is over"])
def test_nothing_is_told_of_a_tenant_while_a_partition_cannot_be_asked(
    pair: tuple[Running, Running], name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    keeper = keeper_of(b)
    (place, serving), *_ = keeper.serving.items()
    with monkeypatch.context() as broken:
        if why == "starts":
            broken.setattr(serving.tenant, "_serves", False)
        elif why == "is handed over":
            broken.setattr(serving, "ending", True)
        else:
            broken.setattr(keeper, "_valid", 0.0)
            # The next round renews it.
            broken.setattr(keeper, "check", refuse_all(keeper.check))
        for made in pair:
            answer = made.http.get(f"/v1/{name}")
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) >= 1
            assert "error" in answer.json()
        number = next(n for _, n in keeper_of(a).serving)
        assert view(a, name, number)
        assert place[1] != number
    for made in pair:
        assert view(made, name)


def refuse_all(check: Any) -> Any:
    def refuse() -> None:
        raise not_here("the lease of this process is over")

    return refuse


def test_an_owner_of_the_version_before_is_not_left_out(
    pair: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know the header, and takes the request for one about no partition."""
    a, b = pair
    answer_of = b.service.router.answer

    async def ignoring(asked: Routed) -> Answer:
        known = {k: v for k, v in asked.headers.items() if k != PARTITIONS.encode()}
        return await answer_of(replace(asked, headers=known))

    monkeypatch.setattr(b.service.router, "answer", ignoring)
    answer = a.http.get("/v1/lift")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "moved")
    # It still owns them, so it is no other owner that has to be asked.
    said = answer.json()["error"]["message"]
    assert b.url in said
    assert "another version" in said


def test_nothing_is_said_of_versions_if_partitions_have_another_owner(
    pair: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look shows that they have moved; who has them now does not answer either."""
    a, b = pair
    keeper = keeper_of(a)

    async def refresh() -> None:
        held = keeper.overview.partitions.items()
        taken_over = {place: replace(one, epoch=one.epoch + 1) for place, one in held}
        keeper.overview = replace(keeper.overview, partitions=taken_over)

    async def refusing(asked: Routed) -> Answer:
        raise not_here("not owned here")

    monkeypatch.setattr(b.service.router, "answer", refusing)
    monkeypatch.setattr(keeper, "refresh", refresh)
    error = a.http.get("/v1/lift").json()["error"]
    assert error["code"] == "moved"
    assert "version" not in error["message"]


def test_an_answer_that_cannot_be_read_is_a_refusal(
    pair: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr(
        a.service.router, "_http", httpx.AsyncClient(transport=httpx.MockTransport(garbled))
    )
    answer = a.http.get("/v1/lift")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "another version" in answer.json()["error"]["message"]
    assert view(b, "lift")


def garbled(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=b'{"sums": 3}')


def test_sums_are_for_processes_of_the_cluster_only(pair: tuple[Running, Running]) -> None:
    forged = {KEY: "guessed", PARTITIONS: "0,1"}
    assert pair[0].http.get("/v1/lift", headers=forged).status_code == 403
    # Without the secret the header means nothing.
    answer = pair[0].http.get("/v1/lift", headers={PARTITIONS: "0"})
    assert answer.json() == view(pair[0], "lift")


def test_the_lift_is_whole_after_a_process_has_left(store: str, tmp_path: Path) -> None:
    with member(store, tmp_path, name="a", **RULES) as a:
        with member(store, tmp_path, name="b", **RULES) as b:
            wait_until(lambda: partitions(b) == {"a": 2, "b": 2}, seconds=PATIENCE)
            for user in range(40):
                asked = {"user": f"u{user}", "arms": ARMS}
                insist(lambda a=asked: b.http.post("/v1/decisions", json=a))
            before = insist(lambda: b.http.get("/v1/lift")).json()
        after = insist(lambda: a.http.get("/v1/lift")).json()
        assert after == before
        assert after["treated"]["decisions"] + after["control"]["decisions"] == 40


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def test_the_page_shows_the_lift_of_the_tenant_and_models_of_a_chosen_partition(
    pair: tuple[Running, Running], window: Browser, tmp_path: Path
) -> None:
    a, _ = pair
    whole = view(a, "lift")
    window.open(a.url)
    wait_until(lambda: window.text("#lift-verdict") == whole["verdict"], seconds=20)
    assert window.text("#users") == str(USERS)
    assert window.text("#tenant") == ""
    assert window.run("return [...document.querySelectorAll('#partition option')].length") == COUNT
    asked = "return performance.getEntriesByType('resource').map((one) => one.name)"
    for number in (0, 3):
        window.run("performance.clearResourceTimings()")
        window.run(f"partition.value = '{number}'; partition.dispatchEvent(new Event('change'))")
        for part in ("v1/models", "v1/changes?since=0"):
            path = f"{a.url}/{part}{'&' if '?' in part else '?'}partition={number}"
            wait_until(lambda p=path: p in window.run(asked), seconds=20)
    window.phone(380, 800)
    assert window.run("return document.documentElement.scrollWidth") <= 380
    window.picture(tmp_path / "whole.png")
    assert window.complaints() == []


def test_the_page_says_that_figures_are_of_one_partition_while_another_cannot_be_asked(
    pair: tuple[Running, Running], window: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    mine = min(number for _, number in keeper_of(a).serving)
    window.open(a.url)
    wait_until(lambda: window.text("#users") == str(USERS), seconds=20)
    window.run(f"partition.value = '{mine}'; partition.dispatchEvent(new Event('change'))")
    users = str(view(a, "policy", mine)["users"])
    serving = next(iter(keeper_of(b).serving.values()))
    with monkeypatch.context() as broken:
        broken.setattr(serving, "ending", True)
        wait_until(lambda: window.text("#users") == users, seconds=20)
        said = f"All figures are of partition {mine} only: "
        wait_until(lambda: said in window.text("#warning-list"), seconds=20)
    wait_until(lambda: window.text("#users") == str(USERS), seconds=20)
    assert said not in window.text("#warning-list")
