"""`Refusal`: the error of a request that the service does not carry out; has an HTTP status."""

from __future__ import annotations

from dyclu.errors import DycluError


class Refusal(DycluError):  # noqa: N818 - not an error of ours
    """A request that is not carried out, and why.

    Attributes
    ----------
    status : int
        The HTTP status.
    code : str
        A word that programs can compare; the message is for people.
    field : str or None
        The part of the request that is wrong.
    retry_after : int or None
        Seconds after which the same request may succeed.

    Examples
    --------
    >>> refusal = Refusal(422, "limit", "2000 arms, expected at most 1000", field="arms")
    >>> refusal.status, refusal.field, str(refusal)
    (422, 'arms', '2000 arms, expected at most 1000')
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field
        self.retry_after = retry_after


def over_limit(field: str, limit: str, got: object, most: object, *, status: int = 422) -> Refusal:
    """Return the refusal of something too large, with the limit's name in the settings.

    >>> str(over_limit("reward", "max_reward", 1e9, 1e6))
    'reward is 1000000000.0, expected at most 1000000.0 (limit max_reward)'
    """
    return Refusal(
        status, "limit", f"{field} is {got}, expected at most {most} (limit {limit})", field=field
    )
