"""The monitor's turn, without clusters: what waits is taken together, and a store that is away holds nothing up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from twinshore.config.model import Link
from twinshore.config.settings import Settings, parse_settings
from twinshore.monitoring.core.alerts import AlarmEvent, AlarmKind
from twinshore.monitoring.core.monitored_link import MISSING_TOPIC_GRACE_MS, MonitoredLink
from twinshore.monitoring.core.partition_lag import LagReading, MonitoredPartition, OffsetRelation
from twinshore.monitoring.monitor import MONITOR_ALARM_KINDS, Clock, Monitor
from twinshore.monitoring.notify import AlarmManager, build_alarm_timings
from twinshore.monitoring.sampler import LinkSample
from twinshore.monitoring.watchers import read_last_watch_rows
from twinshore.monitoring.windows import LocalWindowEngine, ThresholdRules
from twinshore.state.core.values import PartitionDelayRow
from twinshore.state.store import Store, open_store

LINK = "east->west"


def settings_of(tmp_path: Path, more: str = "") -> Settings:
    text = f"""
        [store]
        url = "sqlite:///{tmp_path / "store.db"}"
        [clusters.east]
        bootstrap = ["e:1"]
        [clusters.west]
        bootstrap = ["w:1"]
        [links."{LINK}"]
        [delay]
        rise_s = 0
        recovery_point_s = 5
        windows = "plain"
        {more}
    """
    return parse_settings(text, name="t", env={})


class Stage:
    def __init__(self, tmp_path: Path, store: Store, said: LogLines, more: str = "") -> None:
        settings = settings_of(tmp_path, more)
        self.store, self.said, self.told = store, said, list[AlarmEvent]()
        self.monitor = Monitor(settings, settings.links)
        self.alarms = AlarmManager(store, build_alarm_timings(settings.delay.section), [], self.told.append)
        self.alarms.load({LINK}, MONITOR_ALARM_KINDS)
        self.engine = LocalWindowEngine(ThresholdRules(settings.delay))

    def sample(self, at_ms: int, source_end: int) -> None:
        reading = LagReading(MonitoredPartition(LINK, "orders", 0), at_ms, source_end, 100, axis=OffsetRelation.EXACT)
        self.monitor._samples.put(LinkSample(LINK, at_ms, -1, (reading,)))

    def turn(self) -> None:
        self.monitor._turn(self.store, self.engine, self.alarms)


def rename(tmp_path: Path, old: str, new: str) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db")) as raw:
        raw.execute(f"ALTER TABLE {old} RENAME TO {new}")


def test_all_that_waits_is_taken_in_one_turn(tmp_path: Path, log_lines: LogLines) -> None:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stage = Stage(tmp_path, store, log_lines)
        now_ms = stage.monitor._clock()
        for n in range(60):
            stage.sample(now_ms - 60_000 + 1_000 * n, 200)
        stage.sample(now_ms, 100)
        # Only the last of them says how things stand: the backlog of a minute has crossed.
        stage.turn()
        assert stage.monitor.states[LINK].samples == 61
        assert stage.told == []
        assert [row.heartbeats for row in store.delay.watchers()] == [1]


def test_a_monitor_that_ends_leaves_when_it_did(tmp_path: Path, log_lines: LogLines) -> None:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stage = Stage(tmp_path, store, log_lines)
        stage.turn()
        stage.monitor._leave(store)
        (row,) = read_last_watch_rows([Link("east", "west")], store)
        assert (row.link, abs(row.since_ms - stage.monitor._clock()) < 5_000, store.delay.watchers()) == (
            LINK,
            True,
            (),
        )


def test_a_topic_that_the_link_carries_no_more_leaves_the_store(tmp_path: Path, log_lines: LogLines) -> None:
    """Its last figures would else make those of the whole link old, and discovery would go on to name it."""
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stage = Stage(tmp_path, store, log_lines)
        began_ms = stage.monitor._clock()
        rows = [
            PartitionDelayRow(LINK, topic, 0, group, began_ms - 60_000, 9, 9, 0, 0, "exact", "watched")
            for topic in ("gone", "orders")
            for group in ("", "billing")
        ]
        store.delay.save_partitions(rows)
        stage.monitor.states[LINK].restore(store.delay.partitions(LINK))
        for at_ms in (began_ms - MISSING_TOPIC_GRACE_MS, began_ms):
            read = (LagReading(MonitoredPartition(LINK, "orders", 0), at_ms, 100, 100, axis=OffsetRelation.EXACT),)
            over = {"gone": "gone was deleted on east"}
            failures = {"bills": "bills-0 has no leader"}
            stage.monitor._samples.put(LinkSample(LINK, at_ms, -1, read, failures=failures, over=over))
        stage.turn()
        assert {row.topic for row in store.delay.partitions(LINK)} == {"orders"}


def test_while_the_store_is_away_alarms_are_told_and_the_history_has_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr("twinshore.monitoring.monitor.MONITOR_BEAT_INTERVAL_S", 0.0)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stage = Stage(tmp_path, store, log_lines)
        now_ms = stage.monitor._clock()
        rename(tmp_path, "alarms", "gone")
        rename(tmp_path, "watchers", "gone_too")
        stage.sample(now_ms - 9_000, 150)
        for n in range(20):
            stage.sample(now_ms + n, 200)
            stage.turn()
        assert [event.key.kind for event in stage.told] == [AlarmKind.RECOVERY_POINT]
        # Each attempt may take ten seconds, so it is not made at every turn.
        assert len([line for line in stage.said if "cannot be written" in line]) == 1
        assert len([line for line in stage.said if "waits for the store" in line]) == 1
        rename(tmp_path, "gone", "alarms")
        rename(tmp_path, "gone_too", "watchers")
        stage.turn()
        assert store.delay.alarms() == ()
        stage.monitor._store_again_s = 0.0
        stage.turn()
        assert [row.topic for row in store.delay.alarms(open_only=True)] == ["orders"]
        assert len(store.delay.watchers()) == 1


def test_a_cluster_that_does_not_answer_is_one_alarm_and_what_follows_from_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr("twinshore.monitoring.monitor.MONITOR_BEAT_INTERVAL_S", 0.0)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stage, machine = Stage(tmp_path, store, log_lines), Machine()
        stage.monitor._clock = machine.clock()
        stage.monitor.states[LINK] = MonitoredLink(LINK, stage.monitor._clock())
        silent = "west: no broker answers"

        def after(seconds: float, *, away: bool) -> None:
            machine.wall_s, machine.steady_s = machine.wall_s + seconds, machine.steady_s + seconds
            at_ms = stage.monitor._clock()
            reading = LagReading(MonitoredPartition(LINK, "orders", 0), at_ms, 100, 100, axis=OffsetRelation.EXACT)
            failures, sides = ({"": silent}, {"west": silent}) if away else ({}, {})
            readings = () if away else (reading,)
            stage.monitor._samples.put(LinkSample(LINK, at_ms, -1, readings, failures=failures, away=sides))
            stage.turn()
            said.update(row.sentence.rpartition("; ")[2] for row in store.delay.watchers())

        said: set[str] = set()
        after(1, away=False)
        stage.monitor.states[LINK].take_heartbeat(1, stage.monitor._clock(), stage.monitor._clock())
        for _ in range(120):
            after(1, away=True)
        assert [(event.happening, event.key.kind, event.key.link) for event in stage.told] == [
            ("raised", AlarmKind.CLUSTER, "west")
        ]
        standing = {row.kind: row.reported_ms for row in store.delay.alarms(open_only=True)}
        assert standing.keys() == {"cluster away", "blind", "heartbeat"}
        assert [kind for kind, told_ms in standing.items() if told_ms] == ["cluster away"]
        for _ in range(40):
            after(1, away=False)
            stage.monitor.states[LINK].take_heartbeat(
                int(machine.steady_s), stage.monitor._clock(), stage.monitor._clock()
            )
        assert [event.happening for event in stage.told] == ["raised", "cleared"]
        assert {"0 alarms stand", "1 alarm stands", "2 alarms stand"} <= said


class Machine:
    """Its clock, and the time since it was started."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = 1_790_000_000.0, 500.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall_s, lambda: self.steady_s)


