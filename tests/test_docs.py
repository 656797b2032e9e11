"""What the documents say is there, is there; what is there, they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import dyclu
from dyclu import cli
from dyclu.evaluate import compare, uniform
from tests.architecture import PICTURE, picture
from website import notebooks
from website.hooks import MADE

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


PAGES = [f"notebooks/{source.stem}.md" for source in notebooks.sources()]
"""Pages that the site makes of notebooks."""


def test_every_command_is_in_the_readme() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert commands
    for name in commands:
        assert f"dyclu {name}" in README


def shown_commands(text: str) -> list[list[str]]:
    """Return the words of every `dyclu COMMAND …` in the blocks of a page with commands."""
    found = []
    kinds = {"console": r"^\$ dyclu +([a-z].*)$", "sh": r"^dyclu +([a-z].*)$"}
    for kind, block in re.findall(
        r"^```(console|sh)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE
    ):
        for line in re.findall(kinds[kind], block.replace("\\\n", ""), re.MULTILINE):
            words = shlex.split(line, comments=True)
            found.append(words[: words.index("&")] if "&" in words else words)
    return found


def test_every_command_shown_in_the_documents_has_options_that_exist() -> None:
    group: Any = typer.main.get_command(cli.app)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = [(page.name, words) for page in pages for words in shown_commands(page.read_text())]
    assert len(shown) > 10
    for page, (name, *words) in shown:
        try:
            group.commands[name].make_context(name, words)
        except Exception as error:
            pytest.fail(f"{page} shows dyclu {name} {' '.join(words)}: {error!r}")


def test_the_report_that_the_guide_writes_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (ROOT / "docs/guide/evaluate-a-log.md").read_text()
    (code,) = re.findall(r"^```python\n(from pathlib.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    log = dyclu.Log.of_arrays(
        user=range(100), arms=np.tile(np.eye(2), (100, 1, 1)), chosen=[0, 1] * 50,
        reward=[0.0, 1.0] * 50, propensity=np.full(100, 0.5),
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    exec(code, {"found": compare(log, {"any": uniform})})
    assert "week 34" in (tmp_path / "evaluation" / "report.md").read_text()


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    for record in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        assert record.name in index


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            goal = page.parent / target
            made = goal in [ROOT / "docs" / name for name in (*MADE, *PAGES)]
            assert made or goal.exists(), f"{page.name} links to {target}"


def test_every_file_in_the_readmes_map_exists() -> None:
    for row in re.findall(r"^\| (`[^|]+) \|", README, flags=re.MULTILINE):
        folder = Path()
        for name in re.findall(r"`([^`]+)`", row):
            path = Path(name) if "/" in name else folder / name
            assert (ROOT / path).exists(), name
            folder = path.parent


def test_the_picture_of_the_architecture_shows_the_imports_of_today() -> None:
    assert PICTURE.read_text() == picture(), "run: python -m tests.architecture"
