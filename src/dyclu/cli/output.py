"""What commands print: results on stdout, errors and warnings on stderr, one line each."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from dyclu.errors import DycluError

REFUSED = 2
INTERRUPTED = 130
"""Exit statuses: the command refuses its options or fails; Ctrl-C (128 + SIGINT, as in shells)."""


@contextmanager
def errors_on_stderr() -> Iterator[None]:
    """Decorate a command: an error becomes one line on stderr and an exit status."""
    try:
        yield
    except BrokenPipeError:
        # The reader of our output has closed it, as `| head` does; typer exits without a message.
        raise
    except (DycluError, OSError) as error:
        print_error(str(error))
        raise typer.Exit(REFUSED) from None
    except MemoryError as error:
        print_error(f"not enough memory ({error}); ask for fewer users, rounds or features")
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt as stop:
        print_error(str(stop) or "interrupted")
        raise typer.Exit(INTERRUPTED) from None


def print_error(message: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"dyclu: {message}", err=True)


def print_json(document: Mapping[str, object]) -> None:
    """Print a document; NaN and infinity are refused, since JSON has neither."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def print_files(files: Sequence[Path]) -> None:
    """Print which files were written."""
    for file in files:
        typer.echo(f"written: {file}")


class _WarningsOnStderr(logging.Handler):
    """Prints the warnings of the library on stderr, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error(record.getMessage())


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Print warnings of the library on stderr meanwhile."""
    logger, handler = logging.getLogger("dyclu"), _WarningsOnStderr(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def silence_matplotlib() -> None:
    """Hide matplotlib's messages about its caches."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
