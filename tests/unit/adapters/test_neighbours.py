"""Adapters, each against the real library: its own checks, and the same answers as without it."""

from __future__ import annotations

import copy
import re
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import mlflow
import numpy as np
import pandas as pd
import pytest
from coba import Environments, RandomLearner
from gymnasium.utils.env_checker import check_env
from river import bandit, stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

import dyclu
from dyclu.adapters import coba as from_coba
from dyclu.adapters import mlflow as to_mlflow
from dyclu.adapters import obp as from_obp
from dyclu.adapters import pandas as to_pandas
from dyclu.adapters.gymnasium import WorldEnv
from dyclu.adapters.river import RiverPolicy
from dyclu.adapters.sklearn import PolicyRegressor
from dyclu.errors import KindError, OptionError, ShapeError
from dyclu.evaluate import Comparison, compare
from dyclu.policies import names
from dyclu.sim import Population, Wild, play, summary

SMALL = Population(users=4, parameters=2, dim=3, arms=20, offered=5, rounds=20, shortest=20)


def rows(count: int = 60) -> tuple[Any, Any]:
    """Return rewards of two users with opposite tastes; the first column of X is the user."""
    rng = np.random.default_rng(0)
    user, x = rng.integers(2, size=count), rng.normal(size=(count, 3))
    y = np.where(user == 0, 1, -1) * x[:, 0] + 0.1 * rng.normal(size=count)
    return np.column_stack([user, x]), y


class TestSklearn:
    @pytest.mark.parametrize("name", names())
    def test_a_clone_has_the_same_options_and_has_learnt_nothing(self, name: str) -> None:
        X, y = rows(8)
        model = PolicyRegressor(name, user=0).fit(X, y)
        copied = clone(model)
        assert copied.get_params() == model.get_params()
        assert not hasattr(copied, "policy_")

    def test_it_learns_as_the_policy_does(self) -> None:
        X, y = rows()
        policy = dyclu.LinUCB(3, alpha=0.3)
        for row, reward in zip(X, y, strict=True):
            policy.learn(int(row[0]), row[1:], reward)
        model = PolicyRegressor("linucb", alpha=0.3).fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
        expected = [policy.decide(int(row[0]), [row[1:]]).mean for row in X]
        np.testing.assert_array_equal(model.predict(X), expected)
        assert model.score(X, y) > 0.9

    def test_a_frame_has_its_users_by_name(self) -> None:
        X, y = rows()
        frame = pd.DataFrame(X, columns=["who", "a", "b", "c"]).astype({"who": int})
        frame["who"] = "u" + frame["who"].astype(str)
        model = PolicyRegressor("linucb", user="who").fit(frame, y)
        assert sorted(model.policy_.users) == ["u0", "u1"]
        plain = PolicyRegressor("linucb").fit(X, y)
        np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
        with pytest.raises(KindError, match="pass a pandas frame"):
            model.predict(X)

    def test_a_search_over_options_finds_the_better_one(self) -> None:
        X, y = rows()
        search = GridSearchCV(
            PolicyRegressor("linucb", ridge=1.0), {"ridge": [0.1, 1e4]}, cv=TimeSeriesSplit(3)
        ).fit(X, y)
        assert search.best_params_ == {"ridge": 0.1}

    def test_wrong_columns_and_options_are_refused(self) -> None:
        X, y = rows(8)
        with pytest.raises(OptionError, match="expected the number of a column"):
            PolicyRegressor("linucb", user=9).fit(X, y)
        with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
            PolicyRegressor("linucb").set_params(colour=1)
        with pytest.raises(OptionError, match="no policy is called"):
            PolicyRegressor("lin").fit(X, y)


FILMS = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.5, 0.5]}


def film(arm: str, context: Any) -> list[float]:
    return FILMS[arm]


class TestRiver:
    def history(self) -> list[Any]:
        rng = np.random.default_rng(0)
        found = []
        for i in range(200):
            user, arm = ("ana", "ben")[i % 2], list(FILMS)[rng.integers(3)]
            reward = FILMS[arm][i % 2] + 0.1 * rng.normal()
            found.append((list(FILMS), {"user": user}, arm, reward))
        return found

    def test_river_evaluates_it_offline_and_it_learns_as_the_policy_does(self) -> None:
        wrapped = RiverPolicy(partial(dyclu.LinUCB, 2, alpha=0.1), film)
        total, used = bandit.evaluate_offline(wrapped, iter(self.history()), stats.Mean())
        policy = dyclu.LinUCB(2, alpha=0.1)
        kept = []
        for arms, context, arm, reward in self.history():
            decided = policy.decide(context["user"], list(FILMS.values())).arm
            if arms[decided] == arm:
                policy.learn(context["user"], FILMS[arm], reward)
                kept.append(reward)
        assert used == len(kept) > 20
        assert total.get() == pytest.approx(np.mean(kept))

    def test_a_clone_begins_anew_and_burn_in_is_rivers(self) -> None:
        wrapped = RiverPolicy(partial(dyclu.LinUCB, 2), film, burn_in=1)
        ana = {"user": "ana"}
        assert [wrapped.pull(list(FILMS), context=ana)] == ["a"]
        wrapped.update("a", ana, 1.0)
        assert wrapped.pull(list(FILMS), context=ana) == "b"
        fresh = wrapped.clone()
        assert (fresh.policy.users, wrapped.policy.users) == ((), ("ana",))
        assert fresh.policy is not wrapped.policy
        assert wrapped.ranking == ["a"]
        assert "100.00%" in repr(wrapped)

    def test_a_context_without_a_user_is_refused_and_changes_nothing(self) -> None:
        wrapped = RiverPolicy(partial(dyclu.LinUCB, 2), film, user="visitor")
        with pytest.raises(OptionError, match="the user as 'visitor'"):
            wrapped.update("a", {"user": "ana"}, 1.0)
        with pytest.raises(OptionError, match="the user as 'visitor'"):
            wrapped.pull(["a"], context=None)
        assert not wrapped.ranking


