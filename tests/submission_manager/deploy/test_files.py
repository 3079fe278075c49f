"""What deploy/ says is true of the service: files can be read, and name only settings and metrics that there are."""

import configparser
import fnmatch
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from fencehold.model import durations
from submission_manager.cli.serve import CLOSING_S
from submission_manager.http.requests import WAIT_LONGEST_S
from submission_manager.metrics import Metrics
from submission_manager.registry.registry import load, parse
from submission_manager.settings import SETTINGS, settings
from submission_manager.stores.opening import LEASE_TABLE
from tests.servers.programs import require

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
YAML = sorted(DEPLOY.rglob("*.yaml"))
METRIC = re.compile(r"\bsubmission_[a-z_]+")
SETTING = re.compile(r"\bSM_[A-Z_]+\b")
ADDRESSES = ("SM_BIND", "SM_LEADER_BIND", "SM_1", "SM_2", "SM_3")


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_every_yaml_file_can_be_read(path: Path) -> None:
    assert all(document for document in yaml.safe_load_all(path.read_text("utf-8")))


def test_alerts_and_dashboard_name_only_metrics_that_an_instance_has() -> None:
    text = Metrics().exposition()[0].decode()
    known = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    known |= {f"{name}{suffix}" for name in known for suffix in ("_total", "_bucket", "_sum", "_count")}
    dashboard = json.loads((DEPLOY / "grafana" / "submission-manager.json").read_text("utf-8"))
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text("utf-8"))
    exprs = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    exprs += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for expr in exprs for name in METRIC.findall(expr)}
    assert named
    assert named - known == set()


def test_only_settings_that_there_are_are_set() -> None:
    from submission_manager.cli.app import cli

    variables = {one.variable for one in SETTINGS} | {
        variable
        for parameter in cli.commands["serve"].params
        for variable in [getattr(parameter, "envvar", None)]
        if isinstance(variable, str)
    }
    for path in (DEPLOY / "compose.yaml", DEPLOY / "kubernetes" / "submission-manager.yaml"):
        named = set(SETTING.findall(path.read_text("utf-8")))
        assert named - variables - set(ADDRESSES) == set(), path.name


def test_an_instance_that_drains_is_seen_to_do_so_before_it_closes_its_port() -> None:
    haproxy = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    every_ms, fall = re.findall(r"check inter (\d+)ms fall (\d+) rise 1 observe", haproxy)[0]
    noticed_s = int(every_ms) / 1000 * int(fall)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    unit = (DEPLOY / "systemd" / "submission-manager.service").read_text("utf-8")
    delays = [compose["services"][name]["environment"]["SM_DRAIN_DELAY"] for name in ("sm1", "sm2", "sm3")]
    delays += re.findall(r"^Environment=SM_DRAIN_DELAY=(\S+)$", unit, re.MULTILINE)
    assert len(delays) == 4
    assert all(durations.seconds(delay, "delay") > noticed_s for delay in delays)


def test_a_pod_that_drains_is_seen_to_do_so_before_it_closes_its_port() -> None:
    pod = kubernetes("Deployment")["spec"]["template"]["spec"]
    probe = pod["containers"][0]["readinessProbe"]
    given = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    delay_s = durations.seconds(given["SM_DRAIN_DELAY"], "delay")
    assert delay_s > probe["periodSeconds"] * probe["failureThreshold"]
    longest_s = delay_s + 2 * settings().drain_timeout_s + CLOSING_S
    assert pod["terminationGracePeriodSeconds"] > longest_s


def kubernetes(kind: str) -> dict[str, Any]:
    """The one document of this kind."""
    text = (DEPLOY / "kubernetes" / "submission-manager.yaml").read_text("utf-8")
    (found,) = [document for document in yaml.safe_load_all(text) if document["kind"] == kind]
    return dict(found)


def test_what_the_pods_refer_to_is_in_the_manifest() -> None:
    pod = kubernetes("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    wanted = [
        one["valueFrom"]["secretKeyRef"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})
    ]
    secret, registry = kubernetes("Secret"), kubernetes("ConfigMap")
    assert wanted == [{"name": secret["metadata"]["name"], "key": "database"}]
    database = secret["stringData"]["database"]
    assert "REPLACE-ME" in database, "an example, and nobody's password"
    assert settings({"database": database}).database == database
    assert registry["metadata"]["name"] in [one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one]
    assert parse(registry["data"]["registry.json"]) == load(DEPLOY / "registry.json")


