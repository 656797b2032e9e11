"""The commands ``dyclu serve | key | replay | export | loadtest``; `dyclu.cli` mounts them.

What a command needs is imported when it runs: without the extra ``service`` they say so, and
``dyclu --help`` answers at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from dyclu.errors import MissingExtra

Manners = Callable[[], AbstractContextManager[None]]
Config = Annotated[
    Path | None,
    typer.Option(help="A TOML file with the settings.", metavar="FILE", envvar="DYCLU_CONFIG"),
]


def mount(app: typer.Typer, manners: Callable[[], Any]) -> None:
    """Add the commands to the command line; `manners` decorates each of them."""
    for command in (serve, key):
        app.command()(manners()(_with_extra()(command)))


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
    policy: Annotated[
        str | None, typer.Option(help="Which policy serves.", show_default="linucb")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Number of features of an arm.")] = None,
    options: Annotated[
        str | None, typer.Option(help="What it is made with: noise=0.1,window=30", metavar="LIST")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="online, or shadow to learn from your own choices.", show_default="online"
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Share of decisions taken at random.", show_default="0")
    ] = None,
    reward_wait: Annotated[
        float | None, typer.Option(help="Seconds a reward is waited for.", show_default="86400")
    ] = None,
    default_reward: Annotated[
        float | None, typer.Option(help="Learnt of decisions without a reward.")
    ] = None,
    log_arms: Annotated[
        bool | None, typer.Option("--log-arms", help="Keep all offered arms in the journal.")
    ] = None,
) -> None:
    """Serve decisions over HTTP; nothing acknowledged is ever lost.

    Settings come from flags, then from variables (DYCLU_PORT), then from a TOML file. Several
    tenants, keys and limits are set up in the file. Stop it with Ctrl-C or SIGTERM, or kill it.
    """
    from dyclu.service.serve import serve as run
    from dyclu.service.settings import described, settings

    flags = {
        "host": host, "port": port, "data": None if data is None else str(data), "policy": policy,
        "dim": dim, "options": options, "mode": mode, "epsilon": epsilon,
        "reward_wait": reward_wait, "default_reward": default_reward, "log_arms": log_arms,
    }  # fmt: skip
    told = settings(flags, environment=os.environ, file=config)
    for line in described(told):
        typer.echo(line)
    run(told, say=typer.echo)


def key(
    role: Annotated[str, typer.Option(help="read-write or read-only.")] = "read-write",
) -> None:
    """Make an API key: the key for the caller, its digest for the settings."""
    from dyclu.service.keys import digest, new_key

    made = new_key()
    typer.echo(f"key: {made}")
    typer.echo("for the settings, under a [[tenants.NAME.keys]] line:")
    typer.echo(f'digest = "{digest(made)}"\nrole = "{role}"')
