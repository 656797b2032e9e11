"""Runs as people read them: a table, a figure, a picture file, a page.

A `Document` is what a report says; `html` and `markdown` are how it looks. Numbers become text in
one place, for the terminal and the page alike. Matplotlib is an extra: everything but drawing
works without it, and `drawing` says how to get it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from string import Template
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import FileError, MissingExtra
from dyclu.policy import Ids
from dyclu.sim.measures import Summary, regret
from dyclu.sim.play import Run
from dyclu.storage import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADER = (
    "policy",
    "regret",
    "true alarms",
    "false alarms",
    "missed changes",
    "median delay",
    "precision",
    "recall",
    "time",
)
"""What the cells of a row of `rows` are."""

CAPTION = (
    "Delay in the user's own rounds, from the change to its alarm. "
    "Precision and recall of the neighbourhoods. Time inside the policy."
)

NOTHING = "-"
"""A cell where there was nothing to measure."""

INK = "#1b1b1f"
"""Colour of text and axes; a page replaces it by its own, which depends on light and dark."""

LINES = (
    ("#8a8a8a", ":"),
    ("#d55e00", "--"),
    ("#0080c4", "-"),
    ("#009e73", "-."),
    ("#cc79a7", (0, (5, 1, 1, 1, 1, 1))),
    ("#b58900", (0, (8, 3))),
    ("#8f6bd1", (0, (3, 1))),
    ("#a0623a", (0, (1, 1))),
)
"""Colour and dashes of the policies: told apart without seeing colour, on light and dark."""

BANDS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#dddddd")
"""Paul Tol's light colours: safe for the colour-blind, and dark text can be read on all of them."""

ON_BAND = "#000000"

ROOM_FOR_A_NAME = 0.12
"""Share of the time axis a period must last for the name of its parameter to fit in."""

ALARMS, SURPRISES, TRUTH = range(3)
"""The lanes of the timeline, from below."""

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "lines.markeredgewidth": 1,
    # The ids inside an SVG are salted with chance unless told otherwise.
    "svg.hashsalt": "dyclu",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text in rows under a header; the first cell of a row names it.

    Attributes
    ----------
    header : tuple of str
        What the cells are.
    rows : tuple of tuples of str
        The cells; one of two lines may be shown in one where there is no room for two.
    note : str
        What a reader should know of them.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """A figure in a document.

    Attributes
    ----------
    name : str
        Of its file, without an ending.
    figure : Figure
        What is drawn.
    label : str
        What it shows, for those who do not see it.
    note : str
        What a reader should know of it.
    """

    name: str
    figure: Figure
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report, before it is a page.

    Attributes
    ----------
    title, lead : str
        Heading, and the sentence under it.
    warning : str
        What must not be overlooked, if anything.
    parts : tuple of (str, Table or Picture)
        What follows, each under a heading of its own; an empty one continues the part before.
    facts : mapping of str to str
        What a reader needs to run it again: command, seed, version.
    """

    title: str
    lead: str
    warning: str = ""
    parts: tuple[tuple[str, Table | Picture], ...]
    facts: Mapping[str, str]

    @property
    def table(self) -> Table:
        """The first table among its parts."""
        return next(part for _, part in self.parts if isinstance(part, Table))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures among its parts."""
        return tuple(part for _, part in self.parts if isinstance(part, Picture))


def rows(summaries: Mapping[str, Summary]) -> list[tuple[str, ...]]:
    """Return one row of text per policy, under `HEADER`."""
    return [(name, *_cells(summary)) for name, summary in summaries.items()]


def _cells(summary: Summary) -> tuple[str, ...]:
    return (
        f"{summary.regret:,.1f}",
        str(summary.alarms_true),
        str(summary.alarms_false),
        str(summary.alarms_missed),
        _or_nothing(summary.median_delay, "g"),
        _or_nothing(summary.precision, ".2f"),
        _or_nothing(summary.recall, ".2f"),
        f"{summary.seconds:.1f} s",
    )


