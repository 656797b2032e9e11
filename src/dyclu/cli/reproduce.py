"""``dyclu reproduce``: the paper's experiments, and others."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dyclu.cli.studies import Dask, Jobs, Policies, Seeds, given, run_studies


class What(StrEnum):
    """Experiments; the name `all` means those of the paper."""

    TABLE1 = "table1"
    FIGURE2 = "figure2"
    LASTFM = "lastfm"
    MOVIELENS = "movielens"
    WILD = "wild"
    ALL = "all"


SCALINGS, ORDERS = "largest|unit|none", "shuffled|dated|published"
SERVINGS, DATED_SERVINGS = "in-turn|at-random", "dated|in-turn|at-random"
NEGATIVES, FILM_NEGATIVES = "unknown|untagged", "unrated|never-rated"
"""Choices of the options for lastfm and movielens; the first one is the default."""


def _recorded(help_text: str, **choices: str) -> Any:
    """Return an option of recorded data sets, from its choices or default for each of them."""
    of_each = "; ".join(f"{name}: {choice}" for name, choice in choices.items())
    return typer.Option(help=f"{help_text} ({of_each}).", show_default=False)


def reproduce(
    what: Annotated[What, typer.Argument(help="The experiment.")],
    rows: Annotated[
        str | None,
        typer.Option(help="Rows of Table 1, such as 1,4-6.", metavar="LIST", show_default="all"),
    ] = None,
    seeds: Seeds = None,
    policies: Policies = None,
    jobs: Jobs = None,
    dask: Dask = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the data set, for lastfm and movielens.", metavar="DIR"),
    ] = None,
    least: Annotated[
        int | None,
        _recorded("Least number of observations of a person", lastfm="800", movielens="30"),
    ] = None,
    scaling: Annotated[
        str | None,
        _recorded(
            "Divide features by the largest norm, by each item's own, or by nothing",
            lastfm=SCALINGS,
            movielens=SCALINGS,
        ),
    ] = None,
    order: Annotated[
        str | None, _recorded("Order of a person's observations", lastfm=ORDERS)
    ] = None,
    serving: Annotated[
        str | None,
        _recorded("Order in which users come", lastfm=SERVINGS, movielens=DATED_SERVINGS),
    ] = None,
    negatives: Annotated[
        str | None,
        _recorded(
            "Items that are offered beside the positive one",
            lastfm=NEGATIVES,
            movielens=FILM_NEGATIVES,
        ),
    ] = None,
    parts: Annotated[
        int | None,
        _recorded("Number of people that each user is in turn", lastfm="3", movielens="1"),
    ] = None,
    cut: Annotated[
        str | None,
        _recorded("Features from before this date, events after it", movielens="2007-01-01"),
    ] = None,
    stars: Annotated[
        float | None, _recorded("Least rating of the positive film", movielens="4")
    ] = None,
    popular: Annotated[
        int | None,
        _recorded("Least number of ratings, before the cut, of an offered film", movielens="5"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version with 2 seeds; takes a few minutes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for runs and reports.", metavar="DIR")] = Path(
        "dyclu-results"
    ),
) -> None:
    """Repeat the paper's experiments, or run others, and compare the results.

    table1 is the paper's nine simulated settings, figure2 its three environments, lastfm its
    experiment with real people; all runs these three. movielens is like lastfm with films, and
    wild is 30 simulated worlds with clicks, drift, late rewards and the like; the paper has
    neither. At full size they take hours. Every finished run is stored in OUT/runs: the same
    command continues where it was stopped. Each experiment has its own folder in OUT for results
    (CSV) and report (Markdown, HTML, PNG).
    """
    from dyclu.sim.studies.options import command_line, parse_numbers, parse_policies, parse_seeds
    from dyclu.sim.studies.paper import paper_studies

    studies = paper_studies(
        what,
        rows=None if rows is None else parse_numbers(rows, "rows"),
        policies=None if policies is None else parse_policies(policies),
        seeds=parse_seeds(seeds, quick=quick),
        quick=quick,
        data=data,
        reading=given(least=least, scaling=scaling, cut=cut, stars=stars, popular=popular),
        drawing=given(
            order=order,
            # With a hyphen, the options need no quotes in a shell.
            serving=None if serving is None else serving.replace("-", " "),
            negatives=None if negatives is None else negatives.replace("-", " "),
            parts=parts,
        ),
    )
    options: dict[str, object] = {"rows": rows, "seeds": seeds, "policies": policies}
    options |= {"quick": quick, "least": least, "scaling": scaling, "order": order}
    options |= {"serving": serving, "negatives": negatives, "parts": parts, "cut": cut}
    options |= {"stars": stars, "popular": popular, "data": data and "DIR"}
    command = command_line(f"reproduce {what}", options)
    run_studies({out / study.name: study for study in studies}, out, command, jobs, dask)
