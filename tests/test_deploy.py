"""What is shipped for Prometheus and Grafana asks only for metrics, labels and states that are served."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twinshore.monitoring.monitor import DelayCollector
from twinshore.proof import service as proof
from twinshore.protection.core.model import GateState
from twinshore.replication.core.model import STATES
from twinshore.replication.metrics import METRICS

RULES = ("alerts.yml", "proof.yml", "delay.yml")
DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
# What Prometheus says itself of whom it scrapes.
BY_PROMETHEUS = {"up": ("job", "instance")}
NOTHING: Any = SimpleNamespace(states={}, sampled_ms={}, book={})
# Metric and labels, of the mirror's own, of the proof's and of the delay monitor's.
SERVED = (
    {one.served: tuple(one.labels) for one in METRICS.values()}
    | dict.fromkeys(proof.METRIC_HELP, proof.LABELS)
    | BY_PROMETHEUS
)
# By a proxy: tests/scenarios/test_switch_orphaned.py, tests/proxy/test_doors.py, tests/proxy/test_several.py.
SERVED["twinshore_proxy_waiting_clients"] = SERVED["twinshore_proxy_connections"] = ()
SERVED |= {f"twinshore_proxy_{name}": ("cluster",) for name in ("registered", "cluster_up")}
SERVED["twinshore_proxy_protected_partitions"] = ("topic", "state")
for family in DelayCollector(NOTHING, NOTHING).collect():
    SERVED[family.name + "_total" * (family.type == "counter")] = tuple(family._labelnames)  # type: ignore[attr-defined]
FUNCTIONS = {"time", "absent", "max", "max_over_time", "min", "sum", "rate", "increase", "deriv", "topk"}
WORDS = {"by", "and", "or", "unless"}


def rules() -> list[dict[str, Any]]:
    yaml: Any = importlib.import_module("yaml")
    files = [yaml.safe_load((DEPLOY / "prometheus" / name).read_text()) for name in RULES]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "twinshore.json").read_text())
    return found


def expressions() -> dict[str, str]:
    """Every question that is put to Prometheus, by a name for it."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in dashboard()["panels"]:
        for one in panel["targets"]:
            found[f"panel {panel['id']} {one['refId']}"] = one["expr"]
    for one in dashboard()["templating"]["list"]:
        asked = re.fullmatch(r"label_values\((.*), (\w+)\)", one.get("definition", ""))
        if asked:
            found[f"variable {one['name']}"] = f"max by ({asked[2]}) ({asked[1]})"
    return found


EXPRESSIONS = expressions()


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_asks_only_for_what_is_served(name: str) -> None:
    text = EXPRESSIONS[name]
    asked = re.findall(r"\b(twinshore_\w+|up)(?:\{([^}]*)\})?", text)
    assert asked
    for metric, matchers in asked:
        assert metric in SERVED, f"{metric} is not served"
        labels = set(re.findall(r"(\w+)(?:=~|=|!=|!~)", matchers))
        assert labels <= set(SERVED[metric]), f"{metric} has no such labels: {labels}"
        for state in re.findall(r'state="(\w+)"', matchers):
            assert state in {*STATES, *GateState}
    known = set().union(*(SERVED[metric] for metric, _ in asked))
    for group in re.findall(r"by \(([^)]*)\)", text):
        assert {label.strip() for label in group.split(",")} <= known


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_well_formed(name: str) -> None:
    text = re.sub(r'"[^"]*"', '""', EXPRESSIONS[name])
    assert text.count("(") == text.count(")")
    assert text.count("{") == text.count("}")
    bare = re.sub(r"\{[^}]*\}|by \([^)]*\)|\[\w+\]", " ", text)
    words = set(re.findall(r"[a-z_]\w*", bare)) - SERVED.keys()
    assert words <= FUNCTIONS | WORDS, words
    counters = re.findall(r"\b(twinshore_\w+_total)\b", text)
    for counter in counters if not name.startswith("variable") else ():
        assert re.search(rf"(rate|increase)\({counter}", text), f"{counter} only grows: its rate says something"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_and_where(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    told = rule["annotations"]
    assert told["summary"]
    assert told["description"]
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in group.split(",")}
    grouped |= {
        label for metric, labels in BY_PROMETHEUS.items() if metric in rule["expr"].split("{") for label in labels
    }
    assert set(re.findall(r"\$labels\.(\w+)", told["summary"] + told["description"])) <= grouped


def test_prometheus_raises_them_when_a_mirror_is_gone(tmp_path: Path) -> None:
    """As its own tool plays them: one of two mirrors dies, the other carries its own link on."""
    if shutil.which("promtool") is None:
        return  # Not every system has it.
    for name in ("alerts.yml", "rules_played.yml"):
        folder = DEPLOY / "prometheus" if name == "alerts.yml" else Path(__file__).parent
        shutil.copy(folder / name, tmp_path / name)
    command = ["promtool", "test", "rules", "rules_played.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


def test_panels_do_not_lie_on_one_another_and_use_the_chosen_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        assert panel["datasource"]["uid"] == "${source}"
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def said_of_the_unit(folder: Path, text: str) -> str:
    """What systemd finds wrong with a unit; its program is one that every system has."""
    unit = folder / "twinshore-mirror.service"
    unit.write_text(text.replace("%h/twinshore-1/.venv/bin/twinshore", "/bin/true"))
    command = ["systemd-analyze", "--user", "verify", str(unit)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


def test_systemd_takes_each_line_of_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        return  # Not every system has it.
    text = (DEPLOY / "systemd" / "twinshore-mirror.service").read_text()
    assert said_of_the_unit(tmp_path, text) == ""
    assert "kill mode" in said_of_the_unit(tmp_path, text.replace("KillMode=mixed", "KillMode=mixt"))


def test_each_metric_of_a_proof_is_on_its_page() -> None:
    page = (DEPLOY.parent / "docs" / "proof.md").read_text()
    told = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `twinshore_proof")}
    assert told == set(proof.METRIC_HELP)


def test_each_level_and_process_is_on_the_dashboard() -> None:
    shown = " ".join(text for name, text in EXPRESSIONS.items() if name.startswith("panel"))
    for what in ("link", "topic", "partition", "groups", "switches", "proof", "delay", "proxy"):
        assert f"twinshore_{what}_" in shown, what


def test_no_rule_stands_for_good_where_nothing_is_wrong() -> None:
    """A proof beside a mirror serves no metrics of its own; an incident may close by itself within seconds."""
    found = {rule["alert"]: rule for rule in rules()}
    assert "absent" not in found["TwinshoreProofDown"]["expr"]
    assert "[30d]" in found["TwinshoreProofDown"]["expr"]
    assert found["TwinshoreIncident"]["for"] == "1m"


@pytest.mark.parametrize(
    "metric", ["twinshore_proxy_registered", "twinshore_proxy_cluster_up", "twinshore_switches_open"]
)
def test_what_keeps_writers_waiting_has_a_rule(metric: str) -> None:
    assert any(metric in rule["expr"] for rule in rules())
