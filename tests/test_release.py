"""Releases: one version everywhere, archives that are the same every time, files that are valid."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import dyclu
from tests.lowest import lowest
from tests.release import mistakes, versions

ROOT = Path(__file__).parents[1]


def test_one_version_is_named_everywhere() -> None:
    assert set(versions().values()) == {dyclu.__version__}


def test_a_tag_of_another_version_is_a_mistake_in_every_file() -> None:
    assert len([one for one in mistakes("v9.9.9") if "9.9.9" in one]) == len(versions())
    assert not [one for one in mistakes(f"v{dyclu.__version__}") if "the tag" in one]


def test_the_readme_cites_the_version_and_the_paper() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"version = {{{dyclu.__version__}}}" in readme
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["references"][0]["title"] in readme


def test_every_direct_dependency_has_a_lowest_version() -> None:
    named = [one.partition("==")[0] for one in lowest()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    users = re.findall(r"[\w-]+", extras["all"][0])[1:]
    needs = [*project["dependencies"], *(need for extra in users for need in extras[extra])]
    wanted = {re.match(r"[\w-]+", need)[0] for need in needs} - {"dyclu"}  # type: ignore[index]
    assert {*named} == wanted
    assert len(named) == len({*named})


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name
)
def test_files_for_the_forge_can_be_parsed(file: Path) -> None:
    assert yaml.safe_load(file.read_text())


def test_workflows_name_tests_and_targets_that_exist() -> None:
    text = "".join(file.read_text() for file in (ROOT / ".github/workflows").glob("*.yml"))
    paths = set(re.findall(r"\btests/[\w/.]+", text))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"\bmake ([\w-]+)", text))
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    jobs = workflow("release")["jobs"]
    published = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert published == {"publish", "npm"}
    for name in published:
        assert set(jobs[name]["needs"]) == {"build", "test"}
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert "workflow_call" in workflow("test")[True]  # YAML reads the key `on` as true


def test_the_npm_package_names_the_repository_that_its_provenance_names(tmp_path: Path) -> None:
    """The registry refuses a provenance whose repository is not that of package.json."""
    steps = commands(workflow("release")["jobs"]["npm"]).splitlines()
    (named,) = [step for step in steps if step.startswith("npm pkg set repository.")]
    (published,) = [step for step in steps if step.startswith("npm publish")]
    assert "--provenance" in published.split()
    assert steps.index(named) < steps.index(published)
    if shutil.which("npm") is None:
        pytest.skip("npm is needed to run the step")
    shutil.copy(ROOT / "clients/typescript/package.json", tmp_path)
    forge = {"GITHUB_SERVER_URL": "https://forge.example", "GITHUB_REPOSITORY": "them/dyclu"}
    subprocess.run(named, shell=True, cwd=tmp_path, env={**os.environ, **forge}, check=True)
    assert json.loads((tmp_path / "package.json").read_text())["repository"] == {
        "type": "git",
        "url": "git+https://forge.example/them/dyclu.git",
        "directory": "clients/typescript",
    }


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())


def commands(job: Any) -> str:
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


def test_library_simulations_and_command_line_are_tested_on_every_system() -> None:
    """Every file and folder of unit tests, but for what is not the library."""
    jobs = workflow("test")["jobs"]
    systems = ["ubuntu-latest", "macos-latest", "windows-latest"]
    run = ""
    for name in ("library", "neighbours"):
        assert jobs[name]["strategy"]["matrix"]["os"] == systems
        run += commands(jobs[name])
    # Benchmarks, and the service's start, which is for POSIX systems.
    without = {"test_benchmarks.py", "test_benchmarks_rewards.py", "test_main.py"}
    without |= {"test_imports.py", "__init__.py", "__pycache__"}
    for path in (ROOT / "tests/unit").iterdir():
        named = f"tests/unit/{path.name}" in run.split()
        assert named != (path.name in without), path.name
    assert {"tests/properties", "tests/conformance", "tests/golden"} <= {*run.split()}


def test_the_site_is_built_and_the_image_makes_a_decision_for_every_change() -> None:
    jobs = workflow("test")["jobs"]
    assert commands(jobs["whole"]).splitlines() == ["make open-bandit", "make test", "make docs"]
    assert commands(jobs["image"]) == "deploy/try.sh"


def test_long_tests_and_crash_tests_run_every_week() -> None:
    told = workflow("long")
    assert {"schedule", "workflow_dispatch"} == told[True].keys()
    targets = told["jobs"]["long"]["strategy"]["matrix"]["target"]
    assert targets == ["test-long", "crashtest", "crashtest-cluster"]
    makefile = (ROOT / "Makefile").read_text()
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


@pytest.mark.long
def test_two_builds_have_the_same_bytes_and_need_neither_git_nor_tags(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        source, out = tmp_path / f"source-{name}", tmp_path / name
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        ).stdout.split(b"\0")
        for file in filter(None, listed):
            copy = source / file.decode()
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / file.decode()).read_bytes())
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run([*command, str(source)], env=environment, check=True, capture_output=True)
        files = sorted(out.iterdir())
        found.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files})
    assert found[0] == found[1]
    assert set(found[0]) == {
        f"dyclu-{dyclu.__version__}-py3-none-any.whl",
        f"dyclu-{dyclu.__version__}.tar.gz",
    }
