"""Keys and tenants: who may do what, and that nobody sees anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dyclu.errors import FileError, OptionError
from dyclu.service.http.calls import CALLS
from dyclu.service.http.keys import digest, new_key
from dyclu.service.settings import RESERVED_NAMES, Settings, described, settings
from tests.service.running import ARMS, Running, running

KEYS = {name: new_key() for name in ("shop", "shop-new", "shop-reader", "news")}


def two_tenants(data: Path) -> Settings:
    file = data / "service.toml"
    file.write_text(
        f"""
        data = "{data / "data"}"
        host = "127.0.0.1"
        port = 0
        [tenants.shop]
        dim = 2
        policy = "dyclu"
        [[tenants.shop.keys]]
        digest = "{digest(KEYS["shop"])}"
        role = "read-write"
        [[tenants.shop.keys]]
        digest = "{digest(KEYS["shop-new"])}"
        role = "read-write"
        [[tenants.shop.keys]]
        digest = "{digest(KEYS["shop-reader"])}"
        role = "read-only"
        [tenants.news]
        dim = 3
        [[tenants.news.keys]]
        digest = "{digest(KEYS["news"])}"
        role = "read-write"
        """
    )
    return settings({}, environment={}, file=file)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(two_tenants(tmp_path_factory.mktemp("keys"))) as made:
        yield made


def headers(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


def call(service: Running, method: str, path: str, name: str | None, body: Any = None) -> Any:
    told = headers(name) if name else {}
    return service.http.request(method, path, json=body, headers=told)


def test_every_call_without_a_key_is_refused_with_401(service: Running) -> None:
    wrong: list[dict[str, str]] = [{}, {"Authorization": "Bearer x"}]
    wrong += [{"Authorization": KEYS["shop"]}]
    wrong += ({"Authorization": f"Basic {KEYS['shop']}"}, {"Authorization": "Bearer"})
    for one in CALLS:
        for told in wrong:
            path = one.path.replace("{id}", "ana")
            response = service.http.request(one.method, path, json={}, headers=told)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
    assert service.http.get("/metrics").status_code == 401


def test_the_page_and_health_need_no_key(service: Running) -> None:
    for path in ("/", "/page.js", "/page.css", "/healthz", "/readyz", "/openapi.json"):
        assert service.http.get(path).status_code == 200


def test_a_read_only_key_cannot_write(service: Running) -> None:
    call(service, "POST", "/v1/decisions", "shop", {"user": "ana", "arms": ARMS})
    for one in CALLS:
        path = one.path.replace("{id}", "ana")
        response = call(service, one.method, path, "shop-reader", {} if one.takes else None)
        assert response.status_code == (403 if one.writes else 200), one.name


def test_both_keys_of_a_role_work(service: Running) -> None:
    for name in ("shop", "shop-new"):
        answer = call(service, "POST", "/v1/decisions", name, {"user": "ana", "arms": ARMS})
        assert answer.status_code == 200


def test_a_tenant_does_not_see_another_tenants_data(service: Running, tmp_path: Path) -> None:
    three = [{"id": "a", "features": [1.0, 0.0, 0.5]}]
    news = {"user": "nina", "arms": three, "decision_id": "same"}
    shop = {"user": "sara", "arms": ARMS, "decision_id": "same"}
    assert call(service, "POST", "/v1/decisions", "news", news).status_code == 200
    assert call(service, "POST", "/v1/decisions", "shop", shop).status_code == 200
    assert call(service, "POST", "/v1/decisions", "news", shop).status_code == 409
    assert (
        call(service, "POST", "/v1/decisions", "news", {**shop, "decision_id": "x"})
        .json()["error"]["field"]
        .startswith("arms[0]")
    )
    only = call(service, "POST", "/v1/decisions", "news", {**news, "decision_id": "news-only"})
    path = f"/v1/decisions/{only.json()['decision_id']}/reward"
    assert call(service, "POST", path, "shop", {"value": 1.0}).status_code == 404
    assert call(service, "POST", path, "news", {"value": 1.0}).status_code == 200
    assert call(service, "GET", "/v1/users/nina", "shop").status_code == 404
    assert call(service, "DELETE", "/v1/users/nina", "shop").status_code == 404
    assert call(service, "GET", "/v1/users/nina", "news").status_code == 200
    for name, tenant in (("shop", "shop"), ("news", "news")):
        view = call(service, "GET", "/v1/policy", name).json()
        assert view["tenant"] == tenant
        metrics = service.http.get("/metrics", headers=headers(name)).text
        assert f'tenant="{tenant}"' in metrics
        other = "news" if tenant == "shop" else "shop"
        assert f'tenant="{other}"' not in metrics
    assert call(service, "GET", "/v1/policy", "shop").json()["rewards"] == 0


def test_settings_are_printed_without_secrets(tmp_path: Path) -> None:
    text = "\n".join(described(two_tenants(tmp_path)))
    for key in KEYS.values():
        assert key not in text
        assert digest(key) not in text
        assert digest(key)[:15] in text


def flags(**more: Any) -> Settings:
    return settings({"dim": 2, **more}, environment={})


def test_addresses_other_than_loopback_need_keys() -> None:
    pair = f"{digest('k')} read-write"
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org"):
        with pytest.raises(OptionError, match="without keys anybody"):
            flags(host=host)
        assert flags(host=host, keys=pair).keyed
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        assert not flags(host=host).keyed


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("port = 1\nhost = '127.0.0.2'\n[tenants.default]\ndim = 1\nepsilon = 0.1\n")
    environment = {"DYCLU_PORT": "2", "DYCLU_DIM": "2", "DYCLU_OPTIONS": "alpha=0.5"}
    told = settings({"port": 3, "policy": "linucb"}, environment=environment, file=file)
    tenant = told.tenants["default"]
    assert (told.port, told.host, tenant.dim, tenant.epsilon) == (3, "127.0.0.2", 2, 0.1)
    assert tenant.options == {"alpha": 0.5}


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"port": 70000}, "port"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"mode": "offline"}, "mode"),
        ({"policy": "magic"}, "no policy is called 'magic'"),
        ({"policy": "linUBC"}, "did you mean 'linucb'?"),
        ({"options": "alpha=-1"}, "alpha"),
        ({"options": "colour=1"}, "colour"),
        ({"options": "alpha"}, "name=value"),
        ({"default_reward": 1e9}, "default_reward"),
        ({"keys": "sha256:1 read-write"}, "digest"),
        ({"keys": ", ".join(f"{digest(str(i))} read-write" for i in range(3))}, "more than 2"),
        ({"keys": f"{digest('k')} read-write, {digest('k')} read-only"}, "twice"),
        ({"keys": f"{digest('k')} admin"}, "role"),
        ({"keys": f"{digest('secret')} read-write"}, "example of the documentation"),
        ({"keys": f"sha256:{64 * '0'} read-write"}, "example of the documentation"),
        ({"tls_cert": "cert.pem"}, "belong together"),
        ({"max_headers": 100}, "max_headers"),
        ({"dim": 0}, "dim"),
    ],
)
def test_invalid_settings_are_refused(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        flags(**more)


def test_names_of_files_in_the_data_folder_are_reserved(tmp_path: Path) -> None:
    """Whatever a service puts beside the folders of its tenants."""
    with running(flags(data=str(tmp_path), port=0)):
        beside = {file.name for file in tmp_path.iterdir()} - {"default"}
    assert beside == RESERVED_NAMES - {"lost+found"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no tenant"),
        ("speed = 1\n[tenants.a]\ndim = 1", "speed"),
        ("[tenants.a]\ndim = 1\n[tenants.b]\ndim = 1", "has no key"),
        ("[tenants.'../x']\ndim = 1", "short name"),
        ("[tenants.lock]\ndim = 1", "'lock': this name is taken"),
        ("[tenants.LOCK]\ndim = 1", "'LOCK': this name is taken"),
        ("[tenants.'lost+found']\ndim = 1", "this name is taken"),
        ("[tenants.shop]\ndim = 1\n[tenants.Shop]\ndim = 1", "'shop' and 'Shop'"),
        ("[tenants.a]\npolicy = 'linucb'", "dim"),
    ],
)
def test_invalid_settings_files_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(OptionError, match=complaint):
        settings({}, environment={}, file=tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"\xff\xfe", "is not TOML"), (b"x=" + 5000 * b"[" + 5000 * b"]", "nested too deeply")],
)
def test_a_file_that_cannot_be_parsed_is_refused(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    (tmp_path / "s.toml").write_bytes(content)
    with pytest.raises(FileError, match=complaint):
        settings({}, environment={}, file=tmp_path / "s.toml")
