"""`dyclu evaluate`: from files to estimates, verdicts and a report."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dyclu
from dyclu.cli import app

CHANCES = {"red": 0.1, "green": 0.3, "blue": 0.6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 uniformly random decisions for 100 users, a declaration, and a policy that learnt."""
    place = tmp_path_factory.mktemp("shop")
    rng, names = np.random.default_rng(0), list(CHANCES)
    with (place / "log.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["who", "shown", "clicked", "candidates", "chance"])
        for i in range(3_000):
            shown = names[rng.integers(3)]
            click = int(rng.random() < CHANCES[shown])
            rows.writerow([f"u{i % 100}", shown, click, "|".join(names), 1 / 3])
    (place / "items.csv").write_text("shown,colour\nred,red\ngreen,green\nblue,blue\n")
    (place / "features.toml").write_text('[arm]\ncolour = "category"\n')
    features = dyclu.Features(arm={"colour": "category"}).fit(place / "items.csv")
    policy = dyclu.LinUCB(features.dim, alpha=0.1, shared=True)
    for name, chance in CHANCES.items():
        vector = features.vectors([{"colour": name}])[0]
        for _ in range(50):
            policy.learn("anyone", vector, chance)
    policy.save(place / "learnt.dyclu", features=features)
    return place


def run(folder: Path, *words: str) -> Any:
    columns = ["--user=who", "--reward=clicked", "--arm=shown", "--offered=candidates"]
    files = [f"--items={folder / 'items.csv'}"]
    return CliRunner().invoke(app, ["evaluate", str(folder / "log.csv"), *words, *columns, *files])


def test_a_saved_policy_is_evaluated_with_its_own_features(folder: Path, tmp_path: Path) -> None:
    result = run(
        folder, str(folder / "learnt.dyclu"), "--propensity=chance", f"--out={tmp_path}", "--json"
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["propensities"] == "logged"
    learnt = found["policies"]["learnt"]
    assert learnt["estimates"]["dr"]["low"] < 0.6 < learnt["estimates"]["dr"]["high"]
    assert found["verdict"] == "learnt earns more than uniform."
    assert {Path(file).name for file in found["files"]} == {
        "evaluation.png", "report.md", "report.html"
    }  # fmt: skip
    text = (tmp_path / "report.md").read_text()
    assert "learnt earns more than uniform." in text
    assert "doubly robust" in text
    assert (tmp_path / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_policies_that_learn_are_replayed(folder: Path) -> None:
    declared = f"--features={folder / 'features.toml'}"
    result = run(folder, declared, "--propensity=chance", "--learn=linucb,uniform", "--no-report")
    assert result.exit_code == 0, result.output
    for name in ("linucb", "uniform"):
        said = (
            rf"^{name}: Learning over [\d,]+ rounds with 100 users, a share of 0\.333 of the visits"
        )
        assert re.search(said, result.stdout, flags=re.MULTILINE)


def test_without_propensities_they_are_estimated_and_the_report_warns(
    folder: Path, tmp_path: Path
) -> None:
    declared = f"--features={folder / 'features.toml'}"
    result = run(folder, declared, f"--out={tmp_path}", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["propensities"] == "estimated"
    assert "Propensities were not logged" in (tmp_path / "report.md").read_text()


def test_without_matplotlib_there_are_numbers_and_no_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    declared = f"--features={folder / 'features.toml'}"
    result = run(folder, declared, f"--out={tmp_path}", "--json")
    assert json.loads(result.stdout)["files"] == []
    assert "pip install 'dyclu[plots]'" in result.stderr


def test_refusals_are_one_line_and_status_2(folder: Path, tmp_path: Path) -> None:
    out = f"--out={tmp_path}"
    neither = run(folder, out)
    assert (neither.exit_code, neither.stderr.count("\n")) == (2, 1)
    assert "neither --features nor a saved policy" in neither.stderr
    absent = run(folder, f"--features={tmp_path / 'absent.toml'}", out)
    assert (absent.exit_code, absent.stderr.count("\n")) == (2, 1)
    assert "absent.toml (No such file or directory); check the path" in absent.stderr
    broken = tmp_path / "broken.toml"
    broken.write_text("[arm")
    result = run(folder, f"--features={broken}", out)
    assert result.exit_code == 2
    assert "cannot be read as TOML" in result.stderr
    for name, content in (
        ("latin.toml", b"name = '\xe9'"),
        ("deep.toml", b"x=" + 5000 * b"[" + 5000 * b"]"),
        ("deep.json", 100_000 * b"[" + 100_000 * b"]"),
    ):
        (tmp_path / name).write_bytes(content)
        result = run(folder, f"--features={tmp_path / name}", out)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert f"{name} cannot be read as TOML or JSON" in result.stderr
    wrong = run(folder, f"--features={folder / 'features.toml'}", "--propensity=clicked", out)
    assert wrong.exit_code == 2
    assert "row 0, column 'clicked'" in wrong.stderr or "'clicked'" in wrong.stderr


def test_a_decision_that_is_logged_twice_is_refused(folder: Path) -> None:
    """Every user comes 30 times, so as ids of decisions their names are wrong from row 100 on."""
    declared = f"--features={folder / 'features.toml'}"
    assert "row 100, column 'who'" in refusal(
        run(folder, declared, "--decision=who", "--no-report")
    )


def saved(file: Path, **arm: Any) -> str:
    """Save a policy that learnt nothing, with features of these columns of an arm."""
    features = dyclu.Features(arm=arm)
    file.parent.mkdir(exist_ok=True)
    dyclu.LinUCB(features.dim, alpha=0.1).save(file, features=features)
    return str(file)


def refusal(result: Any) -> str:
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    return str(result.stderr)


def test_a_saved_policy_with_other_features_of_the_same_size_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    values = {"kind": "category", "values": ["green", "red", "yellow"]}
    other = saved(tmp_path / "other.dyclu", colour=values)
    said = refusal(run(folder, str(folder / "learnt.dyclu"), other, "--no-report"))
    assert "other.dyclu learnt with other features than those of" in said
    declared = tmp_path / "declared.json"
    declared.write_text(json.dumps({"arm": {"colour": values}}))
    learnt = str(folder / "learnt.dyclu")
    said = refusal(run(folder, learnt, f"--features={declared}", "--no-report"))
    assert "learnt.dyclu learnt with other features than those of" in said
    assert run(folder, other, f"--features={declared}", "--no-report").exit_code == 0


def test_features_that_are_not_fitted_are_refused_with_a_saved_policy(folder: Path) -> None:
    declared = f"--features={folder / 'features.toml'}"
    said = refusal(run(folder, str(folder / "learnt.dyclu"), declared, "--no-report"))
    assert "features.toml leaves columns to be fitted on the log" in said


def test_two_policies_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    learnt = folder / "learnt.dyclu"
    for name, words in {"learnt": [str(learnt)], "uniform": []}.items():
        copy = tmp_path / f"{name}.dyclu"
        copy.write_bytes(learnt.read_bytes())
        said = refusal(run(folder, *words, str(copy), "--no-report"))
        assert f"{name}.dyclu would be called {name!r}" in said


def test_names_of_learning_policies_are_stripped_and_checked_before_the_comparison(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = [f"--features={folder / 'features.toml'}", "--propensity=chance", "--no-report"]
    result = run(folder, *declared, "--learn=linucb, uniform")
    assert result.exit_code == 0, result.output
    monkeypatch.setattr("dyclu.evaluate.compare", None)
    said = refusal(run(folder, *declared, "--learn=linucb,nobody"))
    assert "no policy is called 'nobody'" in said
