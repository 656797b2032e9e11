"""The HTTP surface, through real sockets."""

from __future__ import annotations

import inspect
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import dyclu
from dyclu.service.engine.state import CHANGES_KEPT, ChangeEntry
from dyclu.service.http.app import create_app
from dyclu.service.http.calls import CALLS
from dyclu.service.settings import TenantSettings
from tests.service.running import ARMS, Running, running, told, wait_until


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def service(module_folder: Path) -> Iterator[Running]:
    given = told(module_folder, policy="dyclu", options={"noise": 0.1})
    with running(given) as made:
        yield made


def test_a_decision_and_its_reward_are_answered(service: Running) -> None:
    decided = service.decide("ana", decision_id="first", rank=True)
    assert decided.status_code == 200
    answer = decided.json()
    assert answer["decision_id"] == "first"
    assert sorted(answer["rank"]) == ["a0", "a1", "a2"]
    assert {"arm", "mean", "width", "model", "version", "propensity"} <= set(answer)
    assert service.decide("ana", decision_id="first").json() == answer
    rewarded = service.reward("first", 0.5)
    assert rewarded.json() == {
        "status": "rewarded",
        "decision_id": "first",
        "value": 0.5,
        "repeated": False,
    }
    assert service.reward("first", 0.5).json()["repeated"] is True
    assert service.reward("first", 0.6).status_code == 409
    assert service.reward("never", 0.6).status_code == 404


def test_each_item_of_a_batch_is_answered_separately(service: Running) -> None:
    asked = [{"user": f"b{i}", "arms": ARMS, "decision_id": f"b{i % 3}"} for i in range(4)]
    results = service.http.post("/v1/decisions:batch", json={"decisions": asked}).json()["results"]
    assert [one["status"] for one in results] == ["decided"] * 3 + ["refused"]
    assert results[3]["http"] == 409
    rewards = [{"decision_id": id, "value": 1.0} for id in ("b0", "b1", "b0", "nobody")]
    results = service.http.post("/v1/rewards:batch", json={"rewards": rewards}).json()["results"]
    assert [one.get("repeated", one.get("http")) for one in results] == [False, False, True, 404]


def test_observations_are_learnt_in_order(service: Running) -> None:
    rows = [
        {"user": "olga", "features": [1.0, i / 10], "reward": 1.0, "event_id": f"o{i}"}
        for i in range(5)
    ]
    body = {"observations": rows}
    first = service.http.post("/v1/observations", json=body).json()["results"]
    again = service.http.post("/v1/observations", json=body).json()["results"]
    assert [one["repeated"] for one in first + again] == [False] * 5 + [True] * 5
    seen = service.http.get("/v1/users/olga").json()
    assert seen["rewards"] == 5
    assert seen["segments"][0]["observations"] == 5


def test_an_inactive_decision_is_rewarded_only_after_activation(service: Running) -> None:
    service.decide("ina", decision_id="later", active=False)
    assert service.reward("later", 1.0).status_code == 409
    activated = service.http.post("/v1/decisions/later/activate")
    assert activated.status_code == 200
    assert activated.json()["expires"] > time.time()
    assert service.reward("later", 1.0).status_code == 200


def test_a_change_is_shown(service: Running) -> None:
    before = service.http.get("/v1/changes").json()["latest"]
    turn(service, "vera")
    changes = service.http.get("/v1/changes", params={"since": before}).json()
    assert [one["user"] for one in changes["changes"]] == ["vera"]
    assert changes["changes"][0]["certainty"] == 0.9
    seen = service.http.get("/v1/users/vera").json()
    assert len(seen["segments"]) == 2
    assert seen["model"] == seen["segments"][1]["id"] == changes["changes"][0]["after"]
    assert (
        service.http.get("/v1/changes", params={"since": changes["latest"]}).json()["changes"] == []
    )


def announce(service: Running, many: int) -> None:
    """Let a tenant have announced so many more changes."""
    state = service.service.tenants["default"].state
    for _ in range(many):
        state.total.changes += 1
        number = state.total.changes
        state.changes.append(
            ChangeEntry(number, number, f"u{number % 7}", 1, 2, 0.9, number, number)
        )


