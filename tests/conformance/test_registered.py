"""Every policy of the library keeps the contract."""

from __future__ import annotations

from functools import partial

import pytest

from dyclu import policies
from dyclu.conformance import CHECKS, Check

DIM = 5


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", policies.names())
def test_policy_keeps_the_contract(name: str, check: Check) -> None:
    check(partial(policies.make, name, dim=DIM))
