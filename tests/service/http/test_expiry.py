"""Keys that end: told by metrics and log from two weeks before, refused from their end on."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.service.http.keys import DAY, Keyring, Reminders, digest
from dyclu.service.settings import Settings, settings
from tests.service.running import Running, running

END = datetime(2030, 6, 1, tzinfo=UTC).timestamp()


class Clock:
    """A clock that is set by hand."""

    now = END - 100 * DAY

    def __call__(self) -> float:
        return self.now


def given(data: Path) -> Settings:
    """Two tenants; a key of the first and the operator's expire at `END`."""
    file = data / "service.toml"
    file.write_text(
        f"""
        data = "{data / "data"}"
        port = 0
        [[operators]]
        digest = "{digest("ops")}"
        name = "night-watch"
        expires = 2030-06-01T00:00:00Z
        [tenants.shop]
        dim = 2
        policy = "linucb"
        [[tenants.shop.keys]]
        digest = "{digest("ends")}"
        role = "read-write"
        name = "checkout"
        expires = 2030-06-01T00:00:00Z
        [[tenants.shop.keys]]
        digest = "{digest("stays")}"
        role = "read-write"
        name = "checkout"
        expires = 2030-06-01T12:00:00Z
        [tenants.news]
        dim = 2
        policy = "linucb"
        [[tenants.news.keys]]
        digest = "{digest("news")}"
        role = "read-only"
        """
    )
    return settings({}, environment={}, file=file)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(tmp_path: Path, clock: Clock) -> Iterator[Running]:
    told = given(tmp_path)
    with running(told) as made:
        made.service.keyring = Keyring(told, clock=clock)
        yield made


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_key_that_expires_while_the_service_runs_is_refused_from_then_on(
    service: Running, clock: Clock
) -> None:
    def ask(key: str) -> int:
        return service.http.get("/v1/policy", headers=bearer(key)).status_code

    clock.now = END - 0.001
    assert (ask("ends"), ask("stays")) == (200, 200)
    clock.now = END
    assert (ask("ends"), ask("stays"), ask("ends")) == (401, 200, 401)
    refused = service.http.get("/v1/policy", headers=bearer("ends")).json()["error"]
    assert refused["code"] == "expired"
    assert service.http.get("/metrics", headers=bearer("ops")).status_code == 401


def left(service: Running, key: str) -> dict[tuple[str | None, str], float]:
    """Return the seconds that the metrics tell, by tenant and key."""
    text = service.http.get("/metrics", headers=bearer(key)).text
    (family,) = (one for one in parse(text) if one.name == "dyclu_key_seconds_left")
    found = [(one.labels.get("tenant"), one.labels["key"]) for one in family.samples]
    assert len(set(found)) == len(found)
    return {(one.labels.get("tenant"), one.labels["key"]): one.value for one in family.samples}


def test_a_metric_tells_keys_from_fourteen_days_before_they_expire(
    service: Running, clock: Clock
) -> None:
    clock.now = END - 14 * DAY - 1
    assert left(service, "ops") == {}
    clock.now = END - 13 * DAY
    expected = {("shop", "checkout"): 13 * DAY, (None, "night-watch"): 13 * DAY}
    assert left(service, "ops") == expected
    # Tenants see their own keys only.
    assert left(service, "stays") == {("shop", "checkout"): 13 * DAY}
    assert left(service, "news") == {}
    clock.now = END + 1
    assert left(service, "stays") == {("shop", "checkout"): 0}


def test_the_log_reminds_of_a_key_once_a_day_until_it_expires(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    told, reminders = given(tmp_path), Reminders()

    def said(now: float) -> list[Any]:
        clock.now = now
        caplog.clear()
        # A reload makes another keyring; that is no reason to say it again.
        reminders.remind(Keyring(told, clock=clock))
        return [one.message for one in caplog.records if "night-watch" in one.message]

    assert said(END - 14 * DAY - 1) == []
    (first,) = said(END - 14 * DAY)
    assert "night-watch of the operators expires in 14.0 days (2030-06-01T00:00:00+00:00)" in first
    quiet = [END - 14 * DAY + seconds for seconds in (10, DAY / 2, DAY - 1)]
    assert [said(now) for now in quiet] == [[]] * 3
    hourly = [END - 13 * DAY + 3600 * hour for hour in range(24 * 14)]
    lines = [line for now in hourly for line in said(now)]
    # One a day on the remaining thirteen, and none once it has expired.
    assert len(lines) == 13


def test_a_service_reminds_by_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = given(tmp_path)
    soon = datetime.fromtimestamp(datetime.now(UTC).timestamp() + 3 * DAY, UTC)
    file = tmp_path / "service.toml"
    file.write_text(file.read_text().replace("2030-06-01T00:00:00Z", soon.isoformat()))
    made = settings({}, environment={}, file=file)
    with running(made):
        pass
    assert "the key checkout of tenant shop expires in 3.0 days" in caplog.text


@pytest.mark.parametrize("role", ["read-write", "operator"])
def test_dyclu_key_writes_when_a_key_expires(role: str) -> None:
    done = CliRunner().invoke(app, ["key", f"--role={role}", "--expires=90d"])
    assert done.exit_code == 0
    table = tomllib.loads(done.stdout[done.stdout.index("digest") :])
    ends = table["expires"].timestamp() - datetime.now(UTC).timestamp()
    assert ends == pytest.approx(90 * DAY, abs=60)
    dated = CliRunner().invoke(app, ["key", "--expires=2090-01-31"])
    assert "expires = 2090-01-31T00:00:00Z" in dated.stdout


@pytest.mark.parametrize("text", ["soon", "90", "-5d", "0d", "2020-01-01", "9" * 30 + "d", ""])
def test_dyclu_key_refuses_an_end_that_is_none_or_is_over(text: str) -> None:
    done = CliRunner().invoke(app, ["key", f"--expires={text}"])
    assert done.exit_code != 0
    assert f"expires is {text!r}" in str(done.exception) + done.output
    assert "key: " not in done.output
