"""Events of mkdocs: add the pages made from the code, and those that are kept outside of docs/.

`python -m mkdocs` finds the package `website`, because it runs in the root of the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from website import calls, commands, notebooks, settings

ROOT = Path(__file__).parent.parent

OUTSIDE = {
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "deploy.md": "deploy/README.md",
}
"""Pages of the site, and the files of the repository that they are."""

MADE = {
    "reference/commands.md": commands.page,
    "reference/http.md": calls.page,
    "reference/settings.md": settings.page,
}
"""Pages of the site, and what makes them."""

WEIGHTS = {
    "glossary": 4.0,
    "learn/": 2.0,
    "guide/": 2.0,
    "notebooks/": 1.5,
    "decisions/": 0.25,
    "changes": 0.25,
}
"""How much pages count in the search, by the beginning of their path; others count 1."""


def on_files(files: Files, *, config: Any) -> Files:
    """Add pages to those of docs/."""
    for page, source in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=inside(text)))
    for page, make in MADE.items():
        files.append(File.generated(config, page, content=make()))
    for notebook in notebooks.sources():
        text, pictures = notebooks.page(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    files.append(File.generated(config, notebooks.SCRIPT, content=notebooks.script()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Adapt a page of docs/ to the site."""
    page.meta.setdefault("search", {"boost": weight(page.file.src_uri)})
    return sessions(outside(markdown))


def weight(page: str) -> float:
    """Return how much a page counts in the search: explanations before records of decisions.

    >>> weight("glossary.md"), weight("service.md"), weight("decisions/030-site.md")
    (4.0, 1.0, 0.25)
    """
    return next((boost for start, boost in WEIGHTS.items() if page.startswith(start)), 1.0)


def inside(text: str) -> str:
    """Return a file from outside of docs/ with links as they are from within.

    >>> inside("[a](docs/a.md), [b](../docs/b.md), [the changes](CHANGELOG.md)")
    '[a](a.md), [b](b.md), [the changes](changes.md)'
    """
    return outside(re.sub(r"\]\((?:\.\./)?docs/", "](", text))


def outside(text: str) -> str:
    """Return a page with links to files outside of docs/ as links to their pages.

    >>> outside("[files](../deploy/README.md)")
    '[files](deploy.md)'
    """
    for page, source in OUTSIDE.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(source)}", f"]({page}", text)
    return text


def sessions(text: str) -> str:
    r"""Return a page whose Python sessions are highlighted as such.

    >>> sessions("```python\n>>> 1 + 1\n2\n```")
    '```pycon\n>>> 1 + 1\n2\n```'
    """
    return re.sub(r"^```python\n(?=>>>)", "```pycon\n", text, flags=re.MULTILINE)
