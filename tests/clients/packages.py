"""The TypeScript client, built in a folder of its own; its packages come from npm.

``python -m tests.clients.packages`` writes the types of the client anew, from the service's types.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dyclu.service.http.views.openapi import document

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "typescript"
TYPES = CLIENT / "src" / "schema.ts"
EXAMPLE = ROOT / "deploy" / "examples" / "example.ts"

OFFLINE = re.compile("ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|network")
"""What npm says if it cannot reach its registry."""


def install() -> Path:
    """Return the folder of npm's packages; they are installed if the lock file has changed."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are needed to test the TypeScript client")
    packages = CLIENT / "node_modules"
    marker = packages / ".installed-for-lock"
    wanted = (CLIENT / "package-lock.json").read_text()
    with (CLIENT / ".install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (marker.exists() and marker.read_text() == wanted):
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True)
            if done.returncode and OFFLINE.search(done.stderr):
                pytest.skip(f"npm cannot be reached: {done.stderr.strip()[-200:]}")
            assert done.returncode == 0, done.stderr
            marker.write_text(wanted)
    return packages


def build(folder: Path) -> Path:
    """Compile the client, its tests and the example in a folder; return it."""
    packages = install()
    for part in ("src", "test"):
        shutil.copytree(CLIENT / part, folder / part)
    for file in ("package.json", "tsconfig.json"):
        shutil.copy(CLIENT / file, folder / file)
    (folder / "examples").mkdir()
    shutil.copy(EXAMPLE, folder / "examples" / EXAMPLE.name)
    (folder / "node_modules").symlink_to(packages)
    done = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    return folder


def types() -> str:
    """Return the types of requests and answers, made from the OpenAPI document."""
    packages = install()
    with TemporaryDirectory() as folder:
        given = Path(folder) / "openapi.json"
        given.write_text(json.dumps(document()))
        made = Path(folder) / "schema.ts"
        program = packages / "openapi-typescript" / "bin" / "cli.js"
        command = ["node", str(program), str(given), "--output", str(made)]
        subprocess.run(command, check=True, capture_output=True)
        return made.read_text()


if __name__ == "__main__":
    TYPES.write_text(types())
    sys.stdout.write(f"written: {TYPES}\n")
