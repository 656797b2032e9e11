"""`deploy/`: the files can be parsed, and say what the code says."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dyclu.service.http.keys import digest, new_key
from dyclu.service.http.serve import FILES
from dyclu.service.settings import Settings, TenantSettings, settings
from tests.service.running import Running, running, told

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/dyclu.service"
STATEFUL = DEPLOY / "kubernetes/statefulset.yaml"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
DEFAULTS = msgspec.convert({"tenants": {"a": {"dim": 1}}}, Settings)

MOST_EXPOSED = 3.0
"""Exposure of the unit at most, by `systemd-analyze security`."""


def own_digests(text: str) -> str:
    return re.sub(r"sha256:0{64}", lambda _: digest(new_key()), text)


def test_the_settings_are_valid_once_the_placeholders_are_replaced(tmp_path: Path) -> None:
    text = (DEPLOY / "dyclu.toml").read_text()
    with pytest.raises(msgspec.ValidationError, match="example of the documentation"):
        msgspec.convert(tomllib.loads(text), Settings)
    (tmp_path / "s.toml").write_text(own_digests(text))
    given = settings({}, environment={}, file=tmp_path / "s.toml")
    assert given.keyed
    assert given.port == DEFAULTS.port
    assert [key.name for key in given.operators] == ["prometheus"]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser


def test_the_systemd_unit_has_room_and_is_not_given_up_over_a_moment() -> None:
    service, start = unit()["Service"], unit()["Unit"]
    assert service["ExecStart"].endswith("dyclu serve --config /etc/dyclu/dyclu.toml")
    assert service["ExecReload"].endswith("-HUP $MAINPID")
    burst, interval = (int(start[f"StartLimit{name}"]) for name in ("Burst", "IntervalSec"))
    assert burst * int(service["RestartSec"]) < interval
    assert int(service["LimitNOFILE"]) > DEFAULTS.max_connections + FILES
    # numba compiles at run time; with this, no kernel could be loaded.
    assert service["MemoryDenyWriteExecute"] == "false"


def test_the_systemd_unit_is_hardened() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Overall exposure level for dyclu.service: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout[-300:]
    assert float(found[1]) <= MOST_EXPOSED


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bDYCLU_([A-Z_]+)\b", text))


@pytest.mark.parametrize(
    "file",
    [
        DEPLOY / "Dockerfile",
        DEPLOY / "compose.yaml",
        DEPLOY / "compose.cluster.yaml",
        DEPLOY / "cluster/statefulset.yaml",
        STATEFUL,
        UNIT,
    ],
    ids=lambda f: f"{f.parent.name}-{f.name}",
)
def test_variables_are_settings(file: Path) -> None:
    known = {*Settings.__struct_fields__, *TenantSettings.__struct_fields__, "config"}
    found = variables(file.read_text())
    assert found
    assert {name.lower() for name in found} <= known | {"password"}


def test_the_dockerfile_copies_what_exists_and_ends_as_its_own_user() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, flags=re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source
    assert f"EXPOSE {DEFAULTS.port}\n" in DOCKERFILE
    last = re.findall(r"^USER (.*)$", DOCKERFILE, flags=re.MULTILINE)[-1]
    context = manifest("StatefulSet")["spec"]["template"]["spec"]["securityContext"]
    assert last == f"{context['runAsUser']}:{context['runAsGroup']}"


DOCKER = r"""#!/usr/bin/env bash
# In the place of docker: `up` starts the service here, with the settings that would be mounted.
echo "$*" >> "$CALLS"
case "$*" in
  "run --rm dyclu dyclu key"*) shift 5; exec "$PYTHON" -m dyclu key "$@" ;;
  *" up "*)
    toml=$(sed -nE 's/.*"([^":]*):.*/\1/p' "$5")
    "$PYTHON" -m dyclu serve --config "$toml" --host 127.0.0.1 --port "$PORT" --data "$DATA" \
      > "$CALLS.out" 2>&1 &
    echo $! > "$CALLS.pid"
    until curl --silent --fail "http://127.0.0.1:$PORT/readyz"; do sleep 0.1; done > /dev/null ;;
  *" down "*) kill "$(cat "$CALLS.pid")" ;;
