"""Processes of a cluster that speak HTTPS with certificates of an authority of their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dyclu.client import Client
from dyclu.client.owners import OWNER
from dyclu.errors import OptionError
from dyclu.service.cluster.places import partition_of
from dyclu.service.http.app import create_app
from tests.service.cluster.test_cluster import PATIENCE, insist, member, partitions
from tests.service.running import Running, told, wait_until


def openssl(folder: Path, *words: str) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, str]:
    """An authority, and a certificate of it for 127.0.0.1; the settings that name them."""
    new = ("-newkey", "rsa:2048", "-nodes", "-keyout")
    openssl(tmp_path, "req", "-x509", *new, "ca.key", "-out", "ca.pem", "-subj", "/CN=company",
            "-days", "2")  # fmt: skip
    openssl(tmp_path, "req", *new, "key.pem", "-out", "asked.pem", "-subj", "/CN=service")
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(tmp_path, "x509", "-req", "-in", "asked.pem", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "cert.pem", "-days", "2", "-extfile", "names")  # fmt: skip
    files = {"tls_cert": "cert.pem", "tls_key": "key.pem", "tls_ca": "ca.pem"}
    return {name: str(tmp_path / file) for name, file in files.items()}


@contextmanager
def two(store: str, folder: Path, **more: Any) -> Iterator[tuple[Running, str]]:
    """Yield a process, and a user of a partition that another process owns."""
    with (
        member(store, folder / "a", name="a", **more) as a,
        member(store, folder / "b", name="b", **more) as b,
    ):
        wait_until(lambda: partitions(a) == {"a": 1, "b": 1}, seconds=PATIENCE)
        wait_until(lambda: b.http.get("/readyz").json()["status"] == "ok", seconds=PATIENCE)
        shown = a.http.get("/v1/cluster").json()["partitions"]
        theirs = next(one["partition"] for one in shown if one["owner"] == "b")
        yield a, next(user for user in "abcdefghijk" if partition_of(user, 2) == theirs)


def test_requests_are_passed_on_between_certificates_of_a_private_authority(
    store: str, tmp_path: Path, tls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with two(store, tmp_path, **tls) as (a, user):
        assert a.url.startswith("https://")
        passed = insist(lambda: a.decide(user, decision_id="d-1"))
        assert passed.status_code == 200
        assert "https://127.0.0.1" in passed.headers[OWNER]
        # As the docs say it for clients.
        monkeypatch.setenv("SSL_CERT_FILE", tls["tls_ca"])
        with Client(a.url) as client:
            assert client.decide(user, {"red": [1.0, 0.0]}).arm == "red"
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{a.url}/healthz")


def test_without_tls_ca_a_private_authority_is_not_trusted(
    store: str, tmp_path: Path, tls: dict[str, str]
) -> None:
    del tls["tls_ca"]
    with two(store, tmp_path, **tls) as (a, user):
        refused = a.decide(user)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "moved")
        assert "CERTIFICATE_VERIFY_FAILED" in refused.json()["error"]["message"]


@pytest.mark.parametrize("there", [True, False])
def test_a_tls_ca_that_cannot_be_used_is_reported(tmp_path: Path, there: bool) -> None:
    file = tmp_path / "ca.pem"
    if there:
        file.write_text("no certificate\n")
    given = told(tmp_path / "data", store="postgresql://nowhere/x", tls_ca=str(file))
    with pytest.raises(OptionError, match=r"tls_ca .*ca.pem cannot be used .* in PEM format"):
        create_app(given)
