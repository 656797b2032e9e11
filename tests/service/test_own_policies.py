"""A policy of the operator's own, ``module:Class``: served if listed, never imported if not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dyclu
from dyclu import cli
from dyclu.client import Client
from dyclu.errors import ForeignFile, OptionError
from dyclu.service.disk.provenance import difference, made_by
from dyclu.service.http.local import in_thread, serving
from dyclu.service.settings import described, settings
from dyclu.service.spec import PolicySpec

MODULE = '''
import dyclu
from dyclu.policies.common.plain import WithoutUsers
from dyclu.storage import Saved, read, write

class Last(WithoutUsers):
    """Chooses the first arm; remembers the last reward."""

    def __init__(self, dim, *, start=0.0):
        self.dim, self.start, self.last = dim, start, start

    def decide(self, user, arms):
        return dyclu.Decision(user, 0, self.last, 0.0)

    def learn(self, user, context, reward):
        self.last = reward
        return dyclu.Outcome(user)

    def save(self, path):
        options = {"dim": self.dim, "start": self.start}
        write(path, Saved("Last", options, {"last": self.last}, {}))

    @classmethod
    def load(cls, path):
        saved = read(path)
        policy = cls(**saved.options)
        policy.last = saved.state["last"]
        return policy
'''
ARMS = {"red": [1.0, 0.0], "blue": [0.0, 1.0]}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write a module with an own policy; return its name, another one for each test."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return name


def told(module: str, **more: Any) -> dict[str, Any]:
    name = f"{module}:Last"
    return {"policy": name, "own_policies": [name], "dim": 2, "options": {"start": 0.5}} | more


def test_the_settings_that_a_start_prints_name_own_policies(module: str) -> None:
    lines = described(settings(told(module), environment={}))
    assert f"own_policies = {module}:Last" in lines


def test_a_listed_policy_decides_learns_and_continues_after_a_restart(
    module: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with serving(data, **told(module)) as url, Client(url) as client:
        first = client.decide("ana", ARMS)
        assert (first.arm, first.mean) == ("red", 0.5)
        client.reward(first.decision_id, 0.25)
        assert client.decide("ana", ARMS).mean == 0.25
    snapshots = list((data / "default" / "snapshots").glob("*.policy"))
    assert snapshots  # it was saved at the stop, by the class's own `save`
    assert isinstance(dyclu.load(snapshots[0], own=f"{module}:Last"), dyclu.Policy)
    given = settings({"port": 0, "data": str(data)} | told(module), environment={})
    with in_thread(given) as (url, service), Client(url) as client:
        assert client.decide("ben", ARMS).mean == 0.25
        tenant = service.tenants["default"]
        assert tenant.snapshots.used > 0
        assert not tenant.snapshots.complaints


def test_a_policy_that_is_not_listed_is_refused_and_not_imported(module: str) -> None:
    for listed in ([], ["another_module:Last"]):
        with pytest.raises(OptionError, match=rf'own_policies = \["{module}:Last"\]'):
            settings(told(module, own_policies=listed), environment={})
    assert module not in sys.modules


def test_the_list_can_be_a_variable(module: str) -> None:
    name = f"{module}:Last"
    variables = {"DYCLU_OWN_POLICIES": f"a.b:C, {name}", "DYCLU_POLICY": name, "DYCLU_DIM": "2"}
    found = settings({}, environment=variables)
    assert found.own_policies == ["a.b:C", name]
    assert found.tenants["default"].spec().make().dim == 2


@pytest.mark.parametrize("name", ["os.system", "a b:C", ":C", "a:", "a:b.c", "../a:C"])
def test_names_that_are_no_class_of_a_module_are_refused(name: str) -> None:
    with pytest.raises(OptionError):
        settings({"dim": 2, "policy": name, "own_policies": [name]}, environment={})


def test_what_is_no_policy_or_has_other_options_is_refused(module: str) -> None:
    listed = ["collections:OrderedDict", "no_such_module:Policy", f"{module}:First"]
    for name in listed:
        with pytest.raises(OptionError, match=name.partition(":")[0]):
            settings({"dim": 2, "policy": name, "own_policies": listed}, environment={})
    with pytest.raises(OptionError, match="stop"):
        settings(told(module, options={"stop": 1}), environment={})


def test_a_request_cannot_name_a_policy(module: str, tmp_path: Path) -> None:
    import httpx

    with serving(tmp_path / "data", dim=2, policy="linucb") as url:
        body = {
            "user": "ana",
            "arms": [{"id": "red", "features": [1, 0]}],
            "policy": f"{module}:Last",
        }
        answer = httpx.post(f"{url}/v1/decisions", json=body)
    assert answer.status_code == 422, answer.text
    assert module not in sys.modules


def test_edited_code_does_not_use_snapshots_of_the_code_before(module: str, tmp_path: Path) -> None:
    name = f"{module}:Last"
    before = made_by(name)
    assert difference(before, name) == ""
    assert "policy" not in made_by()
    (tmp_path / f"{module}.py").write_text(MODULE + "# edited\n")
    made_by.cache_clear()
    assert difference(before, name).startswith(f"made with policy {before['policy']}")
    made_by.cache_clear()


def test_a_file_of_an_own_policy_is_read_only_by_a_class_that_is_named(
    module: str, tmp_path: Path
) -> None:
    path = tmp_path / "last.dyclu"
    policy = PolicySpec(f"{module}:Last", 2, {"start": 0.5}).make()
    policy.save(path)
    with pytest.raises(ForeignFile, match='own="module:Class"'):
        dyclu.load(path)
    with pytest.raises(ForeignFile, match="kind 'Last'"):
        dyclu.load(path, own=dyclu.LinUCB)
    with pytest.raises(OptionError, match="expected a class"):
        dyclu.load(path, own=[3])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="neither restore"):
        dyclu.load(path, own=type("Last", (), {}))
    ways: list[Any] = [type(policy), f"{module}:Last", [dyclu.LinUCB, type(policy)]]
    for own in ways:
        assert dyclu.load(path, own=own).dim == 2


def test_replay_imports_an_own_policy_only_if_it_is_named(module: str, tmp_path: Path) -> None:
    with serving(tmp_path / "data", **told(module)) as url, Client(url) as client:
        made = client.decide("ana", ARMS)
        client.reward(made.decision_id, 1.0)
    journal = str(tmp_path / "data" / "default" / "journal.db")
    refused = CliRunner().invoke(cli.app, ["replay", journal])
    assert refused.exit_code != 0
    assert f"--policy {module}:Last" in " ".join((refused.output + str(refused.exception)).split())
    done = CliRunner().invoke(cli.app, ["replay", journal, "--policy", f"{module}:Last", "--json"])
    assert done.exit_code == 0, done.output
