"""The TypeScript client: its types are those of the service, and its own tests pass."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.packages import CLIENT, ROOT, TYPES, build, types
from tests.clients.serving import command, free_port
from tests.service.running import process


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("typescript"))


def test_the_types_are_those_of_the_openapi_document() -> None:
    assert TYPES.read_text() == types(), "run: python -m tests.clients.packages"


def test_every_call_of_the_service_is_in_the_client() -> None:
    from dyclu.service.http.calls import CALLS

    source = (CLIENT / "src" / "client.ts").read_text()
    for call in CALLS:
        if call.name == "activity":  # what the service's own page draws
            continue
        path = re.escape(call.path).replace(r"\{id\}", r"\$\{encodeURIComponent\(\w+\)\}")
        assert re.search(rf"[\"`]{path}[\"`?]", source), call.path


def test_the_client_talks_to_a_running_service_that_is_killed_and_restarted(
    built: Path, tmp_path: Path
) -> None:
    own = command(tmp_path / "killed", free_port())
    with process(tmp_path / "data", "--dim=2", "--policy=linucb", "--options=alpha=0.5") as (
        _,
        url,
    ):
        done = subprocess.run(
            ["node", "--test", "dist/test/client.test.js", "dist/test/crash.test.js"],
            cwd=built,
            env={**os.environ, "DYCLU_URL": url, "DYCLU_SERVE": json.dumps(own)},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^# pass 20$", done.stdout, flags=re.MULTILINE), done.stdout


def test_the_examples_in_curl_python_and_typescript_print_the_same(
    built: Path, tmp_path: Path
) -> None:
    folder = ROOT / "deploy" / "examples"
    commands = {
        "curl": ["bash", str(folder / "example.sh")],
        "python": [sys.executable, str(folder / "example.py")],
        "typescript": ["node", str(built / "dist" / "examples" / "example.js")],
    }
    printed = {}
    with process(tmp_path / "data", "--dim=2", "--policy=linucb", "--options=alpha=0.5") as (
        _,
        url,
    ):
        for language, words in commands.items():
            environment = {**os.environ, "DYCLU_URL": url, "DYCLU_USER": f"ana-{language}"}
            done = subprocess.run(words, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            printed[language] = done.stdout
    assert printed["curl"] == printed["python"] == printed["typescript"]
    assert printed["curl"] == "show red\nlearnt\nlearnt before\n"
