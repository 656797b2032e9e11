"""Declared features: decisions and observations with columns, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dyclu import Features
from dyclu.errors import FileError, OptionError
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.lines import DecisionBody, EventBody
from dyclu.service.settings import needing_restart, settings
from tests.service.running import Running, running, told

PRICE = {"kind": "number", "mean": 10.0, "scale": 5.0}
GENRE = {"kind": "category", "values": ["jazz", "rock"]}
COUNTRY = {"kind": "category", "values": ["de", "fr"], "alone": False}
SHOP = Features(
    arm={"genre": GENRE, "price": PRICE},
    context={"country": COUNTRY},
    cross=[("country", "genre")],
)
JAZZ = {"id": "a1", "genre": "jazz", "price": 15}
ROCK = {"id": "a2", "genre": "rock", "price": 5}
FRANCE = {"country": "fr"}


def shop(data: Path, features: Any = SHOP, **flags: Any) -> Any:
    return told(data, dim=None, features=features, **flags)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(shop(tmp_path)) as made:
        yield made


def decide(service: Running, *arms: dict[str, Any], **more: Any) -> httpx.Response:
    body = {"user": "ana", "arms": list(arms), "context": FRANCE, **more}
    return service.http.post("/v1/decisions", json={k: v for k, v in body.items() if v != "none"})


def observe(service: Running, *rows: dict[str, Any]) -> httpx.Response:
    return service.http.post("/v1/observations", json={"observations": list(rows)})


def row(**more: Any) -> dict[str, Any]:
    arm = {"genre": "jazz", "price": 15}
    return {"user": "ana", "arm": arm, "context": FRANCE, "reward": 1.0, **more}


def bodies(tmp_path: Path) -> list[Any]:
    reader = JournalReader(tmp_path / "default/journal.db")
    found = [line.body for line in reader.after(0)]
    reader.close()
    return found


# --- decisions ----------------------------------------------------------------------------------


def test_the_journal_holds_the_vectors_of_named_arms(tmp_path: Path) -> None:
    with running(shop(tmp_path, log_arms=True)) as made:
        named = decide(made, JAZZ, ROCK)
        assert named.status_code == 200, named.text
        vectors = SHOP.vectors([JAZZ, ROCK], FRANCE).tolist()
        plain = [{"id": id, "features": v} for id, v in zip("xy", vectors, strict=True)]
        given = decide(made, *plain, context="none")
        assert given.json()["mean"] == named.json()["mean"]
    first, second = bodies(tmp_path)
    assert isinstance(first, DecisionBody)
    assert first.arms is not None
    assert [arm.features for arm in first.arms] == vectors
    assert first.x == second.x


def test_missing_and_unseen_values_have_their_stated_meaning(tmp_path: Path) -> None:
    odd = {"id": "a", "genre": "folk", "price": None}
    with running(shop(tmp_path)) as made:
        assert decide(made, odd, context={"country": None}).status_code == 200
    (body,) = bodies(tmp_path)
    x = dict(zip(SHOP.names, body.x, strict=True))
    assert {name for name, value in x.items() if value} == {"intercept", "genre=(other)"}


BAD = [
    ({**JAZZ, "colour": "red"}, FRANCE, "arms[1].colour", "'genre', 'price'"),
    ({"id": "a1", "genre": "jazz"}, FRANCE, "arms[1].price", "pass null"),
    ({**JAZZ, "price": "cheap"}, FRANCE, "arms[1].price", "'cheap' (str), expected a number"),
    ({**JAZZ, "price": 1e300}, FRANCE, "arms[1].price", "numbers up to"),
    ({**JAZZ, "genre": ["jazz", "rock"]}, FRANCE, "arms[1].genre", "genre"),
    ({**JAZZ, "genre": {"a": 1}}, FRANCE, "arms[1][...]", "got `object`"),
    ({**JAZZ, "genre": "x" * 501}, FRANCE, "arms[1][...]", "length <= 500"),
    ({**JAZZ, "id": "a 1"}, FRANCE, "arms[1].id", "letters from a to z, digits or"),
    ({"genre": "jazz", "price": 1}, FRANCE, "arms[1].id", "str"),
    ({**JAZZ, "id": "a2"}, FRANCE, "arms", "same id"),
    (JAZZ, {"country": "fr", "city": "Paris"}, "context.city", "'country'"),
    (JAZZ, {}, "context.country", "no column 'country'"),
    (JAZZ, {"country": ["fr"]}, "context.country", "country"),
    ({"id": "a1", "features": [0.0] * 10}, FRANCE, "arms[1].features", "some arms have columns"),
]


@pytest.mark.parametrize(("arm", "context", "field", "said"), BAD)
def test_bad_columns_are_refused_with_arm_and_column(
    service: Running, arm: dict[str, Any], context: dict[str, Any], field: str, said: str
) -> None:
    response = decide(service, ROCK, arm, context=context)
    assert response.status_code == 422, response.text
    error = response.json()["error"]
    assert error["field"] == field
    assert said in error["message"]
    assert service.http.get("/v1/policy").json()["decisions"] == 0


def test_vectors_with_a_context_are_refused(service: Running) -> None:
    arm = {"id": "a1", "features": [0.0] * SHOP.dim}
    error = decide(service, arm).json()["error"]
    assert error["field"] == "context"
    assert "all as vectors without a context" in error["message"]
    assert decide(service, {**arm, "price": 1}, context="none").json()["error"]["field"] == (
        "arms[0].price"
    )
    short = decide(service, {"id": "a", "features": [1.0]}, context="none").json()["error"]
    assert short["field"] == "arms[0].features"


def test_a_tenant_without_features_refuses_columns(tmp_path: Path) -> None:
    with running(told(tmp_path)) as made:
        assert decide(made, JAZZ).status_code == 422
        view = made.http.get("/v1/features").json()
    assert view == {"version": None, "names": ["x0", "x1"], "declaration": None, "loadings": None}


@pytest.mark.parametrize("genre", ['7" single', "rock\\", "jazz\n", 'a"b\\"c', "ü"])
def test_values_may_contain_any_character(service: Running, genre: str) -> None:
    assert decide(service, {**JAZZ, "genre": genre}).status_code == 200


def test_a_column_given_twice_is_refused(service: Running) -> None:
    for genre in ("jazz", '7\\" single'):
        body = (
            '{"user": "ana", "context": {"country": "fr"}, "arms": [{"id": "a", "price": 1, '
            f'"genre": "{genre}", "price": 2}}]}}'
        )
        response = service.http.post(
            "/v1/decisions", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 422
        assert response.json()["error"]["message"] == "price is given twice"


def test_a_batch_answers_each_named_decision(service: Running) -> None:
    one = {"user": "ana", "arms": [JAZZ, ROCK], "context": FRANCE, "rank": True}
    body = {"decisions": [one, {**one, "context": {"country": 3, "x": 1}}, {**one, "user": "ben"}]}
    results = service.http.post("/v1/decisions:batch", json=body).json()["results"]
    assert [one["status"] for one in results] == ["decided", "refused", "decided"]
    assert sorted(results[0]["rank"]) == ["a1", "a2"]
    assert results[1]["error"]["field"] == "context.x"


# --- observations -------------------------------------------------------------------------------


def test_observations_with_columns_are_learnt_once(tmp_path: Path) -> None:
    rows = [row(event_id=f"e{i}", at=1.7e9 + i, propensity=0.25) for i in range(120)]
    rows[7] = row(event_id="e7", arm={"genre": None, "price": None, "id": "a1"})
    with running(shop(tmp_path)) as made:
        assert not any(one["repeated"] for one in observe(made, *rows).json()["results"])
        # In other company, a row is still the same.
        again = observe(made, *rows[5:60]).json()["results"]
        assert all(one["repeated"] for one in again)
        assert made.http.get("/v1/policy").json()["rewards"] == 120
    first = bodies(tmp_path)[0]
    assert isinstance(first, EventBody)
    assert (first.at, first.propensity) == (1.7e9, 0.25)
    assert first.x == SHOP.vectors([JAZZ], FRANCE)[0].tolist()


def test_reduced_observations_are_the_same_in_any_batch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    log = [
        {"genre": str(rng.integers(40)), "price": float(rng.normal()), "country": "de"}
        for _ in range(300)
    ]
    wide = Features(
        arm={"genre": {"kind": "category", "most": 40}, "price": "number"},
        context={"country": "category"},
        reduce=7,
    ).fit(log)
    wide.save(tmp_path / "wide.features")
    rows = [
        {
            "user": "ana",
            "event_id": f"e{i}",
            "reward": 0.5,
            "arm": {"genre": one["genre"], "price": one["price"]},
            "context": {"country": "de"},
        }
        for i, one in enumerate(log[:100])
    ]
    with running(shop(tmp_path, str(tmp_path / "wide.features"))) as made:
        assert observe(made, *rows).status_code == 200
        for one in rows[::7]:
            assert observe(made, one).json()["results"][0]["status"] == "observed"


FAULTS = [
    ({"reward": 1e300}, "reward", "max_reward"),
    ({"propensity": 0}, "propensity", "> 0"),
    ({"propensity": 1.5}, "propensity", "<= 1"),
    ({"at": -1}, "at", ">= 0"),
    ({"at": 1.0}, "at", "expected observations in order of time"),
    ({"user": 3.5}, "user", "str"),
    ({"arm": {"genre": "jazz", "price": "x"}}, "arm.price", "observation 60, column 'price'"),
    ({"arm": {"genre": "jazz"}}, "arm.price", "no column 'price'"),
    ({"arm": {"genre": "jazz", "price": 1, "ID": "a"}}, "arm.ID", "not declared"),
    ({"context": {"country": "de", "id": "x"}}, "context.id", "not declared"),
    ({"context": {"country": "de", "city": "x"}}, "context.city", "not declared"),
    ({"features": [0.0] * 10}, "arm", "beside a vector"),
]


@pytest.mark.parametrize(("fault", "field", "said"), FAULTS)
def test_one_invalid_observation_refuses_all_of_them(
    service: Running, fault: dict[str, Any], field: str, said: str
) -> None:
    rows = [row(at=2.0) for _ in range(100)]
    rows[60] = {**rows[60], **fault}
    response = observe(service, *rows)
    assert response.status_code == 422, response.text
    error = response.json()["error"]
    assert error["field"] == f"observations[60].{field}"
    assert said in error["message"]
    assert service.http.get("/v1/policy").json()["rewards"] == 0


def test_an_id_used_for_another_observation_is_refused_alone(service: Running) -> None:
    observe(service, row(event_id="e"))
    results = observe(service, row(event_id="f"), row(event_id="e", reward=0.0)).json()["results"]
    assert [one["status"] for one in results] == ["observed", "refused"]
    assert results[1]["http"] == 409


# --- versions -----------------------------------------------------------------------------------


def test_other_features_than_those_of_the_journal_are_refused(tmp_path: Path) -> None:
    with running(shop(tmp_path)) as made:
        decide(made, JAZZ)
    wider = Features(
        arm={"genre": {**GENRE, "values": ["jazz", "folk"]}, "price": PRICE, "age": PRICE},
        context={"country": COUNTRY},
        cross=[("country", "genre")],
    )
    back = "set the features back, or begin a new journal"
    with pytest.raises(FileError, match=back) as error, running(shop(tmp_path, wider)):
        pass
    for said in ("'age' of the arm was added", "no longer has the value 'rock'", SHOP.version):
        assert said in str(error.value)
    # The same vectors under another declaration, from a file, and vectors without names.
    alike = SHOP.replaced(arm={"genre": {**GENRE, "most": 7}, "price": PRICE})
    assert alike != SHOP
    alike.save(tmp_path / "features.json")
    with running(shop(tmp_path, str(tmp_path / "features.json"))) as made:
        assert decide(made, JAZZ).status_code == 200
    with running(told(tmp_path, dim=SHOP.dim)) as made:
        assert made.http.get("/v1/policy").json()["decisions"] == 2
    with (
        pytest.raises(FileError, match="'age' of the arm was added"),
        running(shop(tmp_path, wider)),
    ):
        pass


def test_features_can_be_declared_for_a_journal_of_vectors(tmp_path: Path) -> None:
    with running(told(tmp_path, dim=SHOP.dim)) as made:
        arm = {"id": "a", "features": [1.0] * SHOP.dim}
        made.http.post("/v1/decisions", json={"user": "ana", "arms": [arm]})
    with running(shop(tmp_path)) as made:
        assert decide(made, JAZZ).status_code == 200
        assert made.http.get("/v1/policy").json()["decisions"] == 2


def test_a_reload_says_which_features_are_incompatible(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = shop(tmp_path)
    other = shop(tmp_path, SHOP.replaced(intercept=True, cross=()))
    assert any("cross was" in why for why in needing_restart(given, other))
    alike = shop(tmp_path, SHOP.replaced(arm={"genre": {**GENRE, "most": 7}, "price": PRICE}))
    assert needing_restart(given, alike) == []
    with running(given) as made, caplog.at_level(logging.ERROR):
        with pytest.raises(OptionError, match="cross was"):
            made.service.reload(other)
        made.service.reload(alike)
        version = made.http.get("/v1/features").json()["version"]
        assert version == alike.tenants["default"].features.version != SHOP.version


TOML = """
[tenants.default.features]
intercept = true
[tenants.default.features.arm]
genre = {kind = "category", values = ["jazz", "rock"]}
price = {kind = "number", mean = 10.0, scale = 5.0}
"""


def test_features_are_declared_in_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "dyclu.toml"
    file.write_text(TOML)
    tenant = settings({}, environment={}, file=file).tenants["default"]
    assert tenant.dim == 5
    assert tenant.features == Features(arm={"genre": GENRE, "price": PRICE})


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"arm": {"price": "number"}}, "features are not fitted: columns 'price'"),
        ({"arm": {"price": "nummer"}}, "'number'"),
        ({"arms": {}}, "features have no 'arms'"),
        ("nowhere.dyclu", "cannot read nowhere.dyclu"),
        ({"arm": {"features": PRICE}}, "rename it"),
        (7, "features"),
    ],
)
def test_bad_declarations_are_refused_at_the_start(
    table: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="features") as error:
        settings({"features": table}, environment={})
    assert said in str(error.value)


def test_dim_must_be_that_of_the_features() -> None:
    with pytest.raises(OptionError, match="leave dim out"):
        settings({"features": SHOP, "dim": 3}, environment={})
    with pytest.raises(OptionError, match="dim is missing"):
        settings({"policy": "linucb"}, environment={})


def test_clients_can_make_the_same_features(service: Running) -> None:
    view = service.http.get("/v1/features").json()
    assert Features(**view["declaration"], loadings=view["loadings"]) == SHOP
    assert view["names"] == list(SHOP.names)


def test_named_arms_fill_slots_as_their_vectors_do(service: Running) -> None:
    body = {"user": "slots", "context": FRANCE, "arms": [JAZZ, ROCK], "slots": 2}
    named = service.http.post("/v1/decisions", json=body | {"decision_id": "slots-1"}).json()
    assert sorted(one["arm"] for one in named["slots"]) == ["a1", "a2"]
    path = "/v1/decisions/slots-1/reward"
    answer = service.http.post(path, json={"values": {"1": 1.0, "2": 0.0}})
    assert answer.json()["values"] == {"1": 1.0, "2": 0.0}
    assert service.http.get("/v1/users/slots").json()["rewards"] == 2
    refused = service.http.post("/v1/decisions", json=body | {"slots": 3}).json()["error"]
    assert refused["field"] == "slots"