esac
"""


def test_the_script_that_tries_the_image_makes_a_decision_and_cleans_up(tmp_path: Path) -> None:
    """The image itself is built on the forge (job `image`)."""
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    docker, calls = tmp_path / "bin" / "docker", tmp_path / "calls"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    told = {
        "PATH": f"{docker.parent}:{os.environ['PATH']}", "PYTHON": sys.executable, "PORT": port,
        "DATA": str(tmp_path / "data"), "CALLS": str(calls), "TMPDIR": str(tmp_path),
        "DYCLU_URL": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    done = subprocess.run(
        [str(DEPLOY / "try.sh")], env=os.environ | told, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["arm"] == "red"
    asked = calls.read_text()
    assert "build dyclu\n" in asked
    assert asked.rstrip().endswith("down --volumes")
    assert not list(tmp_path.glob("tmp.*")), "keys are left in a temporary folder"


def test_the_commands_of_the_dockerfile_that_run_python_work(tmp_path: Path) -> None:
    """The kernels' warm-up and the health check, as they stand in the file."""
    (warm_up,) = re.findall(r'^RUN python -c "(.*?)"$', DOCKERFILE, flags=re.DOTALL | re.MULTILINE)
    subprocess.run([sys.executable, "-c", warm_up.replace("\\\n", "")], check=True)
    (check,) = re.findall(r'CMD \["python", "-c", "(.*?)"\]', DOCKERFILE)
    with running(told(tmp_path)) as service:
        here = check.replace(f"http://127.0.0.1:{DEFAULTS.port}", service.url)
        assert here != check
        subprocess.run([sys.executable, "-c", here], check=True)
        service.service.tenants["default"].committer.trouble = "the disk is full"
        failed = subprocess.run([sys.executable, "-c", here], capture_output=True, check=False)
        service.service.tenants["default"].committer.trouble = None
    assert failed.returncode != 0


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def manifest(kind: str) -> Any:
    for file in (DEPLOY / "kubernetes").glob("*.yaml"):
        if (found := load(file))["kind"] == kind:
            return found
    raise AssertionError(f"there is no {kind}")


