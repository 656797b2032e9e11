"""The commands of ``dyclu`` about the service; `dyclu.cli` mounts them.

What a command needs is imported when it runs: so ``dyclu --help`` is fast, and without the extra
``service`` a command says that it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyclu.errors import DycluError, MissingExtra, OptionError

if TYPE_CHECKING:
    from dyclu.service.spec import PolicySpec
    from dyclu.service.tools.sources import Source

SYSTEM = os.name

Config = Annotated[
    Path | None,
    typer.Option(help="A TOML file with the settings.", metavar="FILE", envvar="DYCLU_CONFIG"),
]

Store = Annotated[
    str | None,
    typer.Option(help="PostgreSQL of a cluster, instead of a journal.db.", metavar="URL"),
]
Tenant = Annotated[str, typer.Option(help="Tenant in the database of --store.", metavar="NAME")]


def mount(app: typer.Typer, decorator: Callable[[], Any]) -> None:
    """Add the commands to the command line; `decorator()` is applied to each of them."""
    for command in (serve, key, load, migrate, replay, export, loadtest):
        app.command()(decorator()(_with_extra()(command)))


@contextmanager
def _with_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"this command needs {error.name}: pip install 'dyclu[service]'"
        ) from None


def serve(
    config: Config = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes any free one.", show_default="8321")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder for journals and snapshots.", show_default="dyclu-data"),
    ] = None,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Serve with others, on the database that --store names."),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(
            help="PostgreSQL for the journals, instead of files.",
            show_default="postgresql:///dyclu with --cluster",
            metavar="URL",
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="The policy that serves.", show_default="atlas")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Number of features of an arm.")] = None,
    options: Annotated[
        str | None, typer.Option(help="Options of the policy: noise=0.1,window=30", metavar="LIST")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="online, or shadow to learn from your own choices.", show_default="online"
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Share of decisions with a random arm.", show_default="0")
    ] = None,
    reward_wait: Annotated[
        float | None,
        typer.Option(help="Seconds in which a reward is accepted.", show_default="86400"),
    ] = None,
    default_reward: Annotated[
        float | None, typer.Option(help="Reward that is learnt for a decision that got none.")
    ] = None,
    log_arms: Annotated[
        bool | None, typer.Option("--log-arms", help="Keep all offered arms in the journal.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Features that the library saved; then no --dim.", metavar="FILE"),
    ] = None,
) -> None:
    """Serve decisions over HTTP; what was answered is on disk.

    Settings come from flags, then from variables (DYCLU_PORT), then from a TOML file. Several
    tenants, keys and limits are set in the file. Stop it with Ctrl-C or SIGTERM; SIGHUP reads keys,
    limits, some settings of tenants and a renewed certificate again.
    """
    if SYSTEM != "posix":
        raise DycluError(
            f"dyclu serve needs a POSIX system such as Linux or macOS, this one is {SYSTEM!r}; run "
            "it in WSL or a container. The library, simulations and the client work here"
        )
    from dyclu.service.http.serve import serve as run
    from dyclu.service.settings import Settings, described, settings

    flags = {
        "host": host, "port": port, "data": None if data is None else str(data), "policy": policy,
        "dim": dim, "options": options, "mode": mode, "epsilon": epsilon,
        "reward_wait": reward_wait, "default_reward": default_reward, "log_arms": log_arms,
        "features": None if features is None else str(features), "store": store,
    }  # fmt: skip
    if cluster and store is None and "DYCLU_STORE" not in os.environ and config is None:
        flags["store"] = "postgresql:///dyclu"

    def read() -> Settings:
        return settings(flags, environment=os.environ, file=config)

    told = read()
    for line in described(told):
        typer.echo(line)
    run(told, say=typer.echo, again=read)


def key(
    role: Annotated[
        str, typer.Option(help="read-write, read-only, or operator: metrics and health only.")
    ] = "read-write",
    name: Annotated[str | None, typer.Option(help="Name of the key, for the log.")] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            help="When it ends: after a time (90d, 12h), or at a date (2027-01-31).",
            metavar="TIME",
            show_default="never",
        ),
    ] = None,
) -> None:
    """Make an API key: the key for the caller, its digest for the settings."""
    from datetime import UTC, datetime
    from typing import get_args

    from dyclu.service.http.keys import digest, end_of, new_key
    from dyclu.service.schema import Role

    if role not in get_args(Role):
        raise OptionError(f"role is {role!r}, expected {' or '.join(get_args(Role))}")
    end = None if expires is None else end_of(expires, now=datetime.now(UTC))
    made = new_key()
    typer.echo(f"key: {made}")
    operator = role == "operator"
    table = "operators" if operator else "tenants.NAME.keys"
    typer.echo(f"for the settings, under a [[{table}]] line:")
    typer.echo(f'digest = "{digest(made)}"')
    if not operator:
        typer.echo(f'role = "{role}"')
    if name is not None:
        typer.echo(f'name = "{name}"')
    if end is not None:
        typer.echo(f"expires = {end:%Y-%m-%dT%H:%M:%SZ}")


def load(
    log: Annotated[Path, typer.Argument(help="Log of decisions: a .csv or .parquet file.")],
    config: Config = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Address of the service.", show_default="that of --config, or of this machine"
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="API key, if the service needs one.", envvar="DYCLU_KEY")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the log, part of its rows' ids.", show_default="its file name"),
    ] = None,
    user: Annotated[str, typer.Option(help="Column of the user.")] = "user",
    reward: Annotated[str, typer.Option(help="Column of the reward.")] = "reward",
    arm: Annotated[str, typer.Option(help="Column of what was shown, also in ITEMS.")] = "arm",
    items: Annotated[
        Path | None,
        typer.Option(
            help="File with one row per item.", metavar="ITEMS", show_default="columns of the log"
        ),
    ] = None,
    propensity: Annotated[str | None, typer.Option(help="Column of propensities.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of the time.")] = None,
    decision: Annotated[
        str | None,
        typer.Option(help="Column of the decision's id.", show_default="rows are numbered"),
    ] = None,
) -> None:
    """Let a running service learn a log, in its order.

    The service must declare features; the columns of the log are turned into vectors by them. The
    whole log is checked before a row is sent. After an interruption run it again: rows that were
    learnt are not learnt twice, as long as file and --name are the same.
    """
    from dyclu.client import Client
    from dyclu.data import Log

    with Client(url or _address(config), key=key, timeout=30.0) as client:
        features = client.features()
        if features is None:
            raise OptionError(
                "the service declares no features, so columns cannot be turned into vectors; "
                "declare them ([tenants.NAME.features]), or send vectors: dyclu.client.Client"
            )
        read = Log.read(
            log, features=features, user=user, reward=reward, arm=arm if items else None,
            items=items, propensity=propensity, time=time, decision=decision,
        )  # fmt: skip
        with _bar("loading", read.rows or 0) as progress:
            done = client.load(read, name=name or log.stem, progress=progress)
    typer.echo(f"learnt: {done.rows - done.repeated} rows; {done.repeated} were known already")


def _address(config: Path | None) -> str:
    """Return the address of the service that the settings describe."""
    from dyclu.service.settings import settings

    told = settings({} if config else {"dim": 1}, environment=os.environ, file=config)
    host = "127.0.0.1" if told.host in ("0.0.0.0", "::") else told.host
    scheme = "http" if told.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{told.port}"


def migrate(
    data: Annotated[Path, typer.Argument(help="Data folder of a service that is stopped.")],
    store: Annotated[
        str,
        typer.Option(help="PostgreSQL to move to.", metavar="URL", envvar="DYCLU_STORE"),
    ],
    partitions: Annotated[
        int, typer.Option(help="Partitions per tenant; cannot change later.", min=1, max=4096)
    ] = 64,
    tenant: Annotated[
        str | None, typer.Option(help="Move this tenant only.", show_default="all")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Name of your own policy (module:Class), if one served."),
    ] = None,
    forget_base: Annotated[
        bool,
        typer.Option("--forget-base", help="Learn from the kept lines only, if others are gone."),
    ] = False,
) -> None:
    """Move journals from files to PostgreSQL, for several processes.

    Each tenant is moved in one transaction, and verified before it is committed: every user's
    history, and what each partition has learnt. The folder is only read. After an interruption run
    it again; what was moved before is verified again.
    """
    from dyclu.service.disk.postgres.database import Database
    from dyclu.service.tools.migration.migrate import Plan
    from dyclu.service.tools.migration.migrate import migrate as run

    database, plan = Database(store, most=1), Plan(partitions, policy, forget_base)
    with closing(database), _bar("moving", 1.0) as progress:
        for one in run(
            data, database, plan, tenant=tenant, progress=lambda _, share: progress(share)
        ):
            done = "moved and" if one.now else "was moved before, and is"
            if one.users is None:
                typer.echo(f"{one.tenant}: was moved before, and has been served since")
            else:
                typer.echo(
                    f"{one.tenant}: {done} verified: {one.lines} lines about {one.users} users, "
                    f"{partitions} partitions"
                )


def replay(
    journal: Annotated[
        Path | None, typer.Argument(help="journal.db of a tenant; none with --store.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Policy to compare with.", show_default="the same")
    ] = None,
    options: Annotated[
        str | None, typer.Option(help="Options of the policy: noise=0.1,window=30", metavar="LIST")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Save the policy after the replay.", metavar="FILE")
    ] = None,
    store: Store = None,
    tenant: Tenant = "default",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Replay a journal with another policy, and compare it with the one that served.

    Compares errors of prediction and noticed changes. If all offered arms were kept (--log-arms),
    also how often both choose the same arm, and the estimated mean reward. With --store, all
    partitions of a cluster's tenant, each with a policy of its own. Only reads; the service may be
    running.
    """
    import json

    from dyclu.service.tools.replay import replay as run
    from dyclu.service.tools.sources import length, sources

    with sources(journal, store=store, tenant=tenant) as journals:
        if save is not None and len(journals) > 1:
            raise OptionError(
                f"--save stores one policy, but {tenant} has {len(journals)} partitions, each with "
                "a policy of its own; leave --save out"
            )
        served, other = _compared(journals, policy, options)
        with _bar("replaying", length(journals)) as progress:
            report = run(journals, served, other, progress=progress)
    if save is not None:
        report.other.policy.save(save)
    if as_json:
        typer.echo(json.dumps(report.numbers(), indent=2))
    else:
        _print(report.numbers())


