"""Runs on a Dask cluster; its scheduler restarts the runs of workers that die."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyclu.errors import MissingExtra, OptionError
from dyclu.sim.runs.jobs import Work
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.workers import Answers, make_run

TIMEOUT = "10s"
"""Time a Dask scheduler has to answer."""


def on_dask(jobs: Mapping[str, Work], address: str) -> Answers:
    """Make runs on the Dask cluster at an address."""
    if not jobs:
        return
    distributed = _distributed()
    with _client(distributed, address) as client:
        futures = {
            client.submit(make_run, job, key, key=f"dyclu-{key}"): key for key, job in jobs.items()
        }
        for future in distributed.as_completed(list(futures), loop=client.loop):
            yield futures[future], _answer(future)


def _answer(future: Any) -> Result | Exception:
    try:
        answer: Result = future.result()
    except Exception as error:  # from a policy, a worker or the network
        return error
    return answer


def _client(distributed: Any, address: str) -> Any:
    try:
        # Checked first: with an invalid address, a client would wait until its timeout.
        distributed.comm.get_address_host_port(address)
        return distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"no Dask scheduler answers at {address!r} ({_first_line(error)}); start one with "
            "`dask scheduler`, workers with `dask worker ADDRESS`, and pass the address it prints"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtra(
            f"a sweep on Dask needs distributed ({error}); pip install 'dyclu[sweep]'"
        ) from error
    return distributed
