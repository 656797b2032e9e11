"""`offers_of`: what a decision of the journal offered, slot by slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dyclu.policy import position_of
from dyclu.service.engine.lines import DecisionBody, SlotBody
from dyclu.validation import FloatArray


@dataclass(frozen=True, slots=True)
class Offer:
    """The arms that could be shown in one slot, given those of the slots before.

    Attributes
    ----------
    slot : int
        Number of the slot, from 1.
    shown : SlotBody
        What was shown.
    ids : list of str
        The arms that could be.
    vectors : array of shape (arms, dim)
        Their features, with the slot's position if the tenant has a feature of it.
    """

    slot: int
    shown: SlotBody
    ids: list[str]
    vectors: FloatArray


def offers_of(decision: DecisionBody) -> Iterator[Offer]:
    """Yield the offer of each slot; none if the journal does not have the offered arms."""
    left = list(decision.arms or ())
    for slot, shown in enumerate(decision.all_slots if left else (), 1):
        vectors = np.array([arm.features for arm in left])
        if decision.position is not None:
            vectors[:, decision.position] = position_of(slot)
        yield Offer(slot, shown, [arm.id for arm in left], vectors)
        left = [arm for arm in left if arm.id != shown.arm]