@pytest.mark.parametrize("moved_s", [3_600.0, -86_400.0, 2.5])
def test_a_clock_that_was_set_is_taken_over_and_only_then(moved_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall_s, machine.steady_s = machine.wall_s + 11.5, machine.steady_s + 10.0
    assert (clock.settle(), clock()) == (0, 1_790_000_010_000), "a small difference is left alone"
    machine.wall_s += moved_s
    assert clock() == 1_790_000_010_000
    assert clock.settle() == pytest.approx((1.5 + moved_s) * 1_000, abs=1)
    assert clock() == pytest.approx(machine.wall_s * 1_000, abs=1)
    assert clock.settle() == 0


@pytest.mark.parametrize("moved_s", [3_600.0, -86_400.0])
def test_a_machine_that_slept_or_was_set_back_makes_no_alarm_and_forgets_no_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved_s: float, log_lines: LogLines
) -> None:
    monkeypatch.setattr("twinshore.monitoring.monitor.MONITOR_BEAT_INTERVAL_S", 0.0)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stage, machine = Stage(tmp_path, store, log_lines), Machine()
        stage.monitor._clock = machine.clock()
        now_ms = stage.monitor._clock()
        stage.monitor.states[LINK] = MonitoredLink(LINK, now_ms)

        def after(seconds: float, source_end: int) -> None:
            machine.wall_s, machine.steady_s = machine.wall_s + seconds, machine.steady_s + seconds
            stage.sample(stage.monitor._clock(), source_end)
            stage.turn()

        after(0, 100)
        stage.monitor.states[LINK].take_heartbeat(1, now_ms, now_ms)
        after(1, 150)
        after(3, 150)
        machine.wall_s += moved_s
        # Read before the clock was set: it has an age of the old time.
        after(1, 150)
        assert stage.told == []
        assert any("the machine's clock moved by" in line for line in stage.said)
        after(0.5, 150)
        (view,) = stage.monitor.states[LINK].lags.values()
        assert view.recovery_point_ms == 4_500
        (row,) = store.delay.watchers()
        assert row.heartbeat_ms == pytest.approx(machine.wall_s * 1_000, abs=1)
        assert stage.told == []
        after(1, 150)
        assert [event.key.kind for event in stage.told] == [AlarmKind.RECOVERY_POINT]
        machine.wall_s -= 50_000
        after(1, 100)
        for _ in range(16):
            after(1, 100)
        assert len(stage.told) == 2, "it clears in its own time, wherever the clock stands"