def _compared(
    journals: Sequence[Source], policy: str | None, options: str | None
) -> tuple[PolicySpec, PolicySpec]:
    """Return the policy that served, and the one that it is compared with."""
    import json

    from dyclu.service.settings import as_options
    from dyclu.service.spec import PolicySpec

    noted = next((facts for one in journals if (facts := one.reader.facts().served)), "")
    if not noted:
        raise OptionError(
            f"{journals[0].origin} was never served, so there is nothing to compare with"
        )
    served = PolicySpec(**json.loads(noted))
    if policy is None and served.own:
        raise OptionError(
            f"the journal was served by {served.name}, and a journal must not make a program "
            f"import a module; if you trust it, pass --policy {served.name}"
        )
    told = served.options if policy in (None, served.name) else {}
    told = told if options is None else told | as_options(options)
    return served, PolicySpec(policy or served.name, served.dim, told)


def export(
    journal: Annotated[
        Path | None, typer.Argument(help="journal.db of a tenant; none with --store.")
    ] = None,
    out: Annotated[
        Path | None, typer.Argument(help="File to write: .csv or .parquet.", show_default="needed")
    ] = None,
    arms: Annotated[
        bool, typer.Option("--arms", help="One row per offered arm, for dyclu evaluate.")
    ] = False,
    store: Store = None,
    tenant: Tenant = "default",
) -> None:
    """Write decisions and rewards as a table, CSV or Parquet.

    One row per slot of a decision, or observation, with its reward if there is one. With --arms one
    row per offered arm, of decisions whose arms were kept (--log-arms) and whose reward is known:
    `dyclu evaluate` reads this table. With --store, all partitions of a cluster's tenant, one after
    the other. Only reads; the service may be running.
    """
    from dyclu.service.tools.export.arms import export_arms
    from dyclu.service.tools.export.decisions import export as run
    from dyclu.service.tools.sources import length, sources

    if store is not None and out is None:
        journal, out = None, journal
    if out is None:
        raise OptionError("no file to write was named; pass one that ends in .csv or .parquet")
    with (
        sources(journal, store=store, tenant=tenant) as journals,
        _bar("exporting", length(journals)) as progress,
    ):
        if arms:
            made = export_arms(journals, out, progress=progress)
            told = [f"{made.rows} rows of {made.decisions} decisions", *made.notes]
        else:
            told = [f"{run(journals, out, progress=progress)} rows"]
    typer.echo(f"written: {out} ({told[0]})")
    for note in told[1:]:
        typer.echo(note)


