"""Slots, rewards that settle, and the control group, over HTTP and on the page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dyclu.client import Client, ServiceError
from tests.service.browser import browser
from tests.service.running import ARMS, Running, running, told, wait_until


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(told(tmp_path_factory.mktemp("rewards"))) as made:
        made.decide("ana", decision_id="page", slots=2)
        yield made


def reward(service: Running, body: bytes, id: str = "page") -> Any:
    headers = {"Content-Type": "application/json"}
    path = f"/v1/decisions/{id}/reward"
    return service.http.post(path, content=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"values": {"1": 0, "1": 1}}', "1"),
        (b'{"values": {"0": 1}}', "values"),
        (b'{"values": {"33": 1}}', "values"),
        (b'{"values": {"3": 1, "1": 0}}', "values[3]"),
        (b'{"values": {"x": 1}}', "values"),
        (b'{"values": {"01": 1}}', "values"),
        (b'{"values": {"1.0": 1}}', "values"),
        (b'{"values": {}}', "values"),
        (b'{"values": [1]}', "values"),
        (b'{"values": {"1": NaN}}', "body"),
        (b'{"values": {"1": 1e7, "2": 0}}', "values[1]"),
        (b'{"values": {"1": 1}, "value": 1}', "value"),
        (b'{"values": {"1": 1}, "slot": 1}', "slot"),
        (b'{"slot": 1}', "value"),
        (b'{"value": 1}', "slot"),
        (b'{"value": 1, "slot": 0}', "slot"),
        (b'{"value": 1, "slot": 1.5}', "slot"),
        (b'{"value": 1, "slot": true}', "slot"),
        (b'{"value": 1, "slot": 3}', "slot"),
        (b'{"value": 1, "slot": 1, "slot": 2}', "slot"),
        (b'{"value": 1, "slot": 1, "reward_id": "a b"}', "reward_id"),
        (b'{"reward_id": "a"}', "value"),
    ],
)
def test_invalid_rewards_of_slots_are_refused(service: Running, body: bytes, field: str) -> None:
    answer = reward(service, body)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["error"]["field"].startswith(field), answer.text
    assert service.http.get("/v1/policy").json()["rewards"] == 0


@pytest.mark.parametrize("slots", [0, -1, 4, 33, 1.5, "2", True, None])
def test_invalid_numbers_of_slots_are_refused(service: Running, slots: Any) -> None:
    answer = service.decide("ana", slots=slots)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "slots"


def test_a_field_that_is_given_twice_beside_a_list_of_choices_is_refused(tmp_path: Path) -> None:
    with running(told(tmp_path, mode="shadow")) as made:
        assert made.decide("ana", slots=2, chosen=["a0", "a1"]).status_code == 200
        assert made.decide("ana", chosen="a0").status_code == 200
        body = '{"user": "u", "arms": [{"id": "a", "features": [1, 0]}], "chosen": ["a"], '
        answer = made.http.post(
            "/v1/decisions",
            content=(body + '"slots": 1, "slots": 1}').encode(),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code == 422
        assert answer.json()["error"]["code"] == "repeated"


def test_rewards_of_slots_in_a_batch_are_answered_one_by_one(service: Running) -> None:
    service.decide("bea", decision_id="b-1", slots=3)
    service.decide("bea", decision_id="b-2")
    rows = [
        {"decision_id": "b-1", "values": {"1": 0, "3": 1}},
        {"decision_id": "b-1", "slot": 2, "value": 0.5},
        {"decision_id": "b-1", "slot": 2, "value": 0.6},
        {"decision_id": "b-1", "value": 1},
        {"decision_id": "b-2", "value": 1},
    ]
    found = service.http.post("/v1/rewards:batch", json={"rewards": rows}).json()["results"]
    assert [one.get("http", 200) for one in found] == [200, 200, 409, 422, 200]
    assert service.http.get("/v1/users/bea").json()["rewards"] == 4


def test_the_client_rewards_slots_and_adds_up(tmp_path: Path) -> None:
    arms: dict[str, Any] = {str(arm["id"]): arm["features"] for arm in ARMS}
    flags = {"learn": "settled", "reward": "sum", "reward_wait": 1.0, "default_reward": 0.0}
    with running(told(tmp_path, **flags)) as made, Client(made.url) as client:
        choice = client.decide("ana", arms, slots=2)
        assert len(choice.more["slots"]) == 2
        client.reward(choice.decision_id, 1.0, slot=1)
        client.reward(choice.decision_id, 2.0, slot=1, reward_id="again")
        assert client.reward(choice.decision_id, 2.0, slot=1, reward_id="again")["repeated"]
        client.reward(choice.decision_id, values={1: 0.5, 2: 4.0})
        wait_until(lambda: client.policy()["rewards"] == 2, seconds=10)
        assert client.user("ana")["mean_reward"] == (3.5 + 4.0) / 2
        with pytest.raises(ServiceError, match="expired"):
            client.reward(choice.decision_id, 1.0, slot=2)
        assert client.lift()["verdict"].startswith("There is no control group")


def test_a_reward_that_could_count_twice_is_refused_without_an_id(tmp_path: Path) -> None:
    with running(told(tmp_path, learn="settled", reward="sum")) as made:
        made.decide("ana", decision_id="d")
        answer = made.reward("d", 1.0)
        assert answer.status_code == 422
        assert answer.json()["error"]["field"] == "reward_id"


def serve_both_groups(service: Running, users: int) -> None:
    """Arm a0 earns 1, all others nothing; the policy's users get it more often."""
    for turn in range(3):
        for start in range(0, users, 100):
            wanted = [
                {"user": f"u{i}", "decision_id": f"d{turn}-{i}", "arms": ARMS}
                for i in range(start, start + 100)
            ]
            made = service.http.post("/v1/decisions:batch", json={"decisions": wanted}).json()
            rows = [
                {"decision_id": one["decision_id"], "value": float(one["arm"] == "a0")}
                for one in made["results"]
            ]
            service.http.post("/v1/rewards:batch", json={"rewards": rows})


