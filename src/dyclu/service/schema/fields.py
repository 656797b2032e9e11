"""Types of single fields: ids, features, slots, and the words that settings may have."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from dyclu.validation import ID as ID
from dyclu.validation import LONGEST_ID as LONGEST_ID

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_ID,
        pattern=ID,
        description="Letters, digits and _.:@+=~- (beginning with a letter, a digit or _).",
        examples=["ana"],
    ),
]
Features = Annotated[list[float], Meta(min_length=1, description="One number per feature.")]
LONGEST_TEXT = 500
Label = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Columns = Annotated[
    dict[Label, Label | int | float | bool | list[Label | int | float | bool] | None],
    Meta(
        description="Values by the names of declared columns: numbers, categories, lists of tags.",
        examples=[{"category": "jazz", "price": 3.2}],
    ),
]
Instant = Annotated[
    float, Meta(ge=0, le=253_402_300_799, description="Seconds since 1970.", examples=[1.7e9])
]
Chance = Annotated[float, Meta(gt=0, le=1)]
TenantRole = Literal["read-only", "read-write"]
Role = Literal["read-only", "read-write", "operator"]
LogFormat = Literal["plain", "json"]
Mode = Literal["online", "shadow"]
Combination = Literal["first", "sum", "last"]
Learning = Literal["arrival", "settled"]
Baseline = Literal["uniform", "order", "caller"]

MOST_SLOTS = 32
"""Slots of one decision: a pending decision stores in so many bits which of them wait."""

Slot = Annotated[int, Meta(ge=1, le=MOST_SLOTS, description="Number of a slot, from 1.")]
