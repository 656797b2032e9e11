"""Simulations: draw a world from a population, let a policy play in it, measure the run.

>>> world = Population(users=3, parameters=2, rounds=4, shortest=2, longest=4).world(seed=0)
>>> len(world)
12
"""

from dyclu.sim.runs.measures import Detections, Summary, detections, regret, summary
from dyclu.sim.runs.play import Run, play
from dyclu.sim.worlds.population import Population, Seed, World
from dyclu.sim.worlds.rounds import Round
from dyclu.sim.worlds.wild import Wild

__all__ = [
    "Detections",
    "Population",
    "Round",
    "Run",
    "Seed",
    "Summary",
    "Wild",
    "World",
    "detections",
    "play",
    "regret",
    "summary",
]
