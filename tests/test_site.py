"""The site: it builds without a warning, needs no network, and its search finds the pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dyclu.service.settings import Key, Limits, Settings, TenantSettings
from website import settings

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; strict, so that a link or an anchor that leads nowhere is an error."""
    out = tmp_path_factory.mktemp("site") / "out"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(out),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.long
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"'> ]+)", text)
        loaded += re.findall(r"<link\b[^>]*\bhref=[\"']?([^\"'> ]+)", text)
        assert [url for url in loaded if "//" in url] == [], page


@pytest.mark.long
def test_the_search_index_has_words_of_written_and_of_made_pages(site: Path) -> None:
    text = (site / "search" / "search_index.js").read_text()
    index = json.loads(text.removeprefix("var __index = "))
    found = {entry["location"]: entry["text"] for entry in index["docs"]}
    assert "hazard" in found["glossary.html#atlas"]
    assert "regret" in found["index.html"]
    assert "noise" in found["reference/policies.html#dyclu.policies.atlas.policy.Atlas"]
    assert "--tell-noise" in found["reference/commands.html#dyclu-demo"]
    assert "decision_id" in found["reference/http.html#decisionrequest"]
    assert "snapshot_every" in found["reference/settings.html#service"]
    assert "Keep a Changelog" in found["changes.html"]


def test_every_setting_has_a_meaning_and_every_meaning_a_setting() -> None:
    for kind, meanings in (
        (Settings, settings.SERVICE),
        (TenantSettings, settings.TENANT),
        (Limits, settings.LIMITS),
        (Key, settings.KEY),
    ):
        names = {field.name for field in msgspec.structs.fields(kind)} - {"tenants", "limits"}
        assert names == set(meanings), kind.__name__