def _or_nothing(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def telling_user(run: Run) -> int:
    """Return a user worth watching: one with several changes and as many alarms.

    Of all users with at least two changes, where there are any, the one whose alarms differ least
    from the changes in number; among those, the one with most changes; among those, the first.
    """

    def dullness(user: int) -> tuple[bool, int, int]:
        changes, alarms = len(run.world.changes(user)), len(_times(run, user, run.changed))
        return changes < 2, abs(alarms - changes), -changes

    return min(range(run.world.setting.users), key=dullness)


def figure(runs: Mapping[str, Run], *, watched: str) -> Figure:
    """Draw the regret of every policy, and what one of them noticed of one user's changes.

    Parameters
    ----------
    runs : mapping of str to Run
        The runs by the name of their policy, all in the same world.
    watched : str
        The run whose alarms and surprises are shown, for its `telling_user`.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    run = runs[watched]
    with drawing():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(6.4, 6.4), layout="constrained")
        above, below = drawn.subplots(2, sharex=True, height_ratios=(2.2, 1))
        _draw_regret(above, runs)
        _draw_timeline(below, run, telling_user(run), watched)
        below.set(xlim=(0, run.world.setting.rounds), xlabel="rounds of each user")
        drawn.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        arrange(drawn)
    return drawn


def write_png(figure: Figure, path: Path) -> None:
    """Write the figure as a PNG image."""
    replace_file(path, _rendered(figure, "png", dpi=160))


def write_html(
    figure: Figure,
    path: Path,
    *,
    title: str,
    lead: str,
    summaries: Mapping[str, Summary],
    facts: Mapping[str, str],
) -> None:
    """Write a page that needs nothing but itself: the figure, the table and what was run.

    Parameters
    ----------
    figure : Figure
        What `figure` drew.
    path : Path
        Where to.
    title, lead : str
        Heading of the page, and the sentence under it.
    summaries : mapping of str to Summary
        The rows of the table by the name of their policy.
    facts : mapping of str to str
        What a reader needs to run it again: command, seed, version.
    """
    policies = ", ".join(summaries)
    picture = Picture(
        name="demo",
        figure=figure,
        label=f"Accumulated regret of {policies}; one user's changes and alarms",
        note=DEMO_NOTE,
    )
    table = Table(header=HEADER, rows=tuple(rows(summaries)), note=CAPTION)
    parts = (("", picture), ("In numbers", table))
    page = html(Document(title=title, lead=lead, parts=parts, facts=facts))
    replace_file(path, page.encode())


def write_report(document: Document, folder: Path) -> list[Path]:
    """Write a document as ``report.md`` with its pictures beside it, and as ``report.html``."""
    files = [folder / f"{picture.name}.png" for picture in document.pictures]
    for picture, file in zip(document.pictures, files, strict=True):
        write_png(picture.figure, file)
    page, text = folder / "report.html", folder / "report.md"
    replace_file(text, markdown(document).encode())
    replace_file(page, html(document).encode())
    return [*files, text, page]


def html(document: Document) -> str:
    """Return the document as a page that needs nothing but itself."""
    warning = f'<p class="warning">{escape(document.warning)}</p>' if document.warning else ""
    return PAGE.substitute(
        title=escape(document.title),
        lead=escape(document.lead),
        warning=warning,
        parts="\n".join(_html_part(heading, part) for heading, part in document.parts),
        facts="\n".join(_html_fact(name, fact) for name, fact in document.facts.items()),
    )


def markdown(document: Document) -> str:
    """Return the document as Markdown; its pictures are files beside it."""
    blocks = [f"# {document.title}", document.lead]
    if document.warning:
        blocks.append(f"**{document.warning}**")
    for heading, part in document.parts:
        blocks += [f"## {heading}"] if heading else []
        blocks.append(_markdown_table(part) if isinstance(part, Table) else _markdown_image(part))
        blocks += [part.note] if part.note else []
    facts = "\n".join(f"- {name}: `{fact}`" for name, fact in document.facts.items())
    return "\n\n".join([*blocks, "## What was run", facts]) + "\n"


def check_writable(folder: Path) -> None:
    """Make the folder if need be, and find out by trying whether it takes files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(
            f"cannot write {folder} ({error.strerror or error}); "
            "name a folder that you may write to, on a disk with space"
        ) from None


def one_line(cell: str) -> str:
    """Return a cell's text without its line break."""
    return cell.replace("\n", " ")


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the style of this package, or say how to get matplotlib."""
    try:
        import matplotlib.style
    except ImportError as error:
        raise MissingExtra(
            f"a picture needs matplotlib, which cannot be imported ({error}); "
            "get it with: pip install 'dyclu[plots]'"
        ) from None
    # On top of matplotlib's defaults, so that nobody's own configuration gets in.
    with matplotlib.style.context(["default", STYLE]):
        yield


def arrange(figure: Figure) -> None:
    """Give everything its place once and for all: renderings would nudge it by rounding errors."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _draw_regret(axes: Axes, runs: Mapping[str, Run]) -> None:
    for i, (name, run) in enumerate(runs.items()):
        users, rounds = run.world.truth.shape
        colour, dashes = LINES[i % len(LINES)]
        # Users are served in turn, so that every `users`-th round ends a round of each of them.
        total = regret(run)[users - 1 :: users]
        axes.plot(np.arange(1, rounds + 1), total, color=colour, linestyle=dashes, label=name)
    axes.set(title=f"Regret of all {users} users together", ylabel="accumulated regret", ylim=0)
    axes.legend(loc="upper left", handlelength=3)


def _draw_timeline(axes: Axes, run: Run, user: int, policy: str) -> None:
    changes = run.world.changes(user)
    _draw_truth(axes, run.world.truth[user], changes)
    for i, change in enumerate(changes):
        axes.axvline(change, color=INK, linewidth=1, label=_once("true change", i))
    alarms, surprises = (_times(run, user, what) for what in (run.changed, run.surprised))
    axes.plot(alarms, np.full(len(alarms), ALARMS), "v", color="#d55e00", ms=8, label="alarm")
    axes.plot(
        surprises, np.full(len(surprises), SURPRISES), "|", color="#0080c4", ms=9, label="surprise"
    )
    axes.set(
        title=f"What {policy} noticed of user {user}",
        ylim=(ALARMS - 0.6, TRUTH + 0.5),
        yticks=(ALARMS, SURPRISES, TRUTH),
        yticklabels=("alarms", "surprises", "true taste"),
    )
    axes.tick_params(axis="y", length=0)


def _draw_truth(axes: Axes, truth: Ids, changes: Ids) -> None:
    starts, ends = (0, *changes), (*changes, len(truth))
    colours: dict[int, str] = {}
    for start, end in zip(starts, ends, strict=True):
        parameter = int(truth[start])
        colour = colours.setdefault(parameter, BANDS[len(colours) % len(BANDS)])
        axes.barh(TRUTH, end - start, left=start, height=0.8, color=colour)
        if end - start >= ROOM_FOR_A_NAME * len(truth):
            at = ((start + end) / 2, TRUTH)
            axes.annotate(f"taste {parameter}", at, ha="center", va="center", color=ON_BAND)


def _once(label: str, i: int) -> str:
    """Return the label for the first of many, and what matplotlib leaves out for the others."""
    return "_" if i else label


def _times(run: Run, user: int, happened: NDArray[np.bool_]) -> Ids:
    """Return the user's own rounds at which it happened."""
    return np.flatnonzero(happened[user :: run.world.setting.users])


def _rendered(figure: Figure, form: str, **options: Any) -> bytes:
    with drawing(), BytesIO() as buffer:
        figure.savefig(buffer, format=form, **options)
        return buffer.getvalue()


def _inline_svg(figure: Figure) -> str:
    nothing_about_it = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    svg = _rendered(figure, "svg", facecolor="none", metadata=nothing_about_it).decode()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # A page knows what svg means; the names of its vocabularies only look like links.
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)


