"""Section 4 of the paper: its settings by name, and the regret that Table 1 prints.

>>> SETTINGS["row4"].shortest, SETTINGS["row4"].longest
(200, 400)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dyclu.sim.worlds.population import Population

NEVER = 10**9
"""A period longer than any run: users never change."""

_TABLE_1 = (
    # m, S_min, S_max, σ, then the regret of each of _COLUMNS
    (10, 400, 2500, 0.09, 115, 19954, 9872, 2432, 20274, 853),
    (50, 400, 2500, 0.09, 489, 20952, 9563, 2420, 21205, 1363),
    (100, 400, 2500, 0.09, 873, 21950, 10961, 2549, 22280, 1958),
    (10, 200, 400, 0.09, 112, 39249, 36301, 10831, 39436, 3025),
    (10, 800, 1000, 0.09, 113, 34385, 13788, 3265, 34441, 1139),
    (10, 1200, 1400, 0.09, 112, 24769, 8124, 2144, 24980, 778),
    (10, 400, 2500, 0.12, 166, 22453, 10567, 3301, 22756, 1140),
    (10, 400, 2500, 0.15, 232, 19082, 10000, 5872, 19427, 1487),
    (10, 400, 2500, 0.18, 307, 23918, 11255, 9848, 24050, 1956),
)
_COLUMNS = ("oracle", "linucb", "adts", "dlinucb", "club", "dyclu")

_SECTION_4 = Population(
    users=100,
    parameters=5,
    dim=25,
    arms=1000,
    offered=10,
    rounds=2500,
    shortest=400,
    longest=2500,
    noise=0.09,
    separation=0.9,
)
"""Environment 3. The paper does not state the periods and the noise of the environments."""

SETTINGS: Mapping[str, Population] = MappingProxyType(
    {
        f"row{number}": replace(
            _SECTION_4, parameters=parameters, shortest=shortest, longest=longest, noise=noise
        )
        for number, (parameters, shortest, longest, noise, *_) in enumerate(_TABLE_1, start=1)
    }
    | {
        "env1": replace(_SECTION_4, shortest=NEVER, longest=NEVER),
        "env2": replace(_SECTION_4, users=20, parameters=None, shortest=500, longest=500),
        "env3": _SECTION_4,
    }
)
"""The rows of Table 1 and the environments of Figure 1."""

PUBLISHED: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        f"row{number}": MappingProxyType(dict(zip(_COLUMNS, map(float, regrets), strict=True)))
        for number, (_, _, _, _, *regrets) in enumerate(_TABLE_1, start=1)
    }
)
"""The accumulated regret of Table 1, by row and policy."""
