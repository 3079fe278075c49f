"""docs/metrics.md shows the table that counts, its alerts name metrics that exist, and its limits are the real ones."""

import re
import subprocess
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from fencehold.ports.events import Claim
from fencehold.telemetry.metrics import LAST_OF_A_WORKER, METRICS, Metric
from fencehold.telemetry.prometheus import LABEL_SETS_MAX
from fencehold.telemetry.traces import OpenTelemetryTraces
from tests.docs.blocks import the_block
from tests.servers.programs import require

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
ALERTS = re.findall(r"^ +expr: (.*)$", PAGE, re.MULTILINE)
BY_NAME = {metric.name: metric for metric in METRICS}


def row(metric: Metric) -> str:
    book = f"`{metric.rule_book}`" if metric.rule_book else ""
    cells = [book, f"`{metric.name}`", metric.kind.value, ", ".join(metric.labels), metric.meaning]
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def test_the_table_is_the_one_that_counts():
    table = PAGE[PAGE.index("| rule book") : PAGE.index("Which fact moves")].strip().splitlines()[2:]
    assert table == [row(metric) for metric in sorted(METRICS, key=lambda metric: not metric.rule_book)]


def test_alerts_ask_for_metrics_and_labels_that_exist():
    assert len(ALERTS) > 4
    for alert in ALERTS:
        asked = re.findall(r"\b(?:outbox|worker|reaper|fencehold)_\w+", alert)
        assert set(asked) <= BY_NAME.keys()
        by = re.search(r"by \((\w+)\)", alert)
        assert by is None or all(by[1] in BY_NAME[name].labels for name in asked)
    text = " ".join(ALERTS)
    assert "outbox_oldest_pending_age_seconds" in text
    assert "reaper_runs_total" in text


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_alerts(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(the_block("docs/metrics.md", "groups:").text, "utf-8")
    subprocess.run([require("promtool"), "check", "rules", "rules.yaml"], cwd=tmp_path, check=True, timeout=50)


def test_the_limits_of_the_page_are_those_of_the_code():
    assert f"{LABEL_SETS_MAX:,}".replace(",", " ") in PAGE
    assert all(f"`{fact}`" in PAGE for fact in LAST_OF_A_WORKER)


def test_every_attribute_of_a_span_is_on_the_page():
    around = OpenTelemetryTraces(TracerProvider(shutdown_on_exit=False)).handling("o", "w", Claim(1, "t", "e", "{}"))
    assert around is not None
    with around as span:
        assert [name for name in span.attributes if f"`{name}`" not in PAGE] == []
