"""What a check is: a rule that a policy keeps, or breaks with `NonConformance`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import NoReturn, ParamSpec

from dyclu.policy import Policy

Make = Callable[[], Policy]
Load = Callable[[Path], Policy]
Check = Callable[..., None]
_Options = ParamSpec("_Options")


CHECKS: list[Check] = []
"""The contract: all checks, in the order in which `check_policy` runs them."""


class NonConformance(AssertionError):  # noqa: N818 - the name says what it is
    """A policy breaks its contract.

    Attributes
    ----------
    checks : tuple of str
        Names of the checks that failed.
    """

    def __init__(self, message: str, *, checks: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.checks = tuple(checks)


def rule(check: Callable[_Options, None]) -> Callable[_Options, None]:
    """Add a check to `CHECKS`, and its name to its failures; an exception is a failure too."""
    name = check.__name__

    @wraps(check)
    def run(*args: _Options.args, **kwargs: _Options.kwargs) -> None:
        try:
            check(*args, **kwargs)
        except NonConformance as failure:
            raise NonConformance(f"{name}: {failure}", checks=[name]) from None
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
            raise NonConformance(
                f"{name}: expected no exception; saw {seen}", checks=[name]
            ) from error

    CHECKS.append(run)
    return run


def fail(expected: str, seen: object) -> NoReturn:
    """Say what was expected and what was seen instead."""
    raise NonConformance(f"expected {expected}; saw {seen}")


def expect(held: bool, expected: str, seen: object) -> None:
    """Fail if something does not hold."""
    if not held:
        fail(expected, seen)
