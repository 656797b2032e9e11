"""Schemathesis: requests made from the OpenAPI document, and answers held to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dyclu.service.http.views.openapi import document
from tests.service.running import Running, running, told

schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(told(tmp_path_factory.mktemp("schema"))) as made:
        yield made


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_answers_conform_to_the_openapi_document(service: Running, case: Any) -> None:
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    case.call_and_validate(base_url=service.url, checks=checks)