def followed(service: Running, since: int = 0) -> tuple[list[int], dict[str, Any]]:
    """Numbers of all changes that are told page by page, and the last page."""
    numbers: list[int] = []
    while True:
        page = service.http.get("/v1/changes", params={"since": since}).json()
        assert len(page["changes"]) <= 500
        numbers += [one["number"] for one in page["changes"]]
        since = page["next"]
        if since == page["latest"]:
            return numbers, page


def test_pages_of_changes_contain_every_change_once(tmp_path: Path) -> None:
    """Whoever goes on from `next` sees each once, also those that come in between."""
    with running(told(tmp_path)) as made:
        announce(made, 1234)
        assert followed(made)[0] == list(range(1, 1235))
        first = made.http.get("/v1/changes", params={"since": 200}).json()
        assert (first["next"], first["latest"], first["oldest"]) == (700, 1234, 1)
        announce(made, 100)
        numbers, last = followed(made, first["next"])
        assert numbers == list(range(701, 1335))
        assert last["next"] == 1334
        assert followed(made, last["next"])[0] == []


def test_an_answer_says_which_changes_are_no_longer_kept(tmp_path: Path) -> None:
    with running(told(tmp_path)) as made:
        announce(made, CHANGES_KEPT + 50)
        numbers, last = followed(made)
        assert numbers == list(range(51, CHANGES_KEPT + 51))
        assert last["oldest"] == 51
        # A number that is still to come, as a restored backup leaves it, leads back to the last.
        assert followed(made, 10**9)[1]["next"] == CHANGES_KEPT + 50


def test_changes_with_an_old_epoch_are_refused(tmp_path: Path) -> None:
    """An erasure has them begin anew, and so has another policy; a mere restart has not."""
    given = told(tmp_path, policy="dyclu", options={"noise": 0.1})
    with running(given) as made:
        turn(made, "vera")
        turn(made, "wim")
        before = made.http.get("/v1/changes").json()
        assert [one["user"] for one in before["changes"]] == ["vera", "wim"]
        held = {"since": before["next"], "epoch": before["epoch"]}
        assert made.http.get("/v1/changes", params=held).json()["changes"] == []
    with running(given) as made:
        assert made.http.get("/v1/changes", params=held).status_code == 200
        made.http.delete("/v1/users/vera")
        wait_until(lambda: not made.http.get("/v1/policy").json()["rebuilding"], seconds=5)
        refused = made.http.get("/v1/changes", params=held)
        assert (refused.status_code, refused.json()["error"]["field"]) == (409, "epoch")
        after = made.http.get("/v1/changes").json()
        assert after["epoch"] != before["epoch"]
        assert [(one["number"], one["user"]) for one in after["changes"]] == [(1, "wim")]
    with running(given) as made:
        assert made.http.get("/v1/changes").json() == after
    with running(told(tmp_path, policy="dyclu", options={"noise": 0.2})) as made:
        assert made.http.get("/v1/changes").json()["epoch"] != after["epoch"]


def test_changes_since_a_number_beyond_the_latest_are_refused(tmp_path: Path) -> None:
    """As after a restore from a backup, when other changes will have the numbers in between."""
    with running(told(tmp_path)) as made:
        epoch = made.http.get("/v1/changes").json()["epoch"]
        refused = made.http.get("/v1/changes", params={"since": 1, "epoch": epoch})
        assert (refused.status_code, refused.json()["error"]["field"]) == (409, "since")
        assert made.http.get("/v1/changes", params={"since": 0, "epoch": epoch}).status_code == 200
        assert made.http.get("/v1/changes", params={"since": 1}).json()["next"] == 0


def turn(service: Running, user: str) -> None:
    """Let a user's rewards turn into their opposite."""
    rows = [
        {"user": user, "features": ARMS[i % 2]["features"], "reward": sign * (1 if i % 2 else -1)}
        for sign in (1, -1)
        for i in range(30)
    ]
    service.http.post("/v1/observations", json={"observations": rows})


