"""What the documents say is there, is there; what is there, they say."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from dyclu import cli
from tests.architecture import PICTURE, picture
from website.hooks import MADE

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_command_is_in_the_readme() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert commands
    for name in commands:
        assert f"dyclu {name}" in README


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    for record in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        assert record.name in index


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            goal = page.parent / target
            made = goal in [ROOT / "docs" / name for name in MADE]
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
