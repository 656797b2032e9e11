"""`dyclu.service.http.serve`: what is ready before the first request comes."""

from __future__ import annotations

import asyncio
import logging
import resource
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import dyclu
from dyclu.errors import OptionError
from dyclu.service.http.edge import listener as listener_of
from dyclu.service.http.edge.listener import _tried, listening
from dyclu.service.http.keys import digest, new_key
from dyclu.service.http.serve import make_room, warn_if_in_the_clear
from dyclu.service.settings import Settings
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
    return made_certificate(tmp_path, "127.0.0.1")


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


def made_certificate(folder: Path, name: str, kind: str = "rsa:2048") -> tuple[Path, Path]:
    """Write a certificate of this name for 127.0.0.1, and its key, over those that are there."""
    cert, of = folder / "cert.pem", folder / "key.pem"
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", kind, "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(of), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, of


def told_of(child: subprocess.Popen[str], wanted: str) -> list[str]:
    """Read the log of a process up to a line that contains this; return what was read."""
    assert child.stderr is not None
    lines = list[str]()
    for line in child.stderr:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"never logged {wanted!r}: {''.join(lines)}")


def shown(url: str) -> str:
    """Return the certificate that a new connection gets."""
    host = httpx.URL(url)
    return ssl.get_server_certificate((host.host, host.port or 0), timeout=20)


def shown_if_any(url: str) -> str | None:
    """Return the certificate of a new connection, None if there was none."""
    with suppress(OSError):
        return shown(url)
    return None


def test_sighup_serves_a_renewed_certificate_without_refusing_a_request(tmp_path: Path) -> None:
    cert, key = made_certificate(tmp_path, "old")
    (tmp_path / "s.toml").write_text(f'tls_cert = "{cert}"\ntls_key = "{key}"\n')
    flags = ("--dim=2", "--policy=linucb", f"--config={tmp_path / 's.toml'}")
    with (
        process(tmp_path / "data", *flags) as (child, url),
        httpx.Client(base_url=url, verify=False) as before,
    ):
        old = cert.read_text()
        assert shown(url).split() == old.split()
        for turn in range(3):
            made_certificate(tmp_path, f"new{turn}")
            assert before.get("/healthz").status_code == 200
            child.send_signal(signal.SIGHUP)
            told_of(child, "the certificate was read again")
            # Every connection, not only some of them: nothing listens with the old one any more.
            assert {shown(url) for _ in range(20)} == {cert.read_text()} != {old}
            trust = ssl.create_default_context(cafile=str(cert))
            with httpx.Client(base_url=url, verify=trust) as http:
                asked = {"user": "ana", "arms": ARMS}
                assert http.post("/v1/decisions", json=asked).status_code == 200
        assert before.get("/v1/policy").json()["decisions"] == 3
        child.terminate()
        assert child.wait(timeout=30) == 0


@pytest.mark.parametrize("stops", [False, True])
def test_a_request_under_way_is_answered_while_the_certificate_is_renewed(
    tmp_path: Path, stops: bool
) -> None:
    """The old server answers it, also if the service is stopped meanwhile."""
    cert, key = made_certificate(tmp_path, "old")

    async def play() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def late(scope: Any, receive: Any, send: Any) -> None:
            asked.set()
            await go.wait()
            await ok(scope, receive, send)

        given = told(tmp_path, tls_cert=str(cert), tls_key=str(key))
        async with httpx.AsyncClient(verify=False, timeout=90) as http:
            async with listening(late, given) as listener:
                under_way = asyncio.create_task(http.get(listener.url))
                await asked.wait()
                made_certificate(tmp_path, "new")
                renewal = listener.renew()
                while listener._before is None:
                    await asyncio.sleep(0.01)
                # It has been told to stop, and takes connections for a few milliseconds more; one
                # that it has taken may be closed before it is answered.
                while await asyncio.to_thread(shown_if_any, listener.url) != cert.read_text():
                    assert not under_way.done()
                asyncio.get_running_loop().call_later(0.5, go.set)
                if not stops:
                    await renewal
            assert renewal.cancelled() == stops
            assert (await under_way).text == "ok"

    asyncio.run(play())