def test_atlas_shows_models_moves_and_beliefs(tmp_path: Path) -> None:
    """Two tastes; then one user takes on the other: from, to, certainty, and a timeline."""
    with running(told(tmp_path, policy="atlas", options={})) as made:
        live(made, {"ana": 0, "bea": 0, "cleo": 1, "dora": 1}, rounds=30)
        models = made.http.get("/v1/models").json()
        assert sorted(one["users"] for one in models["models"]) == [2, 2]
        first, second = models["models"]
        assert (first["x"], first["y"]) != (second["x"], second["y"])
        home = {user: seen(made, user)["model"] for user in ("ana", "cleo")}
        assert set(home.values()) == {first["id"], second["id"]}
        live(made, {"ana": 1}, rounds=20)
        (change,) = made.http.get("/v1/changes").json()["changes"]
        assert (change["user"], change["before"], change["after"]) == (
            "ana",
            home["ana"],
            home["cleo"],
        )
        assert 0.9 < change["certainty"] <= 1
        ana = seen(made, "ana")
        assert ana["changes"] == [change]
        assert [one["id"] for one in ana["segments"]] == [home["ana"], home["cleo"]]
        assert sum(one["observations"] for one in ana["segments"]) == ana["rewards"] == 50
        assert ana["belief"][0]["model"] == home["cleo"] == ana["model"]
        assert made.decide("ana").json()["model"] == home["cleo"]
    with running(told(tmp_path, policy="atlas", options={})) as again:
        assert again.http.get("/v1/changes").json()["changes"] == [change]
        assert seen(again, "ana")["segments"] == ana["segments"]


def seen(service: Running, user: str) -> Any:
    return service.http.get(f"/v1/users/{user}").json()


def live(service: Running, tastes: dict[str, int], *, rounds: int) -> None:
    """Let users with one of two tastes live."""
    rng = np.random.default_rng(rounds)
    rows = []
    for _ in range(rounds):
        for user, taste in tastes.items():
            x = rng.normal(size=2)
            reward = float(x[taste] + 0.05 * rng.normal())
            rows.append({"user": user, "features": x.tolist(), "reward": reward})
    service.http.post("/v1/observations", json={"observations": rows})


def test_models_policy_and_activity_are_shown(service: Running) -> None:
    models = service.http.get("/v1/models").json()
    assert sum(one["users"] for one in models["models"]) + models["users_elsewhere"] > 0
    policy = service.http.get("/v1/policy").json()
    assert policy["policy"].startswith("DyClu(dim=2")
    assert policy["healthy"] is True
    activity = service.http.get("/v1/activity").json()
    assert sum(one["rewards"] for one in activity["minutes"]) == policy["rewards"]


def test_health_readiness_and_metrics_are_answered(service: Running) -> None:
    assert service.http.get("/healthz").json()["status"] == "ok"
    assert service.http.get("/readyz").status_code == 200
    assert service.decide().status_code == 200
    text = service.http.get("/metrics").text
    rewards = service.service.tenants["default"].state.total.rewards
    assert f'dyclu_rewards_total{{tenant="default"}} {rewards}\n' in text
    assert 'call="decide",status="200"' in text


def test_the_openapi_document_is_served_and_complete(service: Running) -> None:
    document = service.http.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    for call in CALLS:
        assert call.method.lower() in document["paths"][call.path]
    # Also what is no call of a tenant; only the page and the document itself are missing.
    others = set(re.findall(r'Route\("(/[^"]*)"', inspect.getsource(create_app)))
    assert "/v1/cluster" in others
    assert others - set(document["paths"]) == {"/openapi.json"}


def test_unknown_paths_and_methods_are_refused(service: Running) -> None:
    for path in ("/v1/nothing", "/v1/decisions/", "/../etc/passwd", "/page.css/../../secret"):
        assert service.http.get(path).status_code in (404, 405)
    response = service.http.get("/v1/decisions")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "LocalHost:8321", "[::1]:8321"])
