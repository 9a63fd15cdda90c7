"""The template asks only for what the agent's commands answer, and those are verbs that exist."""

from __future__ import annotations

import importlib
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.pages import options, verbs
from twinshore.config.sections.delay import DelaySection
from twinshore.monitoring.core.alerts import (
    ZABBIX_ITEMS,
    build_zabbix_discovery,
    compute_figure,
    explain_missing_figure,
    get_freshness_limit_s,
)
from twinshore.state.core.values import AlarmRow, PartitionDelayRow

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "zabbix"


def template() -> dict[str, Any]:
    yaml: Any = importlib.import_module("yaml")
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "twinshore_delay.yaml").read_text())["zabbix_export"]
    return found


def values(node: object, name: str) -> Iterator[str]:
    """Every value under that name, wherever it stands."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == name:
                yield value
            yield from values(value, name)
    elif isinstance(node, list):
        for one in node:
            yield from values(one, name)


def commands() -> dict[str, str]:
    lines = (DEPLOY / "twinshore_delay.conf").read_text().splitlines()
    pairs = [line.removeprefix("UserParameter=").split(",", 1) for line in lines if line.startswith("UserParameter=")]
    return {key.removesuffix("[*]"): command for key, command in pairs}


def test_every_key_of_the_template_has_a_command() -> None:
    keys = list(values(template(), "key"))
    assert len(keys) == 5
    for key in keys:
        name, _, arguments = key.partition("[")
        assert name in commands()
        assert not arguments or arguments.split(",")[0] in ZABBIX_ITEMS, key
    for expression in values(template(), "expression"):
        (key,) = re.findall(r"/Twinshore delay/([^,]+),", expression)
        assert key in keys


def test_an_agent_passes_every_argument_on() -> None:
    """It refuses these characters unless it is told to be unsafe."""
    place = PartitionDelayRow("east->west", "orders.v1", 0, "", 0, 9, 4, 5, 0, "exact", "watched")
    (found,) = json.loads(build_zabbix_discovery([place]))["data"]
    for key in values(template(), "key"):
        arguments = key.partition("[")[2].removesuffix("]")
        for macro, value in found.items():
            arguments = arguments.replace(macro, value)
        for argument in arguments.split(","):
            assert not set("\\'`*?[]{}~$!&;()<>|#@\"") & set(argument.removeprefix('"').removesuffix('"')), argument


def test_the_commands_are_verbs_with_options_that_exist() -> None:
    for command in commands().values():
        words = command.partition(";")[0].split()
        assert " ".join(words[1:3]) in verbs()
        assert {word for word in words if word.startswith("--")} <= options()


def test_every_uuid_is_one_of_its_own() -> None:
    found = list(values(template(), "uuid"))
    assert len(set(found)) == len(found)
    assert all(uuid.UUID(one).version == 4 for one in found)


def test_a_topics_figures_are_its_partitions_together() -> None:
    rows = [
        PartitionDelayRow("e->w", topic, number, group, 0, 9, 4, 5, 1_500 * number, "exact", "watched")
        for topic in ("a", "b")
        for number in (1, 2)
        for group in ("", "billing")
    ]
    alarms = [AlarmRow("e->w", "recovery point", "a", "", "late", 1)]
    whole = [AlarmRow("e", "cluster away", "", "", "away", 1), AlarmRow("e->w", "blind", "", "", "unread", 1)]
    assert [compute_figure("alarms", rows, [*alarms, *whole], topic) for topic in ("a", "b", "")] == [3, 2, 3]
    assert [compute_figure(item, rows, alarms, "a") for item in ZABBIX_ITEMS] == [10, 3.0, 1]
    assert [compute_figure(item, rows, alarms, "") for item in ZABBIX_ITEMS] == [20, 3.0, 1]
    assert [compute_figure(item, [], [], "b") for item in ZABBIX_ITEMS] == [0, 0, 0]
    assert [one["{#TOPIC}"] for one in json.loads(build_zabbix_discovery(rows))["data"]] == ["a", "b"]


def test_a_figure_of_old_is_none() -> None:
    place = PartitionDelayRow("e->w", "a", 0, "", 1_000, 9, 4, 5, 1_500, "exact", "watched")
    late = PartitionDelayRow("e->w", "b", 0, "", 200_000, 9, 9, 0, 0, "exact", "watched")
    rows, bound = [place, late], get_freshness_limit_s(DelaySection(blind_s=60.0, period_s=5.0))
    assert bound == 15.0, "long before the link counts as blind"
    assert get_freshness_limit_s(DelaySection(blind_s=60.0, period_s=100.0)) == 300.0
    assert get_freshness_limit_s(DelaySection(blind_s=60.0, period_s=0.2, sample_s=0.1)) == 10.0
    for item in ("lag", "recovery-point"):
        assert explain_missing_figure(item, rows, "a", 16_000, bound) == ""
        said = explain_missing_figure(item, rows, "a", 201_000, bound)
        assert said == "a-0 of e->w was read last 200 s ago (lag 5, recovery point 1.5 s)"
        assert explain_missing_figure(item, rows, "b", 201_000, bound) == ""
        assert explain_missing_figure(item, rows, "", 201_000, bound), "a sum is as old as its oldest part"
        assert " c " in explain_missing_figure(item, rows, "c", 201_000, bound)
    assert explain_missing_figure("alarms", rows, "a", 900_000, bound) == ""


def test_alarms_are_not_counted_where_nobody_would_raise_one() -> None:
    place = PartitionDelayRow("e->w", "a", 0, "", 1_000, 9, 4, 5, 1_500, "exact", "watched")
    assert (
        explain_missing_figure("alarms", [place], "", 2_000, 60, ["no monitor watches e->w"])
        == "no monitor watches e->w"
    )
    assert explain_missing_figure("alarms", [place], "a", 2_000, 60, ["no monitor watches e->w"])
    assert explain_missing_figure("alarms", [], "", 2_000, 60) == "", "a link without topics may be well"
    assert "typo" in explain_missing_figure("alarms", [place], "typo", 2_000, 60)