def test_a_pod_runs_without_root_without_rights_and_without_a_disk_to_write_on() -> None:
    pod = kubernetes("Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    user = pod["securityContext"]["runAsUser"]
    assert (pod["securityContext"]["runAsNonRoot"], user > 0) == (True, True)
    assert f"USER {user}:" in (DEPLOY / "Dockerfile").read_text("utf-8")
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


def test_the_network_policy_lets_in_what_asks_and_out_what_the_pods_need() -> None:
    policy, deployment = kubernetes("NetworkPolicy")["spec"], kubernetes("Deployment")["spec"]
    assert policy["podSelector"] == deployment["selector"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (container,) = deployment["template"]["spec"]["containers"]
    assert [one["port"] for rule in policy["ingress"] for one in rule["ports"]] == [container["ports"][0]["name"]]
    let_out = {one["port"] for rule in policy["egress"] for one in rule["ports"]}
    gateways = {urlsplit(one.gateway_url).port for one in load(DEPLOY / "registry.json").contracts.values()}
    assert let_out >= gateways | {53, urlsplit(kubernetes("Secret")["stringData"]["database"]).port}


def test_webhooks_of_either_scheme_are_let_out():
    let_out = {one["port"] for rule in kubernetes("NetworkPolicy")["spec"]["egress"] for one in rule["ports"]}
    assert let_out >= {80, 443}


def test_the_replicas_are_spread_over_nodes_and_zones():
    deployment = kubernetes("Deployment")["spec"]
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert all(one["labelSelector"] == deployment["selector"] for one in spread)
    assert all(one["whenUnsatisfiable"] == "ScheduleAnyway" for one in spread), "one node is enough to run them"


def test_the_unit_has_a_place_to_write_where_a_file_without_a_folder_is_made():
    text = (DEPLOY / "systemd" / "submission-manager.service").read_text("utf-8")
    (name,) = re.findall(r"^StateDirectory=(\S+)$", text, re.MULTILINE)
    assert f"\nWorkingDirectory=/var/lib/{name}\n" in text
    assert settings().database == "sqlite:///submission-manager.db"


def test_the_unit_gives_the_service_what_a_network_service_needs_and_nothing_else_of_the_machine() -> None:
    text = (DEPLOY / "systemd" / "submission-manager.service").read_text("utf-8")
    given = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    shut = {"PrivateDevices", "PrivateTmp", "ProtectHome", "LockPersonality", "RestrictNamespaces", "RestrictRealtime"}
    shut |= {f"Protect{what}" for what in ("Clock", "ControlGroups", "KernelLogs", "KernelModules", "KernelTunables")}
    assert {name for name in shut if given.get(name) != "yes"} == set()
    assert (given["CapabilityBoundingSet"], given["SystemCallFilter"]) == ("", "@system-service")
    assert set(given["RestrictAddressFamilies"].split()) == {"AF_UNIX", "AF_INET", "AF_INET6"}
    assert given.keys() & {"MemoryDenyWriteExecute", "ProcSubset", "PrivateNetwork"} == set()


def test_every_alert_tells_deployments_apart() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text("utf-8"))
    exprs = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert [expr for expr in exprs if re.search(r"\b(sum|max|count|min|avg) *(?!by \(job)\(", expr)] == []
    assert all("by (job" in expr for expr in exprs)


def test_every_probe_has_a_time_limit_that_a_busy_machine_keeps() -> None:
    (container,) = kubernetes("Deployment")["spec"]["template"]["spec"]["containers"]
    probes = {name: container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert all(probe["timeoutSeconds"] >= 2 for probe in probes.values())
    assert probes["readinessProbe"]["httpGet"]["path"] == "/readyz"
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    for name in ("sm1", "sm2", "sm3"):
        check = compose["services"][name]["healthcheck"]
        assert "/readyz" in check["test"][-1]
        assert durations.seconds(check["timeout"], "timeout") > 2
    assert re.search(r"^ +timeout check 1s$", (DEPLOY / "haproxy.cfg").read_text("utf-8"), re.MULTILINE)


def test_the_unit_never_gives_up_and_has_the_short_lease() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    text = (DEPLOY / "systemd" / "submission-manager.service").read_text("utf-8")
    unit.read_string(text)
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert (unit["Service"]["Restart"], int(unit["Service"]["RestartSec"]) >= 1) == ("always", True)
    given = dict(
        word.split("=") for line in re.findall(r"^Environment=(.*)$", text, re.MULTILINE) for word in line.split()
    )
    chosen = settings({}, given)
    assert (chosen.lease_duration_s, chosen.drain_delay_s) == (15, 2)
    assert int(unit["Service"]["TimeoutStopSec"]) > chosen.drain_delay_s + 2 * chosen.drain_timeout_s + CLOSING_S


def test_the_units_settings_are_variables_that_its_environment_file_can_change() -> None:
    text = (DEPLOY / "systemd" / "submission-manager.service").read_text("utf-8")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert command.endswith("/submission-manager serve"), "an option would go before the file"
    given = dict(
        word.split("=") for line in re.findall(r"^Environment=(.*)$", text, re.MULTILINE) for word in line.split()
    )
    assert given.keys() <= {one.variable for one in SETTINGS}
    assert (settings({}, given).host, settings({}, given).port) == ("127.0.0.1", 8000)
    assert text.index("EnvironmentFile=") < text.index("Environment=SM_HOST"), "as it reads; systemd lets the file win"


def test_the_units_user_gets_the_registry_though_it_may_not_read_it_itself() -> None:
    text = (DEPLOY / "systemd" / "submission-manager.service").read_text("utf-8")
    assert "\nDynamicUser=yes\n" in text
    (name,) = re.findall(r"^LoadCredential=(\S+):/etc/submission-manager/registry.json$", text, re.MULTILINE)
    assert f"\nEnvironment=SM_REGISTRY=/run/credentials/%n/{name}\n" in text


def test_haproxy_follows_the_names_of_compose_and_says_the_longest_wait_as_it_is() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    servers = re.findall(r"^ +default-server (.*)$", text, re.MULTILINE)
    assert len(servers) == 2
    assert all("resolvers machine init-addr last,libc,none" in options for options in servers)
    assert "\nresolvers machine\n" in text
    assert f"(waitSeconds, {WAIT_LONGEST_S:g} s)" in text


@pytest.mark.needs("haproxy")
def test_a_name_that_is_not_there_yet_keeps_haproxy_from_nothing() -> None:
    environment = {"SM_BIND": ":18000", "SM_LEADER_BIND": ":18001"}
    environment |= {f"SM_{number}": f"sm{number}.invalid:8000" for number in (1, 2, 3)}
    command = [str(require("haproxy")), "-c", "-f", str(DEPLOY / "haproxy.cfg")]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_command_that_an_alert_advises_can_be_typed_as_it_stands() -> None:
    rules = (DEPLOY / "prometheus" / "rules.yaml").read_text("utf-8")
    advised = re.findall(r"`([^`]*fencehold [^`]*)`", rules)
    assert advised
    assert all('FENCEHOLD_DSN="$SM_DATABASE"' in one and f"--table {LEASE_TABLE}" in one for one in advised)


def let_into_the_image(path: str) -> bool:
    """As Docker reads .dockerignore: the last rule that names the path, or a folder above it, decides."""
    is_let_in = True
    for rule in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = rule.lstrip("!").removeprefix("**/")
        parts = path.split("/")
        above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        named = above + (parts if rule.startswith("**/") else [])
        if rule and not rule.startswith("#") and any(fnmatch.fnmatchcase(one, pattern) for one in named):
            is_let_in = rule.startswith("!")
    return is_let_in


def test_into_the_image_goes_what_it_is_made_from_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = ["pyproject.toml", "constraints.txt", "README.md", *project["project"]["license-files"]]
    needed += [f"{package}/__init__.py" for package in wheel["packages"]] + list(wheel["force-include"])
    assert [path for path in needed if not let_into_the_image(path)] == []
    kept_out = [".git/config", ".venv/bin/python", ".env", "app.db", "deploy/secret.yaml", "tests/conftest.py"]
    kept_out += ["src/fencehold/__pycache__/connect.pyc", "src/x.pyc"]
    assert [path for path in kept_out if let_into_the_image(path)] == []


def test_a_sql_server_is_started_only_when_asked_for_and_its_password_is_nobodys_but_yours() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    asked_for = {name: one for name, one in compose["services"].items() if one.get("profiles") == ["sqlserver"]}
    assert asked_for.keys() == {"sqlserver", "sqlserver-database"}
    for service in asked_for.values():
        assert service["environment"]["MSSQL_SA_PASSWORD"] == "${MSSQL_SA_PASSWORD:-}"
        assert service["environment"]["ACCEPT_EULA"] == "Y"
    assert asked_for["sqlserver"]["healthcheck"]["test"][0] == "CMD"
    assert asked_for["sqlserver"]["ports"] == ["127.0.0.1:1433:1433"]
    waits = compose["services"]["sm1"]["depends_on"]["sqlserver-database"]
    assert waits == {"condition": "service_completed_successfully", "required": False}


def test_the_image_has_a_driver_for_every_database_that_compose_starts() -> None:
    extras = re.findall(r"/src\[([a-z,]+)\]", (DEPLOY / "Dockerfile").read_text("utf-8"))[0].split(",")
    assert {"postgres", "sqlserver"} <= set(extras)


@pytest.mark.needs("haproxy")
def test_the_command_that_haproxys_file_shows_is_enough_to_start_it() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    (shown,) = re.findall(r"^# +((?:\w+=\S+ )+)haproxy -f haproxy.cfg$", text, re.MULTILINE)
    shown_environment = dict(word.split("=") for word in shown.split())
    assert set(shown_environment) == set(re.findall(r'"\$\{(\w+)\}"', text))
    command = [str(require("haproxy")), "-c", "-f", str(DEPLOY / "haproxy.cfg")]
    done = subprocess.run(command, env=shown_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("haproxy")
def test_haproxy_takes_its_configuration_as_it_stands() -> None:
    environment = {name: f"127.0.0.1:{18_000 + n}" for n, name in enumerate(ADDRESSES)}
    haproxy = require("haproxy")
    command = [str(haproxy), "-c", "-f", str(DEPLOY / "haproxy.cfg")]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
