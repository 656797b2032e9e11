"""``dyclu simulate``: policies in a population or a world of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyclu.cli.output import print_json
from dyclu.cli.studies import Dask, Jobs, Policies, Seeds, given, run_studies
from dyclu.errors import OptionError

if TYPE_CHECKING:
    from dyclu.sim import Population


def simulate(
    context: typer.Context,
    world: Annotated[
        str | None,
        typer.Option(help="A world of dyclu reproduce wild, instead of the options below."),
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option("--set", help="With --world: other options of it.", metavar="KEY=VALUE"),
    ] = None,
    users: Annotated[int, typer.Option(help="Number of users.")] = 100,
    parameters: Annotated[
        int, typer.Option(help="Number of tastes that users share; 0 gives every period its own.")
    ] = 10,
    dim: Annotated[int, typer.Option(help="Number of features of an arm.")] = 25,
    arms: Annotated[int, typer.Option(help="Number of arms.")] = 1000,
    offered: Annotated[int, typer.Option(help="Number of arms that a round offers.")] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds of each user.")] = 2500,
    shortest: Annotated[int, typer.Option(help="Shortest period between changes.")] = 400,
    longest: Annotated[int, typer.Option(help="Longest period between changes.")] = 2500,
    noise: Annotated[float, typer.Option(help="Standard deviation of the rewards.")] = 0.09,
    separation: Annotated[float, typer.Option(help="Least distance between two tastes.")] = 0.9,
    seeds: Seeds = None,
    policies: Policies = None,
    jobs: Jobs = None,
    dask: Dask = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and report.", metavar="DIR")] = Path(
        "dyclu-simulation"
    ),
    shards: Annotated[
        int | None,
        typer.Option(help="Divide the users among so many policies that share what they learn."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="With --shards: growth of a model that is published.", metavar="ALPHA"),
    ] = None,
    delay: Annotated[
        int, typer.Option(help="With --shards: mean rounds that a message takes.", metavar="ROUNDS")
    ] = 0,
    lost: Annotated[
        float, typer.Option(help="With --shards: share of messages that never arrive.")
    ] = 0.0,
    twice: Annotated[
        float, typer.Option(help="With --shards: share of messages that arrive twice.")
    ] = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --shards: print one JSON document instead.")
    ] = False,
) -> None:
    """Compare policies in a population that you describe by options.

    The defaults are row 1 of the paper's Table 1, which takes minutes per run. Runs are stored and
    reported as by dyclu reproduce; the same command continues where it was stopped.

    With --world, policies play in a world that is not the paper's, and are not told the noise:
    dyclu simulate --world clicks --set users=20,rounds=200

    With --shards, atlas or shared-linucb play three times: in one process, with the users divided
    among isolated shards, and among shards that share what they learn. Nothing is stored.
    """
    if shards is not None and world is not None:
        raise OptionError("--shards is not for --world; describe the population by its options")
    if shards is None and (threshold is not None or delay or lost or twice or as_json):
        raise OptionError("--threshold, --delay, --lost, --twice and --json are for --shards")
    if world is not None:
        _refuse_population(context)
        _simulate_world(world, changed or [], seeds, policies, jobs, dask, out)
        return
    if changed:
        raise OptionError("--set is for --world; name a world, or leave it out")
    from dyclu.sim import Population
    from dyclu.sim.runs.contestants import CONTESTANTS
    from dyclu.sim.runs.jobs import Job
    from dyclu.sim.studies.options import command_line, parse_policies, parse_seeds
    from dyclu.sim.studies.study import Study

    setting = Population(
        users=users,
        parameters=parameters or None,
        dim=dim,
        arms=arms,
        offered=offered,
        rounds=rounds,
        shortest=shortest,
        longest=longest,
        noise=noise,
        separation=separation,
    )
    chosen = parse_seeds(seeds, quick=False)
    # Draws one world, so that impossible options are refused before the first run.
    setting.world(chosen[0])
    if shards is not None:
        names = ("atlas",) if policies is None else parse_policies(policies)
        network = given(threshold=threshold) | {"delay": delay, "lost": lost, "twice": twice}
        _simulate_shards(setting, names, chosen, shards, network, as_json)
        return
    study = Study(
        name="simulation",
        title="A simulated population",
        settings={Job(setting, "uniform").name: setting},
        policies=CONTESTANTS if policies is None else parse_policies(policies),
        seeds=chosen,
    )
    options = asdict(setting) | {"parameters": parameters, "seeds": seeds, "policies": policies}
    run_studies({out: study}, out, command_line("simulate", options), jobs, dask)


def _simulate_shards(
    setting: Population,
    policies: Sequence[str],
    seeds: Sequence[int],
    shards: int,
    network: Mapping[str, Any],
    as_json: bool,
) -> None:
    from dyclu.sim.reports.terminal import bar, print_table, progress_bars
    from dyclu.sim.runs.shards import Network
    from dyclu.sim.studies.shards import compare_shards, numbers_of, table_of

    sent, done = Network(**network), iter(range(1, 10**9))
    with progress_bars() as progress:
        step = bar(progress, "runs", 3 * len(policies) * len(seeds))
        found = compare_shards(
            setting, policies, seeds, shards=shards, network=sent, step=lambda: step(next(done))
        )
    if as_json:
        print_json({"setting": asdict(setting), "network": asdict(sent), **numbers_of(found)})
    else:
        print_table(table_of(found))


def _refuse_population(context: typer.Context) -> None:
    """Refuse the options of a population that were given beside --world."""
    from dyclu.sim import Population

    for option in fields(Population):
        source = context.get_parameter_source(option.name)
        if source is not None and source.name == "COMMANDLINE":
            raise OptionError(
                f"--{option.name} is not for --world; write --set {option.name}=VALUE instead"
            )


def _simulate_world(
    world: str,
    changed: list[str],
    seeds: str | None,
    policies: str | None,
    jobs: int | None,
    dask: str | None,
    out: Path,
) -> None:
    from dyclu.sim.runs.wild import CONTESTANTS
    from dyclu.sim.studies.options import (
        command_line,
        parse_policies,
        parse_seeds,
        parse_settings,
    )
    from dyclu.sim.studies.wild import WildStudy
    from dyclu.sim.worlds.named import named

    setting = named(world).with_options(parse_settings(changed))
    study = WildStudy(
        name="simulation",
        title=f"A simulated world: {world}",
        settings={" ".join([world, *changed]): setting},
        policies=CONTESTANTS if policies is None else parse_policies(policies),
        seeds=parse_seeds(seeds, quick=False),
    )
    options = {"world": world, "set": ",".join(changed) or None}
    options |= {"seeds": seeds, "policies": policies}
    run_studies({out: study}, out, command_line("simulate", options), jobs, dask)