@pytest.mark.parametrize("broken", ["a key of another certificate", "no certificate", "missing"])
def test_a_renewed_certificate_that_cannot_be_used_is_reported_and_the_old_one_stays(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = made_certificate(tmp_path, "old")
    old = cert.read_text()

    async def play() -> None:
        given = told(tmp_path, tls_cert=str(cert), tls_key=str(key))
        async with listening(ok, given) as listener:
            if broken == "a key of another certificate":
                made_certificate(tmp_path, "other")
                cert.write_text(old)
            elif broken == "no certificate":
                cert.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            else:
                cert.unlink()
            await listener.renew()
            assert "the certificate stays as it was" in caplog.text
            assert {await asyncio.to_thread(shown, listener.url) for _ in range(8)} == {old}
            made_certificate(tmp_path, "new")
            await listener.renew()
            assert await asyncio.to_thread(shown, listener.url) == cert.read_text() != old

    asyncio.run(play())


def test_a_key_that_ends_granian_ends_a_trial_and_not_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL knows keys of this kind, and granian aborts its process."""
    cert, key = made_certificate(tmp_path, "old")
    old = cert.read_text()

    async def play() -> None:
        given = told(tmp_path, tls_cert=str(cert), tls_key=str(key))
        ended: list[bool] = []
        async with listening(ok, given, ended=lambda: ended.append(True)) as listener:
            made_certificate(tmp_path, "other", kind="ed448")
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
            await listener.renew()
            assert "the certificate stays as it was: granian cannot use" in caplog.text
            assert f"tls_cert {cert} and tls_key {key}" in caplog.text
            assert {await asyncio.to_thread(shown, listener.url) for _ in range(8)} == {old}
            assert ended == []

    asyncio.run(play())


def test_the_certificate_that_was_tried_is_served_also_if_the_files_change_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = made_certificate(tmp_path, "old")
    caplog.set_level(logging.INFO)
    tried, modes, folders = list[str](), list[int](), list[Path]()

    async def try_and_change(given: Settings) -> None:
        await _tried(given)
        assert given.tls_cert is not None
        tried.append(Path(given.tls_cert).read_text())
        folders.append(Path(given.tls_cert).parent)
        modes.append(folders[-1].stat().st_mode & 0o777)
        made_certificate(tmp_path, "newest")

    monkeypatch.setattr(listener_of, "_tried", try_and_change)

    async def play() -> None:
        given = told(tmp_path / "data", tls_cert=str(cert), tls_key=str(key))
        async with listening(ok, given) as listener:
            made_certificate(tmp_path, "new")
            await listener.renew()
            assert "the certificate was read again" in caplog.text
            assert {await asyncio.to_thread(shown, listener.url) for _ in range(8)} == {tried[0]}
            # The next renewal finds what has come meanwhile.
            monkeypatch.setattr(listener_of, "_tried", _tried)
            await listener.renew()
            assert await asyncio.to_thread(shown, listener.url) == cert.read_text() != tried[0]

    asyncio.run(play())
    assert modes == [0o700]
    assert folders[0] != tmp_path
    assert not folders[0].exists()
    assert "could not be seen" not in caplog.text


def test_the_log_says_what_is_not_proven_if_only_the_chain_is_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "issuer").mkdir()
    issuer, _ = made_certificate(tmp_path / "issuer", "issuer")
    cert, key = made_certificate(tmp_path, "same")

    async def play() -> None:
        given = told(tmp_path / "data", tls_cert=str(cert), tls_key=str(key))
        async with listening(ok, given) as listener:
            cert.write_text(cert.read_text() + issuer.read_text())
            await listener.renew()
            assert "which server answered could not be seen" in caplog.text
            async with httpx.AsyncClient(verify=False) as http:
                assert (await http.get(listener.url)).text == "ok"

    asyncio.run(play())


def test_an_unchanged_certificate_leaves_the_server_alone(tmp_path: Path) -> None:
    cert, key = made_certificate(tmp_path, "old")

    async def play() -> None:
        for more in ({"tls_cert": str(cert), "tls_key": str(key)}, {}):
            async with listening(ok, told(tmp_path, **more)) as listener:
                before = listener._now
                await listener.renew()
                assert listener._now is before

    asyncio.run(play())


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