def test_every_loopback_host_name_is_answered(service: Running, name: str) -> None:
    assert service.http.get("/v1/policy", headers={"Host": name}).status_code == 200


def test_pages_of_other_sites_are_refused_without_keys(service: Running) -> None:
    """A POST without a body needs no preflight, so a browser sends it; the page's own is served."""
    service.decide("ina", decision_id="from-a-page", active=False)
    path = "/v1/decisions/from-a-page/activate"
    for origin in ("https://evil.example", "http://127.0.0.1:1", "null", ""):
        refused = service.http.post(path, headers={"Origin": origin})
        assert refused.status_code == 403
        assert refused.json()["error"]["field"] == "origin"
    assert service.reward("from-a-page", 1.0).status_code == 409
    assert service.http.post(path, headers={"Origin": service.url}).status_code == 200
    assert service.reward("from-a-page", 1.0).status_code == 200


def test_no_answer_may_be_taken_for_another_type(service: Running) -> None:
    for path in ("/", "/v1/policy", "/metrics", "/openapi.json", "/healthz", "/readyz", "/nothing"):
        assert service.http.get(path).headers["x-content-type-options"] == "nosniff"


def test_other_host_names_are_refused_without_keys(service: Running) -> None:
    """A page of another site whose name resolves to this machine."""
    response = service.http.get("/v1/policy", headers={"Host": "evil.example"})
    assert response.status_code == 421
    document = service.http.get("/openapi.json").json()["paths"]
    for path in ("/v1/policy", "/v1/decisions", "/metrics"):
        for operation in document[path].values():
            assert "421" in operation["responses"]


def test_parallel_requests_with_one_id_make_one_decision(service: Running) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: service.decide("pia", decision_id="par"), range(24)))
        assert len({answer.text for answer in answers}) == 1
        values = list(pool.map(lambda i: service.reward("par", float(i % 3)), range(24)))
    statuses = [answer.status_code for answer in values]
    assert sorted(set(statuses)) == [200, 409]
    fresh = [one for one in values if one.status_code == 200 and not one.json()["repeated"]]
    assert len(fresh) == 1
    kept = fresh[0].json()["value"]
    assert all((int(i % 3) == kept) == (code == 200) for i, code in enumerate(statuses))


def test_decisions_made_before_a_restart_can_be_rewarded_after_it(tmp_path: Path) -> None:
    with running(told(tmp_path)) as first:
        for i in range(20):
            first.decide("ana", decision_id=f"d{i}")
            first.reward(f"d{i}", i / 20)
        waiting = first.decide("ana", decision_id="waiting").json()
    assert list((tmp_path / "default/snapshots").glob("*.state"))
    with running(told(tmp_path)) as second:
        assert second.decide("ana", decision_id="waiting").json() == waiting
        assert second.reward("waiting", 1.0).status_code == 200
        assert second.reward("d3", 3 / 20).json()["repeated"] is True
        assert second.http.get("/v1/policy").json()["version"] == 21