class TestGymnasium:
    @pytest.mark.parametrize("setting", [SMALL, Wild(users=4, dim=3, rounds=20, arms=20)])
    def test_gymnasiums_own_checks_pass(self, setting: Any) -> None:
        check_env(WorldEnv(setting), skip_render_check=True)

    def test_an_episode_is_the_same_as_playing_the_world(self) -> None:
        env, policy = WorldEnv(SMALL), dyclu.LinUCB(3)
        seen, info = env.reset(seed=7)
        rewards, regrets, done = [], [], False
        while not done:
            arm = policy.decide(int(seen["user"]), seen["arms"]).arm
            user, context = int(seen["user"]), seen["arms"][arm]
            seen, reward, terminated, done, info = env.step(arm)
            assert not terminated
            policy.learn(user, context, reward)
            rewards.append(reward)
            regrets.append(info["regret"])
        run = play(dyclu.LinUCB(3), SMALL.world(seed=7))
        np.testing.assert_array_equal(rewards, run.reward)
        np.testing.assert_array_equal(regrets, run.regret)
        with pytest.raises(OptionError, match="call reset"):
            env.step(0)

    def test_seeds_repeat_worlds_and_no_seed_draws_another(self) -> None:
        env = WorldEnv(SMALL)
        first = env.reset(seed=1)[0]["arms"]
        second = env.reset()[0]["arms"]
        np.testing.assert_array_equal(env.reset(seed=1)[0]["arms"], first)
        assert not np.array_equal(second, first)

    def test_wrong_actions_and_late_rewards_are_refused(self) -> None:
        env = WorldEnv(SMALL)
        env.reset(seed=1)
        with pytest.raises(OptionError, match="0 to 4"):
            env.step(5)
        with pytest.raises(OptionError, match="delay=0"):
            WorldEnv(Wild(delay=5))

    def test_wrappers_of_gymnasium_and_copies_work(self) -> None:
        env = gymnasium.wrappers.TimeLimit(WorldEnv(SMALL), max_episode_steps=3)
        env.reset(seed=1)
        assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
        other = copy.deepcopy(WorldEnv(SMALL))
        assert other.action_space.n == 5  # type: ignore[attr-defined]


class TestCoba:
    def test_a_logged_environment_of_coba_is_learnt_and_evaluated(self) -> None:
        logged = Environments.from_linear_synthetic(
            300, n_actions=3, n_context_features=2, n_action_features=2, seed=1
        ).logged(RandomLearner())
        interactions = list(logged[0].read())
        log = from_coba.log_of(
            interactions, vector=lambda context, action: [*action, 1.0], user=lambda context: "all"
        )
        chunk = next(iter(log.chunks()))
        assert (log.rows, log.dim) == (300, 3)
        np.testing.assert_array_equal(chunk.reward, [row["reward"] for row in interactions])
        assert chunk.propensity is not None
        np.testing.assert_allclose(chunk.propensity, 1 / 3)
        np.testing.assert_array_equal(
            chunk.contexts, [[*row["action"], 1.0] for row in interactions]
        )
        assert dyclu.LinUCB(3).fit(log).users == ("all",)

    def test_simulated_interactions_and_strange_actions_are_refused(self) -> None:
        simulated = list(Environments.from_linear_synthetic(2, n_actions=2)[0].read())
        vector, user = lambda context, action: [1.0], lambda context: "all"
        with pytest.raises(OptionError, match=r"logged\(learner\)"):
            from_coba.log_of(simulated, vector=vector, user=user)
        with pytest.raises(OptionError, match="no interactions"):
            from_coba.log_of([], vector=vector, user=user)
        row: Any = {"context": 1, "action": "c", "reward": 1.0, "actions": ["a", "b"]}
        with pytest.raises(OptionError, match="not among its actions"):
            from_coba.log_of([row], vector=vector, user=user)
        ragged: Any = {"context": 1, "action": "a", "reward": 1.0, "actions": ["a"]}
        with pytest.raises(ShapeError, match="same number of features"):
            from_coba.log_of(
                [ragged, ragged | {"context": 2}],
                vector=lambda context, action: [1.0] * context,
                user=user,
            )


