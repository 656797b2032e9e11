"""Places on an atlas, for people to read: a model, where somebody is, and a move between models."""

from __future__ import annotations

from dataclasses import dataclass, field

from dyclu.validation import FloatArray, User


@dataclass(frozen=True, slots=True)
class Model:
    """A taste that users share.

    Attributes
    ----------
    id : int
        Its name; never used again.
    size : int
        How many observations it holds.
    estimate : array of shape (dim,)
        The posterior mean of its parameter.
    users : int
        How many users are located on it.
    founded, visited : int
        How many rewards of all users had been learnt when it was founded, and last added to.
    """

    id: int
    size: int
    estimate: FloatArray = field(repr=False, compare=False)
    users: int
    founded: int
    visited: int


@dataclass(frozen=True, slots=True)
class Location:
    """Where a user is.

    Attributes
    ----------
    user : str or int
        Who.
    model : int or None
        Id of the model they are on, or most likely on; None for somebody new.
    located : bool
        Whether that is settled; if not, they are on probation.
    since : int
        How many rewards of all users had been learnt when it came to be so.
    belief : dict of int to float
        Chances of the models they may be on; those below 0.1 % are left out, and those up to 2 %
        while they are on probation.
    new : float
        Chance that they are on no known model.
    """

    user: User
    model: int | None
    located: bool
    since: int
    belief: dict[int, float]
    new: float