def test_shadow_mode_learns_from_the_callers_choices_and_reports_agreement(tmp_path: Path) -> None:
    with running(told(tmp_path, mode="shadow", epsilon=0.5)) as made:
        told_so = [made.decide("ana", chosen=f"a{i % 3}") for i in range(12)]
        answers = [one.json() for one in told_so]
        assert [one["chosen"] for one in answers] == [f"a{i % 3}" for i in range(12)]
        agreed = [one["agrees"] for one in answers]
        assert agreed == [one["chosen"] == one["arm"] for one in answers]
        policy = made.http.get("/v1/policy").json()
        assert policy["agreement"] == sum(agreed) / 12
        assert policy["mode"] == "shadow"
        known = made.decide("ana", chosen="a1", propensity=0.5, at=1.5e9).json()
        assert (known["chosen"], known["propensity"]) == ("a1", 0.5)
        for field, value in (("propensity", 0), ("propensity", 1.5), ("at", -1), ("at", "now")):
            wrong = made.decide("ana", chosen="a1", **{field: value})
            assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, field)
        body = json.dumps({"user": "ana", "arms": ARMS, "chosen": "a1", "at": 5})
        twice = made.http.post(
            "/v1/decisions",
            content=body.replace('"at": 5', '"at": 5, "at": 6'),
            headers={"Content-Type": "application/json"},
        )
        assert (twice.status_code, twice.json()["error"]["code"]) == (422, "repeated")
        refused = made.decide("ana")
        assert refused.status_code == 422
        assert refused.json()["error"]["field"] == "chosen"
        wrong = next(one for one in answers if not one["agrees"])
        assert made.reward(wrong["decision_id"], 1.0).status_code == 200
        learnt = made.service.tenants["default"].state.policy
        # The arm the caller chose is what was rewarded.
        x = np.array([ARMS[int(wrong["chosen"][1:])]["features"]])
        assert learnt.decide("ana", x).mean > 0.5


def test_a_second_service_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (
        running(told(tmp_path)),
        pytest.raises(dyclu.errors.FileError, match="another dyclu serve"),
        running(told(tmp_path)),
    ):
        pass


def test_decisions_expire_without_a_request(tmp_path: Path) -> None:
    with running(told(tmp_path, reward_wait=0.3, default_reward=0.0)) as made:
        made.decide("ana", decision_id="d1")
        wait_until(lambda: made.http.get("/v1/policy").json()["rewards"] == 1, seconds=5)
        assert made.reward("d1", 1.0).status_code == 410
        assert made.http.get("/v1/policy").json()["pending"] == 0


def test_an_erased_user_is_unknown_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    with running(told(tmp_path)) as made:
        for user in ("ana", "bea"):
            for i in range(10):
                made.decide(user, decision_id=f"{user}{i}")
                made.reward(f"{user}{i}", 1.0)
        answer = made.http.delete("/v1/users/ana")
        assert answer.status_code == 202
        assert answer.json()["erased_records"] == 20
        wait_until(lambda: not made.http.get("/v1/policy").json()["rebuilding"], seconds=5)
        assert made.http.get("/v1/users/ana").status_code == 404
        assert made.http.delete("/v1/users/ana").status_code == 404
        assert made.reward("ana3", 1.0).status_code == 404
        assert made.http.get("/v1/policy").json()["version"] == 10
        assert made.decide("ana").json()["mean"] == 0.0
    assert b"ana3" not in (tmp_path / "default/journal.db").read_bytes()


def test_overload_is_refused_with_retry_after(tmp_path: Path) -> None:
    """A queue of one line: whoever comes while the disk is busy is told to come again."""
    limits = {"default": {"dim": 2, "limits": {"max_queue": 1, "max_pending": 40}}}
    tenants = msgspec.convert(limits, dict[str, TenantSettings])
    given = msgspec.structs.replace(told(tmp_path), tenants=tenants)
    with running(given) as made, ThreadPoolExecutor(16) as pool:
        crowd = list(pool.map(lambda i: made.decide("ana", decision_id=f"d{i}"), range(100)))
        alone = [made.decide("ana", decision_id=f"d{i}") for i in range(100)]
    assert {answer.status_code for answer in crowd} == {200, 429}
    assert {answer.status_code for answer in alone} == {200, 429}
    assert any("(limit max_queue)" in answer.text for answer in crowd)
    for answer in crowd + alone:
        if answer.status_code != 200:
            assert int(answer.headers["retry-after"]) > 0
    accepted = {answer.json()["decision_id"] for answer in crowd + alone if answer.is_success}
    assert len(accepted) == 40


def test_a_client_that_disconnects_does_not_disturb_others(service: Running) -> None:
    body = json.dumps({"user": "leo", "arms": ARMS}).encode()
    host, port = service.url.removeprefix("http://").split(":")
    head = f"POST /v1/decisions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    for sent in (b"", body[:20], body):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + sent)
    assert service.decide("leo").status_code == 200
