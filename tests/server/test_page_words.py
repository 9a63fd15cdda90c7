"""What pages say: never that all is well where something is old, unknown or left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link
from twinshore.config.settings import parse_settings
from twinshore.groups.view import GroupView
from twinshore.kafka.clock import wall_ms
from twinshore.monitoring.link_status import LinkLag, LinkView, TopicView
from twinshore.monitoring.watchers import WATCHES_LINKS
from twinshore.runtime.live_settings import AUDIT_KIND
from twinshore.server import pages, report_pages, snapshot_writer
from twinshore.server.core.access import Caller
from twinshore.server.core.catalogue import Role
from twinshore.server.core.snapshots import (
    BEHIND,
    DIFFERS,
    FINE,
    PAUSED,
    TROUBLE,
    UNKNOWN,
    link_row,
    overview_row,
    topic_rows,
)
from twinshore.server.core.words import verdict
from twinshore.server.drawings import cluster_map
from twinshore.server.job_pages import jobs_page
from twinshore.server.layout import Visit
from twinshore.server.snapshot_writer import SnapshotWriter
from twinshore.state.core.platform_values import JobLine, JobRow, JobState, SnapshotKind, SnapshotRow
from twinshore.state.core.proxy_values import ProxyInstanceRow
from twinshore.state.core.values import (
    AlarmRow,
    AuditRow,
    Incident,
    PartitionState,
    ReplicatedPosition,
    SwitchRow,
    WatcherRow,
)
from twinshore.state.store import Store, open_store
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, SwitchStatus, TopicMove

NAME = "east->west"
TOPIC = TopicView("orders", 1, 0, 5, 5, 0, 0, 5, 50, recovery_point_s=0.0)
LEVEL = LinkView(NAME, "flowing", None, 0.0, LinkLag(0, 1.0, "mirror", 0, 0.0), (TOPIC,), ())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def seen(view: LinkView, at_ms: int = 1) -> tuple[SnapshotRow, ...]:
    """Snapshots of the link, its topics, and of all."""
    link, topics = link_row(view, at_ms), list(topic_rows(view, [], [], at_ms))
    return link, *topics, overview_row([link], topics, [view], at_ms)


def visit(store: Store, path: str = "/", **query: str) -> Visit:
    return Visit(store, Caller("ada", Role.ADMIN, "x"), path, query, wall_ms())


@pytest.mark.parametrize(
    ("view", "rank"),
    [
        (LEVEL, FINE),
        (replace(LEVEL, lag=LinkLag(0, 1.0, "mirror", 3)), UNKNOWN),
        (replace(LEVEL, lag=None), UNKNOWN),
        (replace(LEVEL, lag=LinkLag(2, 1.0, "mirror")), BEHIND),
        (replace(LEVEL, topics=(replace(TOPIC, lag_records=None),)), UNKNOWN),
        (replace(LEVEL, topics=(replace(TOPIC, lag_records=None, excluded=True),)), PAUSED),
    ],
)
def test_only_what_is_known_and_level_is_fine(view: LinkView, rank: int) -> None:
    found = seen(view)[-1]
    said = verdict(json.loads(found.value))
    assert found.rank == rank
    assert said.startswith("Everything is replicated") == (rank == FINE)
    assert ("excluded" in said) == (rank == PAUSED)


def test_what_is_old_is_not_known(store: Store) -> None:
    group = replace(link_row(LEVEL, 1), kind=SnapshotKind.GROUP, subject=f"{NAME}/billing")
    values = {"kind": "classic", "source_state": "", "target_state": "", "offsets": [], "why": ""}
    group = replace(group, value=json.dumps(values))
    for at_ms, rank in ((wall_ms(), FINE), (wall_ms() - 90_000, UNKNOWN)):
        store.snapshots.save([replace(row, at_ms=at_ms) for row in (*seen(LEVEL), group)])
        shown = [show(visit(store, path)) for path, show in pages.PAGES.items() if path in ("/", "/links", "/topics")]
        shown += [pages.groups_page(visit(store)), pages.group_page(visit(store), NAME, "billing")]
        shown += [pages.link_page(visit(store), NAME), pages.topic_page(visit(store), NAME, "orders")]
        assert [page.rank for page in shown] == [rank] * 7
        assert {str(page.lead).startswith("Not known since ") for page in shown} == {rank == UNKNOWN}


def add_job(store: Store, name: str, verb: str, state: JobState, *lines: str) -> None:
    given = '{"json_output": true}'
    store.jobs.add(
        JobRow(id=name, operation=verb, arguments=given, state=state, requested_by="ada", created_ms=1, updated_ms=1)
    )
    store.jobs.print_lines([JobLine(name, number, 1, line) for number, line in enumerate(lines)])


def test_a_look_that_failed_or_did_not_see_all_is_not_an_empty_answer(store: Store) -> None:
    for verb, page in (
        (report_pages.RESCUES, report_pages.rescue_page),
        (report_pages.SETTINGS, report_pages.settings_page),
    ):
        for number, (state, lines, rank) in enumerate(
            (
                (JobState.DONE, ["[]"], FINE),
                (JobState.DONE, ["[]", "cluster west does not answer"], UNKNOWN),
                (JobState.FAILED, ["error: no such settings"], TROUBLE),
                (JobState.UNKNOWN, [], TROUBLE),
            )
        ):
            add_job(store, f"{verb} {number}", verb, state, *lines)
            shown = page(visit(store))
            assert shown.rank == rank
            assert all(line in str(shown.live) for line in lines[1:])
            assert ("nothing was rescued" in str(shown.live)) == (rank == FINE and verb == report_pages.RESCUES)


def test_a_report_from_before_a_change_says_so(store: Store) -> None:
    for verb, page, kind in (
        (report_pages.RESCUES, report_pages.rescue_page, "rescue"),
        (report_pages.SETTINGS, report_pages.settings_page, AUDIT_KIND),
    ):
        assert "Changed" not in str(page(visit(store)).lead)
        add_job(store, verb, verb, JobState.DONE, "[]")
        assert page(visit(store)).rank == FINE
        store.audit.add([AuditRow(5, "", kind, "x", "", "", "done", "ada")])
        shown = page(visit(store))
        assert shown.rank == UNKNOWN and str(shown.lead).startswith("Changed ")


def test_groups_of_a_silent_link_grow_old(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = replace(link_row(LEVEL, 1), kind=SnapshotKind.GROUP, subject=f"{NAME}/billing")
    store.snapshots.save([kept, replace(kept, subject="west->east/billing", link="west->east")])
    clusters = "".join(
        f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{port}"]\n' for port, name in ((1, "east"), (2, "west"))
    )
    text = f'{clusters}[links."{NAME}"]\ntopics = ["a"]\n[links."west->east"]\ntopics = ["b"]\n'
    settings = parse_settings(text, name="settings", env={})
    writer = SnapshotWriter(settings, store)

    def read(link: Link, *_: object) -> list[GroupView]:
        if link.name == NAME:
            raise ConfigError("switch.none-open")
        return []

    monkeypatch.setattr(snapshot_writer, "view_groups", read)
    writer._read_groups(settings)
    writer._groups_due_s = float("inf")
    writer._write_groups(settings)
    assert store.snapshots.all(SnapshotKind.GROUP) == (kept,), "as old as it was"
    store.snapshots.touch(SnapshotKind.GROUP, [NAME], 7)
    assert store.snapshots.all(SnapshotKind.GROUP) == (replace(kept, at_ms=7),)


def test_no_alarm_is_good_news_while_a_monitor_runs_alone(store: Store) -> None:
    assert pages.alarms_page(visit(store)).rank == UNKNOWN
    for beat_ms, rank in ((wall_ms() - 600_000, UNKNOWN), (wall_ms(), FINE)):
        store.delay.save_heartbeat(WatcherRow("m", WATCHES_LINKS, "o", 1, 1000, beat_ms, 0, "", (NAME,)))
        assert pages.alarms_page(visit(store)).rank == rank


def add_switch(store: Store, number: int, status: SwitchStatus, kind: SwitchKind = SwitchKind.DATALESS) -> None:
    one = SwitchState(
        id=f"{number:032}",
        kind=kind,
        old="east",
        new="west",
        link="",
        back="",
        topics=(TopicMove(topic="orders", old_id="", new_id="", term=0, partitions=1),),
        by="anna",
        begun_ms=number,
        hold_s_max=10.0,
        step=STEPS[kind][-1 if status is SwitchStatus.DONE else 0],
        state=status,
    )
    ended_ms = 1 if one.ended else None
    store.switches.save(
        SwitchRow(one.id, one.kind, one.old, one.new, one.state, one.to_json(), one.by, number, 1, ended_ms)
    )


def test_leads_count_what_is_open_beyond_the_rows_shown(store: Store) -> None:
    store.delay.raise_alarm(AlarmRow(NAME, "stopped", "orders", "", "orders is stopped", 1))
    kind = IncidentKind.RETENTION_GAP
    store.incidents.add(Incident(NAME, "orders", 0, kind, 5, 9, kind.policy, "records are gone"), now_ms=1)
    add_job(store, "a", "mirror delete", JobState.ASKED)
    add_switch(store, 0, SwitchStatus.RUNNING)
    for number in range(60):
        row = store.delay.raise_alarm(AlarmRow(NAME, "cluster", f"t{number}", "", "x", 2))
        store.delay.clear_alarm(row.id, 3)
        one = store.incidents.add(Incident(NAME, "a", 0, kind, number, number + 1, kind.policy, "x"), now_ms=2)
        store.incidents.close(one.id, now_ms=3)
        add_job(store, f"b{number}", "status", JobState.DONE)
        add_switch(store, number + 1, SwitchStatus.DONE)
    instance = ProxyInstanceRow("i", "proxy-1", "h", 1, 1, 0, wall_ms() - 600_000)
    store.proxies.tell(instance, [], [])
    for show in (pages.alarms_page, pages.incidents_page, pages.switch_page, pages.proxies_page):
        shown = show(visit(store, open="all"))
        assert shown.rank == TROUBLE
        assert str(shown.lead).startswith("1 ")
    assert str(jobs_page(visit(store)).lead).startswith("1 ")
    assert str(pages.switch_page(visit(store)).live).count("<tr") == 1 + 1 + pages.SWITCHES_SHOWN
    store.proxies.tell(replace(instance, id="j", started_ms=2, seen_ms=wall_ms()), [], [])
    assert pages.proxies_page(visit(store)).rank == FINE, "it was started again"


def test_nothing_is_said_to_be_safe_where_the_sides_differ(store: Store) -> None:
    for kind, rank, state in (
        (IncidentKind.FOREIGN_WRITE, DIFFERS, "differs"),
        (IncidentKind.RETENTION_GAP, TROUBLE, "incident"),
    ):
        row = store.incidents.add(Incident(NAME, "orders", 0, kind, 5, 9, kind.policy, "x"), now_ms=1)
        link, _, every = seen(replace(LEVEL, incidents=(row,)))
        assert (link.rank, link.state) == (rank, state)
        assert ("lost now" in verdict(json.loads(every.value))) == (rank != DIFFERS)


def test_a_topic_that_is_not_known_has_no_partition_that_flows(store: Store) -> None:
    position = ReplicatedPosition(
        link=NAME,
        topic="orders",
        partition=0,
        start_offset=0,
        to_offset=5,
        records=5,
        bytes=50,
        batches=1,
        source_end=5,
        lag_records=0,
        state=PartitionState.FLOWING,
        first_ms=1,
        last_ms=1,
    )
    away = replace(LEVEL, topics=(replace(TOPIC, lag_records=None),))
    for view, flows, known in (
        (LEVEL, True, True),
        (replace(LEVEL, state="unknown"), False, True),
        (away, False, False),
    ):
        store.snapshots.save(list(topic_rows(view, [position], [], wall_ms())))
        shown = pages.topic_page(visit(store), NAME, "orders")
        assert ("flowing" in str(shown.live)) == flows
        assert str(shown.live).count(">unknown<") == 2 - flows - known
        assert ("unknown" in str(shown.lead)) == (not known)


def test_switches_of_the_first_page_are_those_of_now(store: Store) -> None:
    add_switch(store, 0, SwitchStatus.RUNNING)
    store.snapshots.save([replace(row, at_ms=wall_ms()) for row in seen(LEVEL)])
    assert "/do/switch-resume" in str(pages.overview_page(visit(store)).live)
    add_switch(store, 0, SwitchStatus.DONE)
    assert "/do/switch-resume" not in str(pages.overview_page(visit(store)).live)


def test_an_incident_after_a_forced_switch_leads_to_the_way_back(store: Store) -> None:
    kind = IncidentKind.FOREIGN_WRITE
    row = store.incidents.add(Incident("west->east", "orders", 0, kind, 5, 9, kind.policy, "x"), now_ms=1)
    for status, leads in ((SwitchStatus.ROLLED_BACK, False), (SwitchStatus.DONE, True)):
        add_switch(store, 0, status, SwitchKind.FORCED)
        shown = str(pages.incident_page(visit(store), str(row.id)).fixed)
        assert ("/do/switch-failback?topics=orders&amp;old=east" in shown) == leads


def test_a_cluster_that_does_not_answer_is_drawn_so() -> None:
    drawn = str(cluster_map([{"link": NAME, "rank": UNKNOWN, "lag": -1}], ["west"]))
    assert drawn.count('"cluster silent"') == drawn.count('"cluster"') == 1
