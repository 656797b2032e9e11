"""Documents as HTML (one self-contained page) and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from dyclu.plots.drawing import inline_svg, write_png
from dyclu.sim.reports.document import Document, Picture, Table, one_line
from dyclu.storage import replace_file


def write_report(document: Document, folder: Path) -> list[Path]:
    """Write ``report.md``, its pictures (PNG) and ``report.html``; return the paths."""
    files = [folder / f"{picture.name}.png" for picture in document.pictures]
    for picture, file in zip(document.pictures, files, strict=True):
        write_png(picture.figure, file)
    page, text = folder / "report.html", folder / "report.md"
    replace_file(text, markdown(document).encode())
    replace_file(page, html(document).encode())
    return [*files, text, page]


def html(document: Document) -> str:
    """Return the document as a self-contained HTML page."""
    said = (document.warning, *document.policy_warnings)
    warnings = "\n".join(f'<p class="warning">{escape(one)}</p>' for one in said if one)
    return PAGE.substitute(
        title=escape(document.title),
        lead=escape(document.lead),
        warnings=warnings,
        parts="\n".join(_html_part(heading, part) for heading, part in document.parts),
        facts="\n".join(_html_fact(name, fact) for name, fact in document.facts.items()),
    )


def markdown(document: Document) -> str:
    """Return the document as Markdown; its pictures are PNG files in the same folder."""
    blocks = [f"# {document.title}", document.lead]
    if document.warning:
        blocks.append(f"**{document.warning}**")
    blocks += [f"**{one}**" for one in document.policy_warnings]
    for heading, part in document.parts:
        blocks += [f"## {heading}"] if heading else []
        blocks.append(_markdown_table(part) if isinstance(part, Table) else _markdown_image(part))
        blocks += [part.note] if part.note else []
    facts = "\n".join(f"- {name}: `{fact}`" for name, fact in document.facts.items())
    return "\n\n".join([*blocks, "## What was run", facts]) + "\n"


def _html_part(heading: str, part: Table | Picture) -> str:
    title = f"<h2>{escape(heading)}</h2>\n" if heading else ""
    return title + (_html_table(part) if isinstance(part, Table) else _html_picture(part))


def _html_picture(picture: Picture) -> str:
    caption = f"\n<figcaption>{escape(picture.note)}</figcaption>" if picture.note else ""
    return (
        f'<figure>\n<div role="img" aria-label="{escape(picture.label)}">\n'
        f"{inline_svg(picture.figure)}\n</div>{caption}\n</figure>"
    )


def _html_table(table: Table) -> str:
    kinds = [' class="words"' if name in table.words else "" for name in table.header]
    header = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>'
        for kind, name in zip(kinds, table.header, strict=True)
    )
    body = "\n".join(_html_row(row, kinds) for row in table.rows)
    note = f"\n<p>{escape(table.note)}</p>" if table.note else ""
    return (
        f'<div class="wide">\n<table>\n<thead><tr>{header}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>{note}"
    )


def _html_row(row: Sequence[str], kinds: Sequence[str]) -> str:
    name, *cells = (escape(cell).replace("\n", "<br>") for cell in row)
    data = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds[1:], cells, strict=True))
    return f'<tr><th scope="row">{name}</th>{data}</tr>'


def _html_fact(name: str, fact: str) -> str:
    # One span per word: without it, browsers break lines inside an option such as --users.
    words = " ".join(f"<span>{escape(word)}</span>" for word in fact.split())
    return f"<dt>{escape(name)}</dt><dd>{words}</dd>"


def _markdown_table(table: Table) -> str:
    rule = ["---" if table.is_words(i) else "---:" for i in range(len(table.header))]
    lines = (table.header, rule, *table.rows)
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(text: str) -> str:
    return one_line(text).replace("|", r"\|")


def _markdown_image(picture: Picture) -> str:
    return f"![{picture.label}]({picture.name}.png)"


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
body { margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: .5rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
figure { margin: 0; max-width: 48rem; }
figure svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
th, td { padding: .4rem; text-align: right; border-bottom: 1px solid var(--faint); }
td, tbody th { white-space: nowrap; }
th.words, td.words { text-align: left; }
td.words { white-space: normal; }
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
$warnings
$parts
<h2>What was run</h2>
<dl>
$facts
</dl>
</body>
</html>
""")
