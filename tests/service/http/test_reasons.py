"""Reasons: why an arm, what models like, and what a user moved from and to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyclu import Features
from dyclu.policy import Model
from dyclu.service.http.views.words import tastes_of
from tests.service.browser import browser
from tests.service.running import ARMS, Running, running, told, wait_until

GENRES = ("jazz", "rock", "folk", "pop")
SHOP = Features(
    arm={
        "genre": {"kind": "category", "values": GENRES, "other": False},
        "price": {"kind": "number", "mean": 0.0, "scale": 1.0},
    },
    intercept=False,
)
LIKES = {"cheap jazz": ("jazz", -0.5), "dear rock": ("rock", 0.5)}


def reward(taste: str, genre: str, price: float) -> float:
    liked, weight = LIKES[taste]
    return float(genre == liked) + weight * price


def live(service: Running, tastes: dict[str, str], rounds: int, *, seed: int) -> None:
    """Let users, with a taste each, reward what they see."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(rounds):
        for user, taste in tastes.items():
            genre, price = GENRES[rng.integers(4)], float(rng.normal())
            value = reward(taste, genre, price) + 0.05 * rng.normal()
            rows.append({"user": user, "arm": {"genre": genre, "price": price}, "reward": value})
    for start in range(0, len(rows), 500):
        body = {"observations": rows[start : start + 500]}
        assert service.http.post("/v1/observations", json=body).status_code == 200


def names(weights: list[dict[str, Any]]) -> set[str]:
    return {one["feature"] for one in weights}


