"""Notebooks: run them, store what they show, and make pages of the site from that.

``notebooks/*.py`` are the sources, for people to edit; ``notebooks/*.ipynb`` are the same cells
with their outputs, written by ``python -m website.notebooks`` (``make notebooks``) only. The site
shows the stored outputs, so that building it runs no notebook.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "notebooks"

PLOTLY = "application/vnd.plotly.v1+json"
"""Kind of an output that is an interactive picture."""

SCRIPT = "assets/plotly.min.js"
"""Where the site keeps the script that draws interactive pictures."""

PLACE = '<div class="plot">'

DRAW = """<script>
for (const place of document.querySelectorAll("div.plot")) {
  const {data, layout} = JSON.parse(place.querySelector("script").textContent);
  Object.assign(layout, {paper_bgcolor: "white", autosize: true});
  Plotly.newPlot(place, data, layout, {responsive: true, displaylogo: false});
}
</script>"""
"""Draws all interactive pictures of a page; white, also on dark pages, as their text is dark."""

SECONDS = 1200
"""How long a cell may take, also on a machine that is busy."""

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

Notebook = dict[str, Any]


def sources() -> list[Path]:
    """Return the notebooks' sources, in their order."""
    return sorted(FOLDER.glob("[0-9]*.py"))


def stored(source: Path) -> Notebook:
    """Return a notebook with its outputs, as it was stored."""
    found: Notebook = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    return found


def executed(source: Path) -> Notebook:
    """Run a notebook in a kernel of its own; return it with its outputs."""
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(source)
    NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": FOLDER}}
    ).execute()
    return tidy(notebook)


def tidy(notebook: Notebook) -> Notebook:
    """Return a notebook without times, random ids and scripts, so that equal runs are equal."""
    notebook["metadata"] = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": KERNEL,
    }
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {key: cell["metadata"][key] for key in cell["metadata"] if key == "tags"}
        for output in cell.get("outputs", ()):
            output.pop("metadata", None)
            if output["output_type"] != "stream":
                output["metadata"] = {}
            if PLOTLY in output.get("data", {}):
                # The script in it has megabytes; notebooks and the site draw the data themselves.
                output["data"] = {PLOTLY: output["data"][PLOTLY]}
    return notebook


def write(source: Path, notebook: Notebook) -> None:
    """Store a notebook with its outputs beside its source."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    source.with_suffix(".ipynb").write_text(text + "\n", encoding="utf-8")


def page(source: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown for the site, and its pictures by their names."""
    pictures: dict[str, bytes] = {}
    parts, name = [], source.stem
    for cell in stored(source)["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text.replace(".ipynb)", ".md)"))
        else:
            parts.append(f"```python\n{text}\n```")
            parts += _shown(cell["outputs"], name, pictures)
    first, *rest = parts
    title, _, lead = first.partition("\n")
    if any(part.startswith(PLACE) for part in rest):
        rest.append('<script src="../assets/plotly.min.js"></script>\n' + DRAW)
    return "\n\n".join([title, _note(source), lead.strip(), *rest]) + "\n", pictures


def script() -> bytes:
    """Return plotly's script, from its package, for the pages with interactive pictures."""
    found = files("plotly") / "package_data" / "plotly.min.js"
    return found.read_bytes()


def _note(source: Path) -> str:
    return (
        "!!! note\n"
        f"    This page is `notebooks/{source.stem}.ipynb` of the repository, with the outputs of\n"
        "    its last run. `make notebooks` runs all notebooks."
    )


def _shown(
    outputs: Sequence[dict[str, Any]], name: str, pictures: dict[str, bytes]
) -> Iterator[str]:
    for output in outputs:
        data = output.get("data", {})
        if output["output_type"] == "stream":
            yield _block("".join(output["text"]))
        elif PLOTLY in data:
            yield _interactive(data[PLOTLY])
        elif "image/png" in data:
            picture = f"{name}-{len(pictures)}.png"
            pictures[picture] = base64.b64decode(data["image/png"])
            yield f"![Output of the cell above]({picture})"
        elif "text/html" in data:
            html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
            # A blank line would end the block of HTML.
            yield '<div class="output">\n' + re.sub(r"\n\s*", "\n", html.strip()) + "\n</div>"
        elif "text/plain" in data:
            yield _block("".join(data["text/plain"]))


def _block(text: str) -> str:
    return f"``` {{.text .output}}\n{text.rstrip()}\n```"


def _interactive(figure: dict[str, Any]) -> str:
    """Return the place of an interactive picture, with its data."""
    # "<" would end the element that holds the data.
    data = json.dumps({key: figure[key] for key in ("data", "layout")}).replace("<", "\\u003c")
    return f'{PLACE}<script type="application/json">{data}</script></div>'


def main() -> None:
    """Run all notebooks, or those whose names contain an argument, and store their outputs."""
    wanted = sys.argv[1:] or [""]
    for source in sources():
        if any(word in source.name for word in wanted):
            write(source, executed(source))


if __name__ == "__main__":
    main()