def test_the_compose_file_mounts_files_that_exist_and_locks_the_service_in() -> None:
    compose = load(DEPLOY / "compose.yaml")
    for name, service in compose["services"].items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("./") and not source.endswith("operator.key"):
                assert (DEPLOY / source).exists(), (name, source)
            elif not source.startswith("./"):
                assert source in compose["volumes"]
    dyclu = compose["services"]["dyclu"]
    assert (DEPLOY / dyclu["build"]["context"] / dyclu["build"]["dockerfile"]).exists()
    assert dyclu["read_only"] is True
    assert dyclu["cap_drop"] == ["ALL"]
    assert dyclu["ports"] == [f"127.0.0.1:{DEFAULTS.port}:{DEFAULTS.port}"]
    scraped = load(DEPLOY / "prometheus/prometheus.yml")["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"dyclu:{DEFAULTS.port}"]


def test_the_pod_is_restricted_and_asked_at_paths_that_exist(tmp_path: Path) -> None:
    stateful, service = manifest("StatefulSet"), manifest("Service")
    assert stateful["spec"]["replicas"] == 1
    pod = stateful["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    for one in (*pod["initContainers"], *pod["containers"]):
        locked = one["securityContext"]
        assert locked["allowPrivilegeEscalation"] is False
        assert locked["readOnlyRootFilesystem"] is True
        assert locked["capabilities"] == {"drop": ["ALL"]}
    (container,) = pod["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": DEFAULTS.port}]
    assert service["spec"]["selector"] == stateful["spec"]["selector"]["matchLabels"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    claims = {one["metadata"]["name"] for one in stateful["spec"]["volumeClaimTemplates"]}
    assert mounted == claims | {one["name"] for one in pod["volumes"]}
    with running(told(tmp_path)) as made:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert made.http.get(path).status_code == 200


def test_the_manifests_render() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    command = ["kubectl", "kustomize", str(DEPLOY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert set(found) == {"Namespace", "Secret", "Service", "StatefulSet"}
    secret = found["StatefulSet"]["spec"]["template"]["spec"]["volumes"][2]["secret"]
    assert secret["secretName"] == found["Secret"]["metadata"]["name"]


def test_the_cluster_has_three_processes_with_names_and_addresses_of_their_own(
    tmp_path: Path,
) -> None:
    services = load(DEPLOY / "compose.cluster.yaml")["services"]
    members = {name: one for name, one in services.items() if name != "database"}
    assert len(members) == 3
    for name, one in members.items():
        assert one["environment"]["DYCLU_NAME"] == name
        assert one["environment"]["DYCLU_ADVERTISE"] == f"http://{name}:{DEFAULTS.port}"
        # In an address a password would have to be escaped.
        assert one["environment"]["DYCLU_STORE"] == "postgresql://dyclu@database/dyclu"
        password = services["database"]["environment"]["POSTGRES_PASSWORD"]
        assert one["environment"]["PGPASSWORD"] == password
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    switch = tmp_path / "deploy/kustomization.yaml"
    switch.write_text(switch.read_text().replace("# components:", "components:"))
    command = ["kubectl", "kustomize", str(switch.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    stateful = found["StatefulSet"]["spec"]
    assert stateful["replicas"] == 3
    (container,) = stateful["template"]["spec"]["containers"]
    names = [one["name"] for one in container["env"]]
    # An address is put together from variables before it.
    assert names.index("POD_IP") < names.index("DYCLU_ADVERTISE")
    assert {"DYCLU_STORE", "DYCLU_NAME", "DYCLU_CONFIG"} <= set(names)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(told(tmp_path_factory.mktemp("deploy"))) as made:
        made.decide().raise_for_status()
        made.service.tenants["default"].save()
        yield made


def test_the_dashboard_uses_metrics_and_labels_that_exist(service: Running) -> None:
    board = json.loads((DEPLOY / "grafana/dyclu.json").read_text())
    text = service.http.get("/metrics").text
    typed = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.MULTILINE))
    expressions = [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    assert len(expressions) > 20
    for expression in expressions:
        names = re.findall(r"\b((?:dyclu|process)_[a-z_]+)\b", re.sub(r'"[^"]*"', '""', expression))
        assert names, expression
        for name in names:
            known = name in typed or typed.get(re.sub(r"_(bucket|sum|count)$", "", name))
            assert known in (True, "histogram"), name
        if '$tenant"' in expression:
            assert all(f'{name}{{tenant="default"' in text for name in names), expression


def test_every_metric_of_ours_is_on_the_dashboard(service: Running) -> None:
    text = service.http.get("/metrics").text
    board = (DEPLOY / "grafana/dyclu.json").read_text()
    for name in re.findall(r"^# TYPE (\w+) ", text, flags=re.MULTILINE):
        assert name in board, name


def test_no_two_panels_of_the_dashboard_overlap() -> None:
    board = json.loads((DEPLOY / "grafana/dyclu.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def panels(kind: str) -> list[dict[str, Any]]:
    board = json.loads((DEPLOY / "grafana/dyclu.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] == kind]


def test_single_figures_of_the_dashboard_have_colours_of_their_own() -> None:
    """Without thresholds Grafana shows everything from 80 on in red, such as seconds of uptime."""
    for panel in panels("stat"):
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"], panel["title"]
    ready = next(one for one in panels("stat") if one["title"] == "Ready")
    (mapping,) = ready["fieldConfig"]["defaults"]["mappings"]
    assert mapping["options"]["0"]["color"] == "red"
    version = next(one for one in panels("stat") if "build_info" in one["targets"][0]["expr"])
    # Its value is always 1.
    assert version["options"]["textMode"] == "name"


def test_no_panel_of_the_dashboard_draws_bytes_and_counts_on_one_axis() -> None:
    """Thousands of requests cannot be seen beside millions of bytes."""
    for panel in panels("timeseries"):
        fields = panel["fieldConfig"]
        own = {one["matcher"]["options"]: one["properties"] for one in fields["overrides"]}
        for target in panel["targets"]:
            more = {one["id"]: one["value"] for one in own.get(target["refId"], [])}
            unit = more.get("unit", fields["defaults"]["unit"])
            is_bytes = bool(re.search(r"_bytes\b", target["expr"]))
            assert is_bytes == (unit == "bytes"), (panel["title"], target["expr"])