def test_the_lift_is_served_and_shown_on_the_page(tmp_path: Path) -> None:
    flags = {"control": 0.4, "options": {"alpha": 0.1, "shared": True}}
    with running(told(tmp_path, **flags)) as made, browser() as window:
        serve_both_groups(made, 600)
        found = made.http.get("/v1/lift").json()
        assert found["share"] == 0.4
        assert found["treated"]["decisions"] + found["control"]["decisions"] == 1800
        assert abs(found["control"]["mean"] - 1 / 3) < 0.1
        assert found["low"] > 0
        assert found["verdict"].startswith("The policy earns more than the baseline")
        assert found["days"][-1]["low"] == found["low"]
        window.open(made.url)
        wait_until(lambda: window.text("#lift-verdict") == found["verdict"], seconds=10)
        rows = window.run(
            "return [...document.querySelectorAll('#lift-days tr')].map((row) => row.innerText)"
        )
        assert rows[0].startswith("all")
        assert abs(found["since"] - time.time()) < 600
        assert "Decisions since" in window.text("#lift-note")
        assert rows[1].startswith(found["days"][-1]["day"])
        assert window.complaints() == []


def test_without_a_control_group_the_page_shows_no_lift(service: Running) -> None:
    with browser() as window:
        window.open(service.url)
        wait_until(lambda: window.text("#users") != "–", seconds=10)
        wait_until(lambda: window.text("#memory") != "–", seconds=10)
        assert window.run("return document.getElementById('lift').hidden") is True


def test_a_tenant_that_only_gets_clicks_is_warned_once_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(told(tmp_path, reward_wait=0.3)) as made:
        for turn in range(2):
            wanted = [{"user": f"u{i}", "arms": ARMS} for i in range(100)]
            made.http.post("/v1/decisions:batch", json={"decisions": wanted})
            expected = 100 * (turn + 1)
            wait_until(
                lambda n=expected: any(
                    one.startswith(f"{n} arms")
                    for one in made.http.get("/v1/policy").json()["warnings"]
                )
            )
        wait_until(lambda: any("from clicks alone" in one for one in caplog.messages))
    assert sum("from clicks alone" in one for one in caplog.messages) == 1
