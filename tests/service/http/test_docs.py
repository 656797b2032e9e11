"""The service's documents: every example runs, every table is the code's."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import sqlite3
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dyclu.data import Features
from dyclu.service.http.calls import CALLS
from dyclu.service.http.keys import digest, new_key
from dyclu.service.http.views.openapi import REFUSALS
from dyclu.service.schema import Health
from dyclu.service.settings import Limits, Settings, TenantSettings, as_setting
from tests.service.running import running, told, wait_until

DOCS = Path(__file__).parents[3] / "docs"
SERVICE = (DOCS / "service.md").read_text()
DEPLOYMENT = (DOCS / "deployment.md").read_text()
FIVE_MINUTES = (DOCS / "five-minutes.md").read_text()


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def examples(page: str = SERVICE) -> list[tuple[str, str]]:
    """Every curl command of a page, and what it answers."""
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, answer = part.partition("\n")
            while command.count("'") % 2:
                line, _, answer = answer.partition("\n")
                command += f"\n{line}"
            if command.startswith("curl"):
                found.append((command, re.sub(r"\n +", "", answer)))  # long answers are wrapped
    return found


@pytest.mark.parametrize("page", [SERVICE, FIVE_MINUTES], ids=["service", "five-minutes"])
def test_every_example_of_the_docs_gives_its_shown_answer(tmp_path: Path, page: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    checker = doctest.OutputChecker()
    with running(told(tmp_path, policy="atlas", options={})) as service:
        for command, expected in examples(page):
            here = command.replace("http://127.0.0.1:8321", service.url)
            done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, check=True)
            got = done.stdout.rstrip("\n") + "\n"
            assert checker.check_output(expected, got, doctest.ELLIPSIS), f"{command}\n{got}"
        wait_until(lambda: not service.http.get("/v1/policy").json()["rebuilding"])


def test_every_call_has_an_example() -> None:
    commands = [command for command, _ in examples()]
    for call in CALLS:
        path = re.escape(call.path).replace(r"\{id\}", r"[\w-]+") + r"(?=[\s'?]|$)"
        assert any(re.search(path, command) for command in commands), call.path
    for path in ("/healthz", "/readyz", "/metrics"):
        assert any(path in command for command in commands)


def table(name: str) -> list[str]:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", SERVICE, flags=re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def defaults(kind: Any, *, without: tuple[str, ...] = ()) -> list[str]:
    rows = []
    for field in msgspec.structs.fields(kind):
        if field.name in without:
            continue
        value = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            value = field.default_factory()
        shown = "must be given" if value is msgspec.NODEFAULT else f"`{value}`"
        rows.append(f"| `{field.name}` | {shown} |")
    return rows


def test_tables_of_the_docs_equal_those_of_the_code() -> None:
    assert table("calls") == [
        f"| `{call.method} {call.path}` | {call.summary} | "
        f"{'read-write' if call.writes else 'read-only'} |"
        for call in CALLS
    ]
    assert table("refusals") == [f"| {status} | {said} |" for status, said in REFUSALS.items()]
    assert table("service") == defaults(Settings, without=("tenants",))
    assert table("tenant") == defaults(TenantSettings, without=("limits", "keys"))
    assert table("limits") == defaults(Limits)


def test_settings_shown_in_the_docs_are_valid() -> None:
    (text,) = blocks(SERVICE, "toml")
    with pytest.raises(msgspec.ValidationError, match="example of the documentation"):
        msgspec.convert(tomllib.loads(text), Settings, dec_hook=as_setting)
    own = text.replace(64 * "0", digest(new_key()).removeprefix("sha256:"))
    assert msgspec.convert(tomllib.loads(own), Settings, dec_hook=as_setting).keyed


def test_every_metric_named_in_the_docs_exists(tmp_path: Path) -> None:
    with running(told(tmp_path)) as service:
        service.decide("ana")
        text = service.http.get("/metrics").text
    for name in re.findall(r"dyclu_[a-z_]+", DEPLOYMENT):
        assert f"# TYPE {name} " in text, name


def test_the_python_client_of_the_docs_decides_and_rewards(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    with running(told(tmp_path)) as service:
        for code, rewards in zip(blocks(SERVICE, "python"), (1, 3), strict=True):
            here = code.replace("http://127.0.0.1:8321", service.url)
            assert here != code
            exec(here, names)
            assert service.http.get("/v1/policy").json()["rewards"] == rewards


def test_the_bodies_shown_in_the_docs_are_taken_and_given(tmp_path: Path) -> None:
    """A decision with columns, for a shop that declares them; and how far a start is."""
    asked, starting = blocks(SERVICE, "json")
    features = Features(
        context={"country": {"kind": "category", "values": ["fr", "de"]}},
        arm={
            "category": {"kind": "category", "values": ["jazz", "pop"]},
            "price": {"kind": "number", "mean": 5.0, "scale": 3.0},
        },
    )
    features.save(tmp_path / "features")
    rules = {"features": str(tmp_path / "features"), "dim": 0}
    with running(told(tmp_path / "data", **rules)) as service:
        answer = service.http.post("/v1/decisions", json=json.loads(asked))
    assert answer.status_code == 200, answer.text
    assert answer.json()["arm"] in ("a1", "a2")
    shown = json.loads(starting)
    assert msgspec.to_builtins(msgspec.convert(shown, Health, strict=True)) == shown


def test_a_backup_made_while_the_service_runs_can_be_restored(tmp_path: Path) -> None:
    (code,) = blocks(DEPLOYMENT, "python")
    with running(told(tmp_path / "a")) as service:
        for i in range(10):
            service.decide("ana", decision_id=f"d{i}")
            service.reward(f"d{i}", 0.5)
        target = tmp_path / "b/default/journal.db"
        target.parent.mkdir(parents=True)
        here = code.replace("/var/lib/dyclu", str(tmp_path / "a")).replace(
            '"backup.db"', repr(str(target))
        )
        exec(here, {})
        service.decide("ana", decision_id="later")
    with running(told(tmp_path / "b")) as restored:
        assert restored.http.get("/v1/policy").json()["rewards"] == 10
        assert restored.reward("d3", 0.5).json()["repeated"] is True
        assert restored.reward("later", 0.5).status_code == 404
    assert sqlite3.connect(target).execute("PRAGMA integrity_check").fetchone() == ("ok",)
