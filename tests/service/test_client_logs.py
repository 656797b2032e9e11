"""Logs through the client and `dyclu load`: in order, once, and checked before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dyclu
from dyclu.cli import app
from dyclu.client import AsyncClient, Client, Loaded, ServiceError
from dyclu.client.logs import BATCH
from dyclu.errors import DycluError, KindError, NumberError, OptionError
from dyclu.service.disk.sqlite.reader import JournalReader
from tests.service.running import Running, running, told

FEATURES = dyclu.Features(
    arm={
        "genre": {"kind": "category", "values": ["jazz", "rock"]},
        "price": {"kind": "number", "mean": 10.0, "scale": 5.0},
    },
    context={"country": {"kind": "category", "values": ["de", "fr"]}},
)
ROLES = {"user": "who", "reward": "clicked", "time": "at", "propensity": "chance"}


def frame(rows: int = 1200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "who": [f"u{n}" for n in rng.integers(30, size=rows)],
            "at": 1.7e9 + np.arange(rows),
            "genre": rng.choice(["jazz", "rock", "folk"], rows),
            "price": rng.normal(10, 5, rows),
            "country": rng.choice(["de", "fr"], rows),
            "clicked": rng.integers(2, size=rows).astype(float),
            "chance": 0.5,
            "id": [f"d{n}" for n in range(rows)],
        }
    )


def read(table: Any, **more: Any) -> dyclu.Log:
    return dyclu.Log.read(table, **{**ROLES, "features": FEATURES, **more})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(told(tmp_path, dim=None, features=FEATURES)) as made:
        yield made


def rewards(service: Running) -> int:
    return int(service.http.get("/v1/policy").json()["rewards"])


def test_a_log_is_learnt_in_its_order_and_once(service: Running, tmp_path: Path) -> None:
    log, seen = read(frame()), list[int]()
    with Client(service.url) as client:
        assert client.features() == FEATURES
        assert client.load(log, name="june", progress=seen.append) == Loaded(1200, 0)
        assert client.load(log, name="june") == Loaded(1200, 1200)
    assert seen == [500, 1000, 1200]
    alone = dyclu.LinUCB(log.dim, alpha=0.5).fit(log)
    arms = FEATURES.vectors([{"genre": "jazz", "price": 1}], {"country": "de"})
    served = service.service.tenants["default"].state.policy
    assert [served.decide(f"u{n}", arms).mean for n in range(30)] == [
        alone.decide(f"u{n}", arms).mean for n in range(30)
    ]
    reader = JournalReader(tmp_path / "default/journal.db")
    first = next(reader.after(0))
    reader.close()
    assert (first.ref, first.user, first.body.at) == ("june:0", frame()["who"][0], 1.7e9)  # type: ignore[union-attr]
    assert first.body.propensity == 0.5  # type: ignore[union-attr]


def test_an_interrupted_load_continues_without_learning_twice(service: Running) -> None:
    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    log = read(frame(), decision="id")
    with Client(service.url) as client:
        with pytest.raises(KeyboardInterrupt):
            client.load(log, name="june", progress=stop)
        assert rewards(service) == 500
        assert client.load(log, name="june") == Loaded(1200, 500)
    assert rewards(service) == 1200


def test_both_clients_load_logs_and_send_batches(service: Running) -> None:
    rows = [
        {"user": "ana", "arm": {"genre": "jazz", "price": 1}, "context": {"country": "de"}}
        | {"reward": 1.0, "event_id": f"e{n}"}
        for n in range(700)
    ]
    with Client(service.url) as client:
        assert len(client.observe_many(rows)) == 700

    async def awaited() -> tuple[Loaded, int, dyclu.Features | None, str]:
        async with AsyncClient(service.url) as client:
            loaded = await client.load(read(frame(700)), name="a")
            again = await client.observe_many(rows)
            arm = {"x": {"genre": "jazz", "price": 2.0}}
            choice = await client.decide("ana", arm, context={"country": "fr"}, explain=True)
            assert choice.more["why"]["arms"][0]["id"] == "x"
            known = sum(one["repeated"] for one in again)
            return loaded, known, await client.features(), choice.arm

    assert asyncio.run(awaited()) == (Loaded(700, 0), 700, FEATURES, "x")
    assert rewards(service) == 1400


def bad(column: str, value: Any) -> pd.DataFrame:
    table = frame().astype({column: object})
    table.loc[1100, column] = value
    return table


@pytest.mark.parametrize(
    ("table", "error", "said"),
    [
        (bad("who", "a b"), OptionError, "row 1100: user is 'a b'"),
        (bad("chance", 0.0), NumberError, "row 1100, column 'chance'"),
        (bad("at", 3.0), OptionError, "row 1100, column 'at'"),
        (bad("price", "cheap"), KindError, "row 1100, column 'price'"),
        (bad("clicked", None), NumberError, "row 1100, column 'clicked'"),
    ],
)
def test_a_bad_row_is_found_before_anything_is_sent(
    service: Running, table: pd.DataFrame, error: type[DycluError], said: str
) -> None:
    with Client(service.url) as client, pytest.raises(error, match="row 1100") as caught:
        client.load(read(table), name="june")
    assert said in str(caught.value)
    assert rewards(service) == 0


def test_users_that_differ_only_in_type_are_refused(service: Running) -> None:
    table = frame().astype({"who": object})
    table.loc[0, "who"], table.loc[9, "who"] = 1, "1"
    with Client(service.url) as client, pytest.raises(KindError, match="row 9: user 1 is a str"):
        client.load(read(table), name="june")


def test_a_log_of_other_features_is_refused(service: Running) -> None:
    other = FEATURES.replaced(context={"country": {"kind": "category", "values": ["de", "it"]}})
    with Client(service.url) as client:
        with pytest.raises(OptionError, match=f"version {other.version}.*client.features"):
            client.load(read(frame(), features=other), name="june")
        with pytest.raises(OptionError, match="vectors of 2 features"):
            client.load(
                dyclu.Log.of_arrays(user=["a"], arms=[[[1.0, 2.0]]], chosen=[0], reward=[1.0]),
                name="june",
            )
        with pytest.raises(OptionError, match="name is 'a b'"):
            client.load(read(frame()), name="a b")


def test_a_refusal_of_the_service_names_the_row(service: Running) -> None:
    table = frame()
    with Client(service.url) as client:
        client.load(read(table), name="june")
        table.loc[700, "clicked"] = 7.0
        with pytest.raises(ServiceError, match=r"row 700: .* used for another observation"):
            client.load(read(table), name="june")
        table.loc[800, "clicked"] = 1e9
        with pytest.raises(ServiceError, match=r"row 800: .*max_reward"):
            client.load(read(table), name="july")
    assert BATCH == 500  # the rows above are not in the first batch


def test_dyclu_load_sends_a_file(service: Running, tmp_path: Path) -> None:
    file, items = tmp_path / "june.csv", tmp_path / "items.csv"
    table = frame(600)
    table["item"] = [f"i{n % 9}" for n in range(600)]
    table.drop(columns=["genre", "price"]).to_csv(file, index=False)
    pd.DataFrame(
        {"item": [f"i{n}" for n in range(9)], "genre": "jazz", "price": np.arange(9.0)}
    ).to_csv(items, index=False)
    config = tmp_path / "dyclu.toml"
    port = service.url.rpartition(":")[2]
    config.write_text(f"port = {port}\n[tenants.default]\ndim = 1\n")
    flags = ["--user=who", "--reward=clicked", "--time=at", "--propensity=chance", "--decision=id"]
    command = ["load", str(file), f"--config={config}", f"--items={items}", "--arm=item", *flags]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "learnt: 600 rows; 0 were known already" in done.output
    assert "learnt: 0 rows; 600 were known" in CliRunner().invoke(app, command).output
    assert rewards(service) == 600
    misspelt = CliRunner().invoke(app, [*command, "--reward=click"])
    assert misspelt.exit_code != 0
    assert "no column 'click'" in misspelt.output


def test_dyclu_load_needs_declared_features(tmp_path: Path) -> None:
    file = tmp_path / "june.csv"
    frame(5).to_csv(file, index=False)
    with running(told(tmp_path / "data")) as made:
        done = CliRunner().invoke(app, ["load", str(file), f"--url={made.url}"])
    assert done.exit_code != 0
    assert "declares no features" in done.output
