"""`dyclu.service.http.serve`: what is ready before the first request comes."""

from __future__ import annotations

import asyncio
import resource
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import dyclu
from dyclu.errors import OptionError
from dyclu.service.http.keys import digest, new_key
from dyclu.service.http.serve import make_room, warn_if_in_the_clear
from dyclu.service.spec import PolicySpec, warm_up
from dyclu.service.tools.loadtest import Load, load
from tests.service.running import ARMS, process, running, told

FIRST_ROUNDS = """
import sys, numba, numpy as np, dyclu
from dyclu.service.spec import PolicySpec, warm_up
from dyclu.service.tools.loadtest import Load, load

name = sys.argv[1]
warm_up(PolicySpec(name, 4, {}))
files = [getattr(dyclu.kernels, name) for name in dyclu.kernels.__all__]
dispatchers = [one for file in files for one in vars(file).values() if hasattr(one, "signatures")]
loaded = set(sys.modules)
compiled = sum(len(one.signatures) for one in dispatchers)
policy, rng = dyclu.policies.make(name, 4), np.random.default_rng(1)
for turn in range(400):
    arms = rng.standard_normal((3, 4))
    x = arms[policy.decide(f"u{turn % 5}", arms).arm]
    policy.learn(f"u{turn % 5}", x, float(x[turn // 200] + 0.1 * rng.standard_normal()))
assert sum(len(one.signatures) for one in dispatchers) == compiled, name
late = sorted(one for one in set(sys.modules) - loaded if not one.startswith("encodings"))
assert not late, late
"""


@pytest.mark.parametrize("name", dyclu.policies.names())
def test_warm_up_works_for_every_policy(name: str) -> None:
    warm_up(PolicySpec(name, 7, {}))


@pytest.mark.parametrize("name", ["linucb", "dyclu", "atlas"])
def test_rounds_after_warm_up_import_and_compile_nothing(name: str) -> None:
    subprocess.run([sys.executable, "-c", FIRST_ROUNDS, name], check=True)


def test_neither_a_start_nor_a_snapshot_imports_what_takes_a_second() -> None:
    """Both are processes of their own, and snapshots are made while requests wait."""
    seen = (
        "import sys, dyclu.service.http.app, dyclu.service.disk.snapshots; "
        "print(*{'scipy.stats', 'scipy.optimize', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


@pytest.fixture
def few_files() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_of_open_files_is_raised_for_the_connections(
    tmp_path: Path, few_files: int, caplog: pytest.LogCaptureFixture
) -> None:
    make_room(told(tmp_path, max_connections=120))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (soft, hard) == (220, few_files)
    make_room(told(tmp_path, max_connections=10))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 220
    assert not caplog.records


def test_a_low_hard_limit_of_open_files_is_reported(tmp_path: Path) -> None:
    """In a process of its own: what is given up cannot be taken back."""
    code = (
        "import logging, resource, sys; from pathlib import Path;"
        "from dyclu.service.http.serve import make_room; from tests.service.running import told;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 150));"
        "logging.basicConfig(); make_room(told(Path(sys.argv[1])));"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "(150, 150)\n"
    assert "lower max_connections" in done.stderr


def modes(folder: Path) -> dict[str, str]:
    """The permissions of a folder and of everything in it."""
    return {
        str(path.relative_to(folder.parent)): oct(path.stat().st_mode & 0o777)
        for path in (folder, *folder.rglob("*"))
    }


@pytest.mark.parametrize("earlier", [False, True])
def test_data_can_be_read_by_the_services_own_user_only(tmp_path: Path, earlier: bool) -> None:
    """Also what an earlier version made for everybody to read."""
    data = tmp_path / "data"
    if earlier:
        with running(told(data)) as service:
            service.decide()
        for path in (data, *data.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    with process(data, "--dim=2", "--policy=linucb") as (child, url):
        httpx.post(f"{url}/v1/decisions", json={"user": "ana", "arms": ARMS}).raise_for_status()
        found = modes(data)
        child.terminate()
        child.wait(timeout=20)
        after = modes(data)
    assert "data/default/journal.db-wal" in found
    assert any(name.endswith(".state") for name in after)
    for name, mode in (found | after).items():
        assert mode == ("0o700" if (tmp_path / name).is_dir() else "0o600"), name


def test_a_service_beyond_loopback_without_tls_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = f"{digest(new_key())} read-write"
    warn_if_in_the_clear(told(tmp_path, host="127.0.0.1"))
    warn_if_in_the_clear(told(tmp_path, host="0.0.0.0", keys=keys, tls_cert="c", tls_key="k"))
    assert not caplog.records
    warn_if_in_the_clear(told(tmp_path, host="0.0.0.0", keys=keys))
    assert "travel in the clear" in caplog.text


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_with_a_certificate_the_service_speaks_https_only(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = map(str, certificate)
    trust = ssl.create_default_context(cafile=cert)
    given = told(tmp_path / "data", tls_cert=cert, tls_key=key)
    with running(given, verify=trust) as service:
        assert service.url.startswith("https://")
        assert service.decide().status_code == 200
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        wanted = Load(users=3, arms=2, clients=2, seconds=10, rounds=10)
        served = asyncio.run(load(service.url, wanted))
        assert (len(served.decisions), served.errors) == (10, {})
        plain = service.url.replace("https", "http")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{plain}/healthz")
        assert service.decide().status_code == 200


def test_a_certificate_that_cannot_be_used_is_reported(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert = str(certificate[0])
    for key in (str(tmp_path / "none.pem"), cert):
        with (
            pytest.raises(OptionError, match=r"tls_cert .* cannot be used"),
            running(told(tmp_path / "data", tls_cert=cert, tls_key=key)),
        ):
            pass
