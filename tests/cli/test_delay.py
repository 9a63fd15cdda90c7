"""`twinshore delay`: what it shows, checks and keeps, from a store alone."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.monitoring.watchers import build_monitor_name
from twinshore.state.core.values import AlarmRow, PartitionDelayRow, WatcherRow
from twinshore.state.store import open_store

LINK = "east->west"
MONITOR = build_monitor_name([LINK])


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "twinshore.toml"
    path.write_text(
        f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n[clusters.east]\nbootstrap = ["e:1"]\n'
        f'[clusters.west]\nbootstrap = ["w:1"]\n[links."{LINK}"]\n'
    )
    return path


def run(settings: Path, *words: str) -> Result:
    register_verbs()
    return CliRunner().invoke(app, ["delay", *words, "--settings", str(settings)])


def fill(tmp_path: Path, *, beaten_s_ago: float = 0.0, alarm: bool = False) -> None:
    now_ms = int(time.time() * 1000)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        rows = [
            PartitionDelayRow(LINK, "orders", 0, "", now_ms, 100, 90, 10, 2_500, "exact", "watched"),
            PartitionDelayRow(LINK, "orders", 1, "", now_ms, 50, 50, 0, 0, "exact", "watched"),
            PartitionDelayRow(LINK, "orders", 0, "billing", now_ms, 80, 70, 10, 0, "exact", "watched"),
            PartitionDelayRow(LINK, "theirs", 0, "", now_ms, 900, 100, 7, 1_000, "foreign", "watched"),
        ]
        store.delay.save_partitions(rows)
        beaten_ms = now_ms - int(beaten_s_ago * 1000)
        store.delay.save_heartbeat(
            WatcherRow(MONITOR, "links", "a", 1, 1_000, beaten_ms, beaten_ms, "watches", (LINK,))
        )
        if alarm:
            store.delay.raise_alarm(AlarmRow(LINK, "recovery point", "orders", "", "orders are late", now_ms - 9_000))


def test_it_shows_topics_groups_and_what_is_only_known_about(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path, alarm=True)
    lines = [" ".join(line.split()) for line in run(settings).output.splitlines()]
    assert any(line.startswith(f"{LINK} orders 2 150 140 10 2.5") for line in lines), lines
    assert any(line.startswith(f"{LINK} orders billing 1 80 70 10 0.0") for line in lines), lines
    assert any("~7 ~1.0" in line for line in lines), "somebody else's copy: the least it can be"
    assert any(re.fullmatch(r"alarm for \d+ s: orders are late", line) for line in lines)
    values = json.loads(run(settings, "--json").output)
    assert [len(values[name]) for name in ("partitions", "alarms", "watchers")] == [4, 1, 1]
    assert "unreplicated_ends" not in values["partitions"][0]


def test_a_check_is_well_warns_or_is_critical(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path)
    well = run(settings, "check")
    assert (well.exit_code, well.output.split(":")[0]) == (0, "OK")
    fill(tmp_path, alarm=True)
    late = run(settings, "check")
    assert late.exit_code == 1
    assert re.fullmatch(r"WARNING: orders are late \[for \d+ s, read \d+ s ago\]", late.output.strip())
    fill(tmp_path, beaten_s_ago=60)
    silent = run(settings, "check")
    assert silent.exit_code == 2
    assert silent.output.startswith(f"CRITICAL: {MONITOR} has said nothing for 6")
    assert re.search(r"orders are late \[.*, 6\d s", silent.output), "what was known last"


def test_zabbix_is_given_no_number_where_the_last_one_is_old(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path)
    figures = [run(settings, "check", "--item", "lag", "--topic", topic).output for topic in ("orders", "theirs")]
    assert figures == ["10\n", "7\n"]
    now_ms = int(time.time() * 1000)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        hidden = PartitionDelayRow(LINK, "orders", 0, "", now_ms - 300_000, 100, 90, 10, 2_500, "exact", "watched")
        store.delay.save_partitions([hidden])
    for item in ("lag", "recovery-point"):
        found = run(settings, "check", "--item", item, "--topic", "orders")
        assert (found.exit_code, found.stdout) == (2, "")
        assert re.search(r"orders-0 of east->west was read last 30\d s ago \(lag 10, recovery point", found.stderr)
    assert run(settings, "check", "--item", "alarms", "--topic", "orders").output == "0\n"
    assert run(settings, "check", "--item", "lag", "--topic", "theirs").output == "7\n"
    fill(tmp_path, beaten_s_ago=60)
    for topic in ("", "orders"):
        found = run(settings, "check", "--item", "alarms", *(["--topic", topic] if topic else []))
        assert (found.exit_code, found.stdout) == (2, ""), "nobody would raise one"
        assert f"no alarms: {MONITOR} has said nothing for 6" in found.stderr


def test_a_cause_is_one_alarm_and_its_parts_are_listed_in_it(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path, alarm=True)
    now_ms = int(time.time() * 1000)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.raise_alarm(AlarmRow(LINK, "mirror silent", "", "", "its mirror is silent", now_ms))
        store.delay.raise_alarm(AlarmRow(LINK, "heartbeat", "", "", "no heartbeat", now_ms))
    checked = run(settings, "check").output
    assert re.match(r"WARNING: its mirror is silent \[for \d+ s\] \(with it 2: no heartbeat .*orders are late", checked)
    assert checked.count("orders are late") == 1
    lines = [line.strip() for line in run(settings).output.splitlines()]
    assert sum(line.startswith("with it, for ") for line in lines) == 2
    values = json.loads(run(settings, "--json").output)["alarms"]
    head = next(row["id"] for row in values if row["kind"] == "mirror silent")
    assert {row["kind"]: row["part_of"] for row in values} == {
        "mirror silent": None,
        "heartbeat": head,
        "recovery point": head,
    }
    assert run(settings, "check", "--item", "alarms").output == "1\n"
    assert run(settings, "check", "--item", "alarms", "--topic", "orders").output == "3\n"
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.raise_alarm(AlarmRow("west", "cluster away", "", "", "west does not answer", now_ms))
        store.delay.raise_alarm(AlarmRow("north", "cluster away", "", "", "north does not answer", now_ms))
    checked = run(settings, "check").output
    assert "west does not answer" in checked, "it is a cluster of the link"
    assert "north does not answer" not in checked


def test_nobody_watching_is_critical(settings: Path, tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path / 'store.db'}").close()
    found = run(settings, "check")
    assert found.exit_code == 2
    assert "no monitor watches" in found.output


def test_a_link_that_no_living_monitor_watches_is_critical(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path)
    settings.write_text(settings.read_text() + '[links."west->east"]\n')
    found = run(settings, "check")
    assert found.exit_code == 2
    assert found.output.strip() == "CRITICAL: no monitor watches west->east: start `twinshore delay watch`"
    assert run(settings, "check", "--link", LINK).exit_code == 0
    now_ms = int(time.time() * 1000)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        two = (LINK, "west->east")
        both = WatcherRow(build_monitor_name(two), "links", "b", 1, 1_000, now_ms, now_ms, "watches", two)
        store.delay.save_heartbeat(both)
    empty = run(settings, "check")
    assert (empty.exit_code, empty.output.split(": nothing")[0]) == (1, "WARNING: west->east: no partition is watched")
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.save_partitions(
            [PartitionDelayRow("west->east", "bills", 0, "", now_ms, 9, 9, 0, 0, "exact", "watched")]
        )
    assert run(settings, "check").exit_code == 0


def test_where_no_place_is_watched_nothing_is_said_to_be_well(settings: Path, tmp_path: Path) -> None:
    """All topics of the source have gone, as where another cluster answers at its address."""
    fill(tmp_path)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.forget_topics(LINK, ["orders", "theirs"])
    found = run(settings, "check")
    assert found.exit_code == 1
    assert found.output.startswith(f"WARNING: {LINK}: no partition is watched: nothing was read yet, or no topic")
    assert run(settings, "check", "--item", "lag").exit_code == 2


def test_a_check_of_one_topic_looks_at_it_alone(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path, alarm=True)
    assert run(settings, "check", "--topic", "orders").exit_code == 1
    well = run(settings, "check", "--topic", "theirs")
    assert (well.exit_code, well.output.strip()) == (0, "OK: 1 partition watched, recovery point 1.0 s")
    nobody = run(settings, "check", "--topic", "order")
    assert (nobody.exit_code, nobody.output.split(":")[0]) == (2, "CRITICAL")
    assert "order " in nobody.output and "orders?" in nobody.output
    now_ms = int(time.time() * 1000)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.raise_alarm(AlarmRow(LINK, "blind", "", "", "the link is blind", now_ms))
    assert run(settings, "check", "--topic", "theirs").exit_code == 1, "an alarm of the whole link"


def test_a_topic_that_nobody_watches_is_no_empty_table(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path)
    for more in ((), ("--json",)):
        wrong = run(settings, "--topic", "ordes", *more)
        assert isinstance(wrong.exception, ConfigError)
        assert (wrong.exception.code, wrong.exception.values["topic"]) == ("monitoring.unknown-topic", "ordes")


def test_figures_that_are_not_renewed_are_not_said_to_be_well(settings: Path, tmp_path: Path) -> None:
    """A link that cannot be read is `blind` after a minute; until then its last figures stand in the store."""
    fill(tmp_path)
    age(tmp_path, "orders", 0, 14)
    assert run(settings, "check").exit_code == 0, "a period or two may be missed"
    age(tmp_path, "orders", 0, 23)
    found = run(settings, "check")
    assert found.exit_code == 1
    words = f"WARNING: {LINK}: the figures of 1 of 3 partitions are old, the oldest 2[3-9] s \\(last known: lag 10"
    assert re.match(words, found.output), found.output
    assert run(settings, "check", "--topic", "theirs").exit_code == 0
    for item in ("lag", "recovery-point"):
        found = run(settings, "check", "--item", item)
        assert (found.exit_code, found.stdout) == (2, ""), "an old number is none"
    assert run(settings, "check", "--item", "alarms").output == "0\n"


def age(tmp_path: Path, topic: str, partition: int, seconds: int) -> None:
    """The place was read so long ago."""
    at_ms = int(time.time() * 1000) - seconds * 1000
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.save_partitions(
            [PartitionDelayRow(LINK, topic, partition, "", at_ms, 100, 90, 10, 2_500, "exact", "watched")]
        )


def test_a_pause_is_named_where_all_is_well(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path)
    now_ms = int(time.time() * 1000)
    held = [PartitionDelayRow(LINK, "orders", n, "", now_ms, 50, 50, 0, 0, "exact", "paused") for n in (0, 1)]
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.save_partitions(held)
    some = run(settings, "check")
    assert (some.exit_code, f"; 2 partitions of {LINK} are paused" in some.output) == (0, True), some.output
    whole = run(settings, "check", "--topic", "orders")
    assert (whole.exit_code, whole.output.strip().endswith(f"; orders of {LINK} is paused")) == (0, True), whole.output


def test_brackets_in_a_groups_name_are_shown(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path)
    now_ms = int(time.time() * 1000)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        groups = ("billing[eu]", "x[/y]")
        store.delay.save_partitions(
            [PartitionDelayRow(LINK, "orders", 0, name, now_ms, 8, 7, 1, 0, "exact", "watched") for name in groups]
        )
    shown = run(settings)
    assert shown.exit_code == 0, shown.exception
    assert all(f" {name} " in shown.output for name in groups)


def test_one_that_was_killed_and_will_not_come_again_can_be_forgotten(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path)
    now_ms = int(time.time() * 1000)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.delay.save_heartbeat(WatcherRow("monitor of old->links", "links", "b", 1, 1_000, 0, 0, "watched"))
        store.delay.raise_alarm(AlarmRow("monitor of old->links", "monitor silent", "", "", "is silent", now_ms))
    assert run(settings, "check").exit_code == 2
    assert isinstance(run(settings, "forget", "monitor of nothing").exception, ConfigError)
    assert "not missed any more" in run(settings, "forget", "monitor of old->links").output
    assert run(settings, "check").exit_code == 0
    assert isinstance(run(settings, "forget", "monitor of old->links").exception, ConfigError)


def test_zabbix_discovers_links_and_topics_and_gets_numbers(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path, alarm=True)
    data = json.loads(run(settings, "check", "--discovery").output)["data"]
    assert data == [{"{#LINK}": LINK, "{#KEY}": "east..west", "{#TOPIC}": name} for name in ("orders", "theirs")]
    for item, number in (("lag", "10"), ("recovery-point", "2.5"), ("alarms", "1")):
        found = run(settings, "check", "--item", item, "--topic", "orders", "--link", "east..west")
        assert (found.exit_code, found.output.strip()) == (0, number)
    wrong = run(settings, "check", "--item", "lags")
    assert isinstance(wrong.exception, ConfigError)


def test_the_history_is_kept_after_alarms_clear(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path, alarm=True)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        (alarm,) = store.delay.alarms()
        store.delay.clear_alarm(alarm.id, alarm.raised_ms + 5_000)
    assert "for 5 s  orders are late" in run(settings, "alarms").output
    assert json.loads(run(settings, "alarms", "--json", "--link", LINK).output)[0]["sentence"] == "orders are late"


def test_the_history_of_a_link_lies_behind_any_number_of_others(settings: Path, tmp_path: Path) -> None:
    fill(tmp_path, alarm=True)
    settings.write_text(settings.read_text() + '[links."west->east"]\n')
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for number in range(60):
            store.delay.raise_alarm(AlarmRow("west->east", "recovery point", f"t{number}", "", "others are late", 1))
    for name in (LINK, "east..west"):
        assert "orders are late" in run(settings, "alarms", "--link", name).output
    assert "others are late" in run(settings, "alarms").output


def test_without_a_store_it_says_what_to_start(settings: Path) -> None:
    found = run(settings)
    assert isinstance(found.exception, ConfigError)
    assert "delay watch" in found.exception.hint