def arms(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [
        {"id": f"a{place}", "genre": genre, "price": price}
        for place, (genre, price) in enumerate(rows)
    ]


def test_models_and_timelines_say_what_they_like(tmp_path: Path) -> None:
    half = {f"u{i}": list(LIKES)[i % 2] for i in range(10)}
    with running(told(tmp_path, dim=None, features=SHOP, policy="atlas", options={})) as made:
        live(made, half, 30, seed=0)
        found = made.http.get("/v1/models").json()
        assert found["named"] is True
        by_taste = {made.http.get(f"/v1/users/u{i}").json()["model"]: i for i in (0, 1)}
        models = {one["id"]: one for one in found["models"]}
        jazz, rock = (models[id] for id in sorted(by_taste, key=lambda id: by_taste[id]))
        assert names(jazz["likes"]) == names(rock["dislikes"]) == {"genre=jazz"}
        assert names(jazz["dislikes"]) == names(rock["likes"]) == {"genre=rock", "price"}
        assert (jazz["users"], rock["users"]) == (jazz["likely"], rock["likely"]) == (5, 5)
        # On average, over both halves; the prices that they like cancel out.
        assert names(found["likes"]) == {"genre=jazz", "genre=rock"}
        assert names(found["dislikes"]) == {"genre=folk", "genre=pop"}
        for model, taste in ((jazz, 0), (rock, 1)):
            users = [made.http.get(f"/v1/users/u{i}").json() for i in range(taste, 10, 2)]
            mean = np.average([one["mean_reward"] for one in users])
            assert model["mean_reward"] == pytest.approx(mean)
        told_models(made)
        live(made, {"u0": "dear rock"}, 40, seed=1)
        segments = made.http.get("/v1/users/u0").json()["segments"]
        assert [one["likes"][0] for one in segments] == ["genre=jazz", "genre=rock"]
        assert segments[0]["dislikes"]


def told_models(made: Running) -> None:
    """Expect the same weights as an average that is computed here."""
    policy = made.service.tenants["default"].state.policy
    sizes = np.array([model.size for model in policy.models])
    mean = sizes @ np.array([model.estimate for model in policy.models]) / sizes.sum()
    for model, view in zip(policy.models, sorted_models(made), strict=True):
        weights = dict(zip(SHOP.names, model.estimate - mean, strict=True))
        for one in (*view["likes"], *view["dislikes"]):
            assert one["weight"] == pytest.approx(weights[one["feature"]])


def sorted_models(made: Running) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = made.http.get("/v1/models").json()["models"]
    return sorted(models, key=lambda one: int(one["id"]))


def test_the_page_tells_tastes_and_moves_in_names(tmp_path: Path) -> None:
    half = {f"u{i}": list(LIKES)[i % 2] for i in range(10)}
    given = told(tmp_path, dim=None, features=SHOP, policy="atlas", options={})
    with running(given) as made, browser() as window:
        live(made, half, 30, seed=0)
        live(made, {"u0": "dear rock"}, 40, seed=1)
        window.open(made.url)
        wait_until(lambda: "genre=jazz" in window.text("#taste-rows"))
        assert "high price" in window.text("#taste-rows")
        assert window.text("#taste-common").startswith("On average: likes genre=")
        wait_until(lambda: "likes genre=rock" in window.text("#changes"))
        window.run("who.value = 'u0'; lookup.requestSubmit()")
        wait_until(lambda: window.text("#user-moved").startswith("Moved from model"))
        before, _, after = window.text("#user-moved").partition(" to ")
        assert "likes genre=jazz" in before
        assert after.startswith("model")
        # On a phone, what a model likes is one line of words, not a column of letters.
        window.phone(380, 800)
        heights = "[...document.querySelectorAll('#changes small')].map((one) => one.offsetHeight)"
        assert max(window.run(f"return {heights}")) < 25
        assert window.run("return document.documentElement.scrollWidth") <= 380
        assert window.complaints() == []


def test_users_in_doubt_are_counted_where_they_likely_are(tmp_path: Path) -> None:
    """Rare clicks: nobody is on a model for certain, and the page says so."""
    given = told(tmp_path, dim=None, features=SHOP, policy="atlas", options={})
    with running(given) as made, browser() as window:
        rng = np.random.default_rng(0)
        rows = [
            {
                "user": f"u{i % 40}",
                "arm": {"genre": GENRES[i % 4], "price": 0.0},
                "reward": float(rng.random() < 0.1),
            }
            for i in range(400)
        ]
        made.http.post("/v1/observations", json={"observations": rows})
        found = made.http.get("/v1/models").json()
        users = [made.http.get(f"/v1/users/u{i}").json()["model"] for i in range(40)]
        for one in found["models"]:
            assert (one["users"], one["likely"]) == (0, users.count(one["id"]))
        assert sum(one["likely"] for one in found["models"]) > 0
        window.open(made.url)
        wait_until(lambda: "certain or likely" in window.text("#map-note"))
        assert window.complaints() == []


def test_crosses_are_told_as_the_feature_that_they_share() -> None:
    country = {"kind": "category", "values": ["de", "fr"], "alone": False}
    genre = {"kind": "category", "values": ["jazz", "rock"], "other": False}
    shop = Features(
        arm={"genre": genre}, context={"country": country}, cross=[("country", "genre")]
    )
    estimate = dict.fromkeys(shop.names, 0.0)
    estimate |= {"genre=jazz": 0.5, "country=de & genre=jazz": 1.5, "country=fr & genre=jazz": 0.5}
    theta = np.array(list(estimate.values()))
    models = [Model(1, 5, theta, 1, 0, 0), Model(2, 5, -theta, 1, 0, 0)]
    (likes, dislikes), _ = tastes_of(models, shop)
    # 0.5 and, in both countries, 1; beyond that 0.5 more in one, and 0.5 less in the other.
    assert [(one.feature, one.weight) for one in likes] == [
        ("genre=jazz", 1.5),
        ("country=de & genre=jazz", 0.5),
    ]
    assert [(one.feature, one.weight) for one in dislikes] == [("country=fr & genre=jazz", -0.5)]


@pytest.mark.parametrize("policy", ["atlas", "linucb", "dyclu", "uniform"])
def test_an_explanation_agrees_with_the_decision(tmp_path: Path, policy: str) -> None:
    offered = arms(("jazz", 0.0), ("rock", 1.0), ("pop", -1.0))
    given = told(tmp_path, dim=None, features=SHOP, policy=policy, options={}, epsilon=0.3)
    with running(given) as made:
        live(made, {"u0": "cheap jazz"}, 40, seed=0)
        for number in range(20):
            asked = {"user": "u0", "arms": offered, "explain": True, "decision_id": f"d{number}"}
            answer = made.http.post("/v1/decisions", json=asked).json()
            why = answer["why"]
            scores = {one["id"]: one for one in why["arms"]}
            mine = scores[answer["arm"]]
            assert mine["chance"] == pytest.approx(answer["propensity"])
            assert sum(one["chance"] for one in scores.values()) == pytest.approx(1.0)
            assert mine["mean"] == pytest.approx(answer["mean"])
            assert mine["width"] == pytest.approx(answer["width"])
            if policy in ("atlas", "linucb"):
                best = max(scores, key=lambda id: scores[id]["score"])
                assert why.get("at_random", False) == (best != answer["arm"])
            assert made.http.post("/v1/decisions", json=asked).json() == answer
    # The explanation is part of the line, and so of every later answer.
    with running(given) as made:
        assert made.http.post("/v1/decisions", json=asked).json() == answer


def test_reasons_add_up_to_the_lead_over_the_other_arms(tmp_path: Path) -> None:
    offered = arms(("jazz", 0.0), ("rock", 1.0), ("pop", -1.0))
    with running(told(tmp_path, dim=None, features=SHOP)) as made:
        live(made, {"u0": "cheap jazz"}, 40, seed=0)
        answer = made.http.post(
            "/v1/decisions", json={"user": "u0", "arms": offered, "explain": True}
        ).json()
        means = {one["id"]: one["mean"] for one in answer["why"]["arms"]}
        others = [mean for id, mean in means.items() if id != answer["arm"]]
        lead = answer["mean"] - np.mean(others)
        reasons = answer["why"]["reasons"]
        assert reasons[0]["feature"] == "genre=jazz"
        assert sum(one["weight"] for one in reasons) == pytest.approx(lead)
        vectors = SHOP.vectors(offered)
        plain = [
            {"id": one["id"], "features": row.tolist()}
            for one, row in zip(offered, vectors, strict=True)
        ]
        same = made.http.post(
            "/v1/decisions", json={"user": "u0", "arms": plain, "explain": True}
        ).json()
        assert names(same["why"]["reasons"]) == names(reasons)


def test_without_names_features_are_numbered(tmp_path: Path) -> None:
    with running(told(tmp_path, options={"alpha": 0.01})) as made:
        row = {"user": "ana", "features": [0.0, 1.0], "reward": 1.0}
        made.http.post("/v1/observations", json={"observations": [row]})
        why = made.decide("ana", explain=True).json()["why"]
        assert [one["feature"] for one in why["reasons"]] == ["x1"]
        assert "why" not in made.decide("ana").json()
        many = [{"id": f"a{i}", "features": ARMS[0]["features"]} for i in range(101)]
        refused = made.decide("ana", arms=many, explain=True)
        assert refused.json()["error"]["field"] == "explain"


def test_reasons_in_names_do_not_count_the_position(tmp_path: Path) -> None:
    """The arms' own values of that column are replaced, so they are no reason for anything."""
    with running(
        told(tmp_path, dim=None, features=SHOP, position=SHOP.names.index("price"))
    ) as made:
        live(made, {"u0": "dear rock"}, 40, seed=0)
        body = {"user": "u0", "arms": arms(("jazz", 0.0), ("rock", 1.0)), "explain": True}
        answer = made.http.post("/v1/decisions", json=body).json()
        assert answer["arm"] == "a1"
        assert names(answer["why"]["reasons"]) == {"genre=jazz", "genre=rock"}
        means = {one["id"]: one["mean"] for one in answer["why"]["arms"]}
        lead = means["a1"] - means["a0"]
        assert sum(one["weight"] for one in answer["why"]["reasons"]) == pytest.approx(lead)
