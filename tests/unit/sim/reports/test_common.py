"""The report of a study, as a document, a page and a text."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dyclu.errors import MissingExtra
from dyclu.sim.reports.common import QUICK_WARNING, machine, warning_lines
from dyclu.sim.reports.document import Document, Table
from dyclu.sim.reports.page import html, markdown, write_report
from dyclu.sim.runs.results import Result
from dyclu.sim.studies.paper import table1
from dyclu.sim.studies.study import Study
from dyclu.sim.worlds.population import Population
from tests.unit.sim.samples import FACTS, ROW1

TINY = Population(users=3, parameters=2, dim=3, arms=9, offered=3, rounds=20, shortest=8, longest=9)


def a_document(results: list[Result], *, quick: bool = False) -> Document:
    study = Study(
        name="mine",
        title="Mine",
        settings={"<b>|": TINY},
        policies=("linucb", "dyclu"),
        seeds=(0, 1),
        quick=quick,
    )
    return study.document(results, facts=FACTS)


def test_a_page_is_self_contained() -> None:
    page = html(a_document(ROW1))
    assert "://" not in page
    assert not re.search(r"<(link|script|img|iframe|object)\b", page)
    assert page.count("<svg") == 1
    assert "<b>" not in page
    assert "890 ± 10" in page


def test_markdown_refers_to_existing_pictures(tmp_path: Path) -> None:
    files = write_report(a_document(ROW1), tmp_path)
    assert sorted(file.name for file in files) == ["mine.png", "report.html", "report.md"]
    assert "(mine.png)" in (tmp_path / "report.md").read_text()
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_rows_of_markdown_tables_have_one_line() -> None:
    results = [*ROW1, *(replace(run, setting="a|b") for run in ROW1)]
    lines = [line for line in markdown(a_document(results)).splitlines() if line.startswith("|")]
    assert r"| a\|b | 20,100 ± 100 | 890 ± 10 |" in lines
    assert all(line.endswith("|") for line in lines)


def test_columns_of_words_are_aligned_left() -> None:
    table = Table(header=("who", "says", "n"), rows=(("a", "b", "1"),), words=("says",))
    document = Document(title="t", lead="", parts=(("", table),), facts={})
    assert "| who | says | n |\n| --- | --- | ---: |" in markdown(document)
    assert '<td class="words">b</td><td>1</td>' in html(document)


def test_a_part_of_the_paper_says_what_is_left_out() -> None:
    part = table1(rows=(1,), policies=("linucb", "dyclu"), seeds=(0, 1))
    absent = ", ".join([*(f"row{i}" for i in range(2, 10)), "oracle", "adts", "dlinucb", "club"])
    assert f"A part of the paper's, without {absent}." in markdown(
        part.document(ROW1, facts=FACTS, pictures=False)
    )
    assert table1(seeds=(0,)).left_out == ""


@pytest.mark.parametrize("quick", [True, False])
def test_the_report_of_a_quick_study_has_a_warning(quick: bool) -> None:
    document = a_document(ROW1, quick=quick)
    assert ("not comparable with the paper's" in markdown(document)) is quick
    assert (QUICK_WARNING.split("'")[0] in html(document)) is quick


def test_a_report_has_one_line_per_policy_with_warnings() -> None:
    first, second, *others = ROW1
    warned = [
        first,
        replace(second, warnings=("Seen <b>7</b>, expected 1; do so.", "Seen 8 too.")),
        *others,
    ]
    line = "linucb warns in 1 of 2 runs (row1): Seen <b>7</b>, expected 1; do so. Seen 8 too."
    document = a_document(warned)
    assert document.policy_warnings == (line,)
    assert f"**{line}**" in markdown(document).splitlines()
    assert "Seen &lt;b&gt;7&lt;/b&gt;, expected 1" in html(document)
    assert a_document(ROW1).policy_warnings == ()
    assert 'class="warning"' not in html(a_document(ROW1))


def test_at_most_five_settings_are_named_in_a_warning() -> None:
    seven = [replace(ROW1[0], setting=f"row{row}", warnings=("Seen this.",)) for row in range(1, 8)]
    assert warning_lines(seven) == (
        "linucb warns in 7 of 7 runs (row1, row2, row3, row4, row5, …): Seen this.",
    )


def test_without_matplotlib_there_is_a_report_without_pictures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    study = table1(rows=(1,), policies=("dyclu",), seeds=(0,))
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[plots\]'"):
        study.document(ROW1[2:], facts=FACTS)
    document = study.document(ROW1[2:], facts=FACTS, pictures=False)
    assert document.pictures == ()
    assert "890 ± 10 (853; 1.04×)" in markdown(document)


def test_the_facts_do_not_contain_the_host_name() -> None:
    facts = " ".join(machine().values())
    assert "cores" in facts
    assert "numpy" in facts
    assert "/" not in facts