def _html_part(heading: str, part: Table | Picture) -> str:
    title = f"<h2>{escape(heading)}</h2>\n" if heading else ""
    return title + (_html_table(part) if isinstance(part, Table) else _html_picture(part))


def _html_picture(picture: Picture) -> str:
    caption = f"\n<figcaption>{escape(picture.note)}</figcaption>" if picture.note else ""
    return (
        f'<figure>\n<div role="img" aria-label="{escape(picture.label)}">\n'
        f"{_inline_svg(picture.figure)}\n</div>{caption}\n</figure>"
    )


def _html_table(table: Table) -> str:
    header = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    body = "\n".join(_html_row(row) for row in table.rows)
    note = f"\n<p>{escape(table.note)}</p>" if table.note else ""
    return (
        f'<div class="wide">\n<table>\n<thead><tr>{header}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>{note}"
    )


def _html_row(row: Iterable[str]) -> str:
    name, *cells = (escape(cell).replace("\n", "<br>") for cell in row)
    return f'<tr><th scope="row">{name}</th><td>{"</td><td>".join(cells)}</td></tr>'


def _html_fact(name: str, fact: str) -> str:
    # Each word a box of its own: browsers would break a line inside --users otherwise.
    words = " ".join(f"<span>{escape(word)}</span>" for word in fact.split())
    return f"<dt>{escape(name)}</dt><dd>{words}</dd>"


def _markdown_table(table: Table) -> str:
    rule = ("---", *["---:"] * (len(table.header) - 1))
    lines = (table.header, rule, *table.rows)
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(text: str) -> str:
    return one_line(text).replace("|", r"\|")


def _markdown_image(picture: Picture) -> str:
    return f"![{picture.label}]({picture.name}.png)"


DEMO_NOTE = """\
Above: the regret, which is what the choices gave away against always knowing the best arm. Below: \
of the users with several changes, the one whose alarms come closest to them in number; when their \
taste changed, which rewards contradicted what was known of them (surprises), and when the policy \
concluded that they had changed (alarms)."""

PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1b1b1f; --paper: #fff; --faint: #8884; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6ea; --paper: #16161a; } }
body { margin: 0 auto; max-width: 52rem; padding: 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: .5rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
th, td { padding: .4rem; text-align: right; border-bottom: 1px solid var(--faint); }
td { white-space: nowrap; }
thead th { vertical-align: bottom; font-size: .85rem; line-height: 1.2; }
th:first-child { position: sticky; left: 0; background: var(--paper) padding-box;
  text-align: left; }
p, figcaption { font-size: .9rem; opacity: .8; }
.warning { border-left: .25rem solid #d55e00; padding: .25rem .75rem; opacity: 1;
  font-weight: 600; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .25rem 1rem; margin: 0; }
dt { opacity: .8; }
dd { margin: 0; font-family: ui-monospace, monospace; font-size: .9rem; }
dd span { display: inline-block; overflow-wrap: anywhere; }
@media (max-width: 34rem) {
  dl { display: block; } dd { margin-bottom: .5rem; }
  table { font-size: .85rem; } th, td { padding: .4rem .3rem; }
}
</style>
</head>
<body>
<h1>$title</h1>
<p>$lead</p>
$warning
$parts
<h2>What was run</h2>
<dl>
$facts
</dl>
</body>
</html>
""")