def loadtest(
    url: Annotated[str, typer.Argument(help="Address of the service.")] = "http://127.0.0.1:8321",
    users: Annotated[int, typer.Option(help="Number of users.", min=1)] = 1000,
    tastes: Annotated[int, typer.Option(help="Number of tastes.", min=1)] = 10,
    arms: Annotated[int, typer.Option(help="Arms per decision.", min=1, max=500)] = 10,
    slots: Annotated[int, typer.Option(help="Slots per decision.", min=1, max=32)] = 1,
    noise: Annotated[float, typer.Option(help="Standard deviation of the rewards.", min=0)] = 0.1,
    clients: Annotated[int, typer.Option(help="Number of connections.", min=1)] = 64,
    seconds: Annotated[float, typer.Option(help="Duration.", min=0.1)] = 10.0,
    rate: Annotated[
        float | None,
        typer.Option(help="Rounds per second.", show_default="as many as are answered"),
    ] = None,
    rewarded: Annotated[
        float, typer.Option(help="Share of decisions that are rewarded.", min=0, max=1)
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same users.", min=0)] = 0,
    key: Annotated[
        str | None, typer.Option(help="API key, if the service needs one.", envvar="DYCLU_KEY")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Run a load test against a running service; report latencies and regret.

    Simulated users ask for decisions and reward them. Use a service with its own data folder: it
    learns from these rewards, and they stay in its journal.
    """
    import asyncio
    import json

    from dyclu.service.tools.loadtest import Load, load

    wanted = Load(
        users=users, tastes=tastes, arms=arms, slots=slots, noise=noise, clients=clients,
        seconds=seconds, rate=rate, rewarded=rewarded, seed=seed,
    )  # fmt: skip
    with _bar("asking", seconds) as progress:
        served = asyncio.run(load(url, wanted, key=key, progress=progress))
    if as_json:
        typer.echo(json.dumps(served.numbers(), indent=2))
    else:
        _print(served.numbers())


@contextmanager
def _bar(name: str, total: float) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done: progress.update(task, completed=done)


def _print(numbers: dict[str, Any]) -> None:
    for name, value in numbers.items():
        words = name.replace("_", " ")
        if isinstance(value, dict):
            value = ", ".join(f"{key} {part}" for key, part in value.items()) or "none"
        typer.echo(f"{words:26} {'–' if value is None else value}")
