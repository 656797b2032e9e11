"""The notebooks: they run, their stored outputs belong to their cells, and pages show them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import jupytext
import matplotlib
import matplotlib.pyplot as plt
import pytest

from website import notebooks

SMALL = {
    "01-a-population-that-changes": "users, rounds, seed = 8, 40, 1",
    "02-your-own-data": "impressions, seed = 1_500, 0",
    "03-compare-policies": "users, rounds, seeds = 6, 30, 2",
    "04-inside-atlas": "users, rounds, seed = 8, 60, 3",
}
"""For each notebook, its parameters in the quick test."""

SOURCES = pytest.mark.parametrize("source", notebooks.sources(), ids=lambda source: source.stem)


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last line, which a notebook shows."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@SOURCES
def test_a_notebook_runs_with_small_parameters_and_shows_its_values(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib.use("Agg")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in jupytext.read(source)["cells"]:
        if cell["cell_type"] != "code":
            continue
        wanted = "parameters" in cell["metadata"].get("tags", ())
        value = run_cell(SMALL[source.stem] if wanted else cell["source"], names)
        shown = {"_repr_html_", "_repr_png_"} & set(dir(type(value)))
        assert not shown or any(getattr(value, method)() for method in shown)


@SOURCES
def test_stored_outputs_belong_to_the_cells_of_the_source(source: Path) -> None:
    cells = jupytext.read(source)["cells"]
    stored = notebooks.stored(source)["cells"]
    kept = [(cell["cell_type"], "".join(cell["source"])) for cell in stored]
    assert kept == [(cell["cell_type"], cell["source"]) for cell in cells], "run make notebooks"
    assert [cell for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    code = [cell for cell in stored if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [one for cell in code for one in cell["outputs"] if one["output_type"] == "error"]
    assert not [one for cell in code for one in cell["outputs"] if one.get("name") == "stderr"]


@SOURCES
def test_a_page_has_all_cells_and_pictures_and_no_link_to_a_notebook(source: Path) -> None:
    page, pictures = notebooks.page(source)
    stored = notebooks.stored(source)["cells"]
    for cell in stored:
        if cell["cell_type"] == "code":
            assert "".join(cell["source"]) in page
    outputs = [one.get("data", {}) for cell in stored for one in cell.get("outputs", ())]
    assert len(pictures) == sum("image/png" in one for one in outputs) > 0
    assert all(f"]({name})" in page and data[:4] == b"\x89PNG" for name, data in pictures.items())
    assert page.count(notebooks.PLACE) == sum(notebooks.PLOTLY in one for one in outputs)
    assert not re.search(r"\]\([^)]*\.ipynb\)", page)
    assert "<style" not in page


def test_a_tidy_notebook_has_no_times_and_no_scripts() -> None:
    data = {notebooks.PLOTLY: {"data": [], "layout": {}}, "text/html": "<script>"}
    output = {"output_type": "display_data", "data": data, "metadata": {"at": 1}}
    cell = {"id": "x7", "metadata": {"execution": 1, "tags": ["a"]}, "outputs": [output]}
    tidy = notebooks.tidy({"cells": [cell], "metadata": {"widgets": 1}})
    assert tidy["cells"][0]["id"] == "cell-0"
    assert tidy["cells"][0]["metadata"] == {"tags": ["a"]}
    assert list(tidy["cells"][0]["outputs"][0]["data"]) == [notebooks.PLOTLY]
    assert "widgets" not in tidy["metadata"]


@pytest.mark.long
@SOURCES
def test_a_notebook_runs_in_a_kernel_as_stored(source: Path) -> None:
    found, stored = notebooks.executed(source)["cells"], notebooks.stored(source)["cells"]
    for new, old in zip(found, stored, strict=True):
        kinds = [sorted(one.get("data", ())) for one in new.get("outputs", ())]
        assert kinds == [sorted(one.get("data", ())) for one in old.get("outputs", ())]
