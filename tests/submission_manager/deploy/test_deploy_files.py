"""What deploy/ says is true of the service: files can be read, and name only settings and metrics that there are."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from fencehold.model import durations
from submission_manager.cli.serve import CLOSING_S
from submission_manager.metrics import Metrics
from submission_manager.settings import SETTINGS, settings
from tests.servers.programs import require

DEPLOY = Path(__file__).parents[3] / "deploy"
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
    deployment = next(yaml.safe_load_all((DEPLOY / "kubernetes" / "submission-manager.yaml").read_text("utf-8")))
    pod = deployment["spec"]["template"]["spec"]
    probe = pod["containers"][0]["readinessProbe"]
    given = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    delay_s = durations.seconds(given["SM_DRAIN_DELAY"], "delay")
    assert delay_s > probe["periodSeconds"] * probe["failureThreshold"]
    longest_s = delay_s + 2 * settings().drain_timeout_s + CLOSING_S
    assert pod["terminationGracePeriodSeconds"] > longest_s


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
def test_haproxy_takes_its_configuration_as_it_stands() -> None:
    environment = {name: f"127.0.0.1:{18_000 + n}" for n, name in enumerate(ADDRESSES)}
    haproxy = require("haproxy")
    command = [str(haproxy), "-c", "-f", str(DEPLOY / "haproxy.cfg")]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