FEEDBACK: Any = {
    "n_rounds": 4,
    "n_actions": 3,
    "action": np.array([2, 0, 1, 2]),
    "position": np.array([0, 1, 2, 0]),
    "reward": np.array([1, 0, 0, 1]),
    "pscore": np.array([0.5, 0.25, 0.25, 0.5]),
    "context": np.zeros((4, 5)),
    "action_context": np.arange(6.0).reshape(3, 2),
}


class TestOpenBandit:
    def test_feedback_becomes_a_log_with_its_propensities(self) -> None:
        log = from_obp.log_of(FEEDBACK, user=["a", "b", "a", "b"])
        chunk = next(iter(log.chunks()))
        np.testing.assert_array_equal(chunk.contexts, [[4, 5], [0, 1], [2, 3], [4, 5]])
        np.testing.assert_array_equal(chunk.propensity, FEEDBACK["pscore"])
        assert chunk.user.tolist() == ["a", "b", "a", "b"]
        assert set(next(iter(from_obp.log_of(FEEDBACK).chunks())).user) == {"all"}

    def test_incomplete_feedback_is_refused(self) -> None:
        with pytest.raises(OptionError, match="no action_context"):
            from_obp.log_of(FEEDBACK | {"action_context": None})
        with pytest.raises(ShapeError, match="each of the 4 actions"):
            from_obp.log_of(FEEDBACK | {"n_actions": 4})


@pytest.fixture(scope="module")
def found() -> Comparison:
    log = dyclu.Log.of_arrays(
        user=range(400),
        arms=np.tile(np.eye(2), (400, 1, 1)),
        chosen=[0, 0, 1, 1] * 100,
        reward=[0.0, 0.0, 0.0, 1.0] * 100,
        propensity=np.full(400, 0.5),
    )
    second = np.array([0.0, 1.0])
    return compare(log, {"second (best?)": lambda chunk: np.tile(second, (len(chunk), 1))})


class TestResults:
    def test_a_comparison_is_a_frame_with_one_row_per_method(self, found: Comparison) -> None:
        frame = to_pandas.comparison_frame(found).set_index(["policy", "method"])
        best = found["second (best?)"].best
        row = frame.loc[("second (best?)", "dr")]
        assert (row["value"], row["low"], row["high"]) == (
            best.value,
            best.interval.low,
            best.interval.high,
        )
        assert frame.loc[("the log", "mean"), "value"] == found.logged.value
        assert len(frame) == 1 + len(found["second (best?)"].estimates)

    def test_runs_summaries_and_models_are_frames(self) -> None:
        policy = dyclu.DyClu(3)
        run = play(policy, SMALL.world(seed=1))
        frame = to_pandas.run_frame(run)
        assert frame["regret"].sum() == pytest.approx(summary(run).regret)
        assert frame.groupby("user").size().tolist() == [20] * 4
        told = to_pandas.summary_frame({"DyClu": summary(run)})
        assert told.loc["DyClu", "regret"] == summary(run).regret
        models = to_pandas.model_frame(policy)
        assert models.index.tolist() == [model.id for model in policy.models]
        np.testing.assert_array_equal(models[["x0", "x1", "x2"]].iloc[0], policy.models[0].estimate)
        assert to_pandas.model_frame(dyclu.LinUCB(2)).empty

    def test_the_guide_logs_a_run_to_mlflow(
        self, found: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
        guide = (Path(__file__).parents[3] / "docs/guide/neighbours.md").read_text()
        (code,) = re.findall(r"^```python\n(import mlflow\n.*?)^```$", guide, re.DOTALL | re.M)
        policy = dyclu.LinUCB(3)
        run = play(policy, SMALL.world(seed=1))
        exec(code, {"policy": policy, "run": run, "summary": summary, "found": found})
        (stored,) = mlflow.search_runs(output_format="list")
        assert stored.data.params["policy"] == "LinUCB"
        assert stored.data.metrics["regret"] == summary(run).regret
        assert stored.data.tags["verdict"] == found.verdict

    def test_results_are_logged_to_mlflow(
        self, found: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
        policy = dyclu.LinUCB(3, alpha=0.3)
        run = play(policy, SMALL.world(seed=1))
        with mlflow.start_run() as active:
            to_mlflow.log_policy(policy)
            to_mlflow.log_summary(summary(run), prefix="linucb/")
            to_mlflow.log_comparison(found)
        stored = mlflow.get_run(active.info.run_id).data
        assert stored.params["policy"] == "LinUCB"
        assert stored.params["alpha"] == "0.3"
        assert stored.metrics["linucb/regret"] == summary(run).regret
        assert "linucb/median_delay" not in stored.metrics
        assert stored.metrics["second _best__/value"] == found["second (best?)"].best.value
        assert stored.tags["verdict"] == found.verdict
