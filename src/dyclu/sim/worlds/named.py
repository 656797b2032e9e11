"""Wild worlds by name.

>>> WORLDS["clicks"].rewards
'logistic'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dyclu.errors import OptionError
from dyclu.sim.worlds.wild import Wild

_NEVER: dict[str, Any] = {"shortest": 10**9, "longest": 10**9}
_CLICKS: dict[str, Any] = {"rewards": "logistic", "offset": -1.0, "slope": 4.0}
_RARE: dict[str, Any] = {"rewards": "logistic", "offset": -3.4, "slope": 4.0}
_RARER: dict[str, Any] = {"rewards": "logistic", "offset": -4.2, "slope": 4.0}

WORLDS: Mapping[str, Wild] = MappingProxyType(
    {
        # Noise
        "quiet": Wild(),
        "noisy": Wild(noise=0.25),
        "faint": Wild(noise=0.45),
        "heavy-tails": Wild(rewards="student", noise=0.25),
        "loud-and-quiet": Wild(noise=0.15, loudness=4.0),
        # Clicks: about 30 %, 50 % and 5 %
        "clicks": Wild(**_CLICKS),
        "clicks-steady": Wild(**_CLICKS, **_NEVER),
        "clicks-linear": Wild(rewards="linear", offset=0.5, slope=0.5, **_NEVER),
        "clicks-crowd": Wild(users=200, parameters=3, dim=8, rounds=200, **_CLICKS),
        "rare-clicks": Wild(users=200, parameters=3, dim=8, rounds=200, **_RARE, **_NEVER),
        "rare-clicks-alike": Wild(users=200, parameters=1, dim=4, rounds=100, **_RARER, **_NEVER),
        # Offsets
        "constant-feature": Wild(constant=2.0),
        "offset": Wild(offset=1.0, noise=0.2),
        # Tastes
        "near": Wild(spread=0.4),
        "far": Wild(spread=0.8),
        "drift": Wild(drift=0.6),
        "all-alike": Wild(parameters=1, noise=0.3, **_NEVER),
        "all-different": Wild(parameters=50, noise=0.2),
        "many-tastes": Wild(users=200, parameters=30, dim=20, rounds=200),
        "own-tastes": Wild(users=20, parameters=None, dim=8, rounds=600, noise=0.2),
        # Users
        "power-law": Wild(users=1000, parameters=3, dim=8, rounds=20, activity=1.0),
        "come-and-go": Wild(users=200, rounds=150, arrivals=0.8, departures=0.4),
        "few": Wild(users=20, parameters=3, dim=4, rounds=400, noise=0.2),
        "crowd": Wild(users=1000, parameters=30, dim=8, rounds=40, shortest=15, longest=40),
        # Arms and rewards
        "correlated": Wild(correlation=0.7, noise=0.2),
        "badly-scaled": Wild(scales=30.0),
        "one-hot": Wild(parameters=3, dim=20, arms=20, one_hot=True, **_CLICKS, **_NEVER),
        "new-arms": Wild(arms=20, catalogues=10, noise=0.2),
        "long-features": Wild(users=20, parameters=3, dim=40, rounds=600),
        "late": Wild(delay=500, noise=0.2),
    }
)
"""The worlds of `dyclu reproduce wild`."""


def named(name: str) -> Wild:
    """Return a world's options by its name."""
    if name not in WORLDS:
        raise OptionError(f"no world is called {name!r}; choose one of {', '.join(WORLDS)}")
    return WORLDS[name]
