"""Options that are written as text: lists of numbers, seeds and policies; and command lines."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dyclu.errors import OptionError

MOST_NUMBERS = 10_000
"""Most numbers that a list may have."""


def parse_numbers(text: str, name: str) -> tuple[int, ...]:
    """Return the whole numbers of a list such as ``1,4-6``, without repetitions.

    >>> parse_numbers("1,4-6,5", "rows")
    (1, 4, 5, 6)
    """
    span = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")
    found = [span.fullmatch(part) for part in text.split(",")]
    spans = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in found if part]
    if len(spans) < len(found) or not all(spans) or sum(map(len, spans)) > MOST_NUMBERS:
        raise OptionError(
            f"{name} is {text!r}, expected whole numbers such as 1,4-6, "
            f"at most {MOST_NUMBERS:,} of them"
        )
    return tuple(dict.fromkeys(number for numbers in spans for number in numbers))


def parse_seeds(text: str | None, *, quick: bool) -> tuple[int, ...]:
    """Return the seeds: 0, 1, … for a single number, which is their count, or those of a list.

    >>> parse_seeds("3", quick=False), parse_seeds("0,7-9", quick=False)
    ((0, 1, 2), (0, 7, 8, 9))
    """
    asked = text if text is not None else "2" if quick else "5"
    if not re.fullmatch(r"[0-9]{1,9}", asked):
        return parse_numbers(asked, "seeds")
    if not 0 < int(asked) <= MOST_NUMBERS:
        raise OptionError(f"seeds is {asked}, expected a number of runs from 1 to {MOST_NUMBERS:,}")
    return tuple(range(int(asked)))


def parse_policies(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list, without repetitions.

    If one of them is a ``module:Class``, the current folder is added to `sys.path`.
    """
    # Added at the end: at the start, a file queue.py in this folder would replace the standard
    # library's module for every library that imports it.
    if ":" in text and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``key=value`` lists: numbers, true, false, none, or text.

    >>> parse_settings(["users=20,noise=0.3", "rewards=logistic", "constant=none"])
    {'users': 20, 'noise': 0.3, 'rewards': 'logistic', 'constant': None}
    """
    found: dict[str, Any] = {}
    for part in (part for text in texts for part in text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise OptionError(f"set has {part!r}, expected key=value, such as users=20")
        try:
            found[key] = json.loads({"none": "null"}.get(value.lower(), value.lower()))
        except ValueError:
            found[key] = value
    return found


def command_line(name: str, options: Mapping[str, object]) -> str:
    """Return the command with these options; None and False are options that were not given.

    >>> command_line("simulate", {"users": 4, "parameters": 0, "policies": None, "quick": True})
    'dyclu simulate --users=4 --parameters=0 --quick'
    >>> command_line("reproduce lastfm", {"data": "DIR", "serving": "in turn"})
    "dyclu reproduce lastfm --data=DIR '--serving=in turn'"
    """
    given = {
        key: value for key, value in options.items() if value is not None and value is not False
    }
    flags = [f"--{key}" if value is True else f"--{key}={value}" for key, value in given.items()]
    return " ".join([f"dyclu {name}", *map(shlex.quote, flags)])
