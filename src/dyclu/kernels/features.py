"""Features by name: numbers that are scaled, marks of values, and their products."""

from __future__ import annotations

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.validation import FloatArray, Ids


@compiled
def fill(
    numbers: FloatArray,
    mean: FloatArray,
    scale: FloatArray,
    clip: FloatArray,
    flags: Ids,
    marks: FloatArray,
    largest: float,
    constant: int,
    block: FloatArray,
) -> bool:
    """Write the constant 1, ``(x − mean) / scale`` cut to ±clip, and the marks into a block.

    A missing number (NaN) is 0, and 1 in the feature that `flags` names for it, if that is not −1.
    Returns False, with an unfinished block, if a number is beyond ±largest.
    """
    rows, columns = numbers.shape
    start = block.shape[1] - marks.shape[1]
    for i in range(rows):
        block[i, :constant] = 1.0
        block[i, constant + columns : start] = 0.0
        for j in range(columns):
            number = numbers[i, j]
            if abs(number) > largest:
                return False
            if np.isnan(number):
                block[i, constant + j] = 0.0
                if flags[j] >= 0:
                    block[i, constant + flags[j]] = 1.0
            else:
                scaled = (number - mean[j]) / scale[j]
                block[i, constant + j] = max(min(scaled, clip[j]), -clip[j])
        block[i, start:] = marks[i]
    return True


@compiled
def mark(places: Ids, marks: FloatArray) -> None:
    """Set the places of each row to 1; `places` has shape (columns, rows), −1 is nowhere."""
    for column in places:
        for i in range(len(column)):
            if column[i] >= 0:
                marks[i, column[i]] = 1.0


@compiled
def join(
    arms: FloatArray,
    context: FloatArray,
    own_arm: Ids,
    own_context: Ids,
    ours: Ids,
    theirs: Ids,
    constant: int,
    vectors: FloatArray,
) -> None:
    """Write the intercept, features of arms, of contexts, and products of both, into vectors.

    `context` has one row for all arms, or one for each. `ours` and `theirs` are the factors of the
    products.
    """
    for i in range(len(arms)):
        mine, other, row = arms[i], context[i if len(context) > 1 else 0], vectors[i]
        row[:constant] = 1.0
        at = constant
        for place in own_arm:
            row[at] = mine[place]
            at += 1
        for place in own_context:
            row[at] = other[place]
            at += 1
        for j in range(len(ours)):
            row[at] = other[theirs[j]] * mine[ours[j]]
            at += 1
