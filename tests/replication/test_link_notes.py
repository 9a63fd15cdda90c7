"""A link's notes where the log that holds them, or a process that writes them, is not what was believed."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.model import Link
from twinshore.kafka.admin import ConfigEntry
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.state_topic import StateRecord
from twinshore.replication import link_claim
from twinshore.replication.core.claim_records import CLEANUP_POLICY
from twinshore.replication.link_claim import FULL_READ_INTERVAL_S, RETRY_INTERVAL_S, LinkClaim, ProcessLease
from twinshore.state.core.values import LinkIdentity, TwinRow
from twinshore.state.store import Store, empty_store, open_store

LINK = Link("east", "west")
SOURCE = "a source"
IDENTITY = LinkIdentity(LINK.name, 7, 0, SOURCE, "a target")
NO_LEADER = kafka_error(Code.not_leader_or_follower, "west: read")
TOO_FEW = kafka_error(Code.not_enough_replicas, "west: append")
FORBIDDEN = kafka_error(Code.topic_authorization_failed, "west: settings")


class Log:
    """The topic's one partition as its leader keeps it, and its `cleanup.policy`."""

    def __init__(self) -> None:
        self.notes: list[StateRecord] = []
        self.begins = self.epoch = 0
        self.policy = "compact"
        self.policy_is_fixed = False

    def cut(self) -> None:
        """As retention does, and whoever may delete records."""
        self.notes, self.begins = [], self.end

    def wipe(self) -> None:
        """The one disk that held it is empty; the topic stays that topic, with a new leader or the old one again."""
        self.notes, self.begins = [], 0
        self.epoch += 1

    @property
    def end(self) -> int:
        return self.begins + len(self.notes)


class Reader:
    """One process's connection to that log: notebook, admin and cluster at once."""

    name = "west"

    def __init__(self, log: Log) -> None:
        self.log = log
        self.no_read: KafkaError | None = None
        self.no_write: KafkaError | None = None

    @property
    def admin(self) -> Reader:
        return self

    def seen(self) -> tuple[bytes, int]:
        return b"t" * 16, self.log.epoch

    def exists(self) -> bool:
        return True

    def bounds(self) -> tuple[int, int]:
        if self.no_read:
            raise self.no_read
        return self.log.begins, self.log.end

    def pages(self, offset: int, bounds: tuple[int, int]) -> list[tuple[list[StateRecord], int]]:
        return [(self.log.notes[max(0, offset - bounds[0]) :], bounds[1])]

    def append(self, entries: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> None:
        if self.no_write:
            raise self.no_write
        self.log.notes += [StateRecord(self.log.end + index, now_ms, *entry) for index, entry in enumerate(entries)]

    def topic_settings(self, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
        value = ConfigEntry(CLEANUP_POLICY, self.log.policy, "DYNAMIC_TOPIC_CONFIG")
        return {name: {CLEANUP_POLICY: value} for name in names}

    def alter_topic_settings(self, _: str, changes: dict[str, str], *, topic_id: bytes) -> None:
        assert topic_id == self.seen()[0]
        if self.log.policy_is_fixed:
            raise FORBIDDEN
        self.log.policy = changes[CLEANUP_POLICY]


class Process:
    """One mirror: a store, a lease's generation, and notes."""

    def __init__(self, log: Log, store: Store, name: str, generation: int, said: LogLines) -> None:
        self.said = said
        self.generation = generation
        self.reader = Reader(log)
        holding = ProcessLease(name, lambda: self.generation, 4.0)
        self.notes = LinkClaim(LINK, store, cast(Any, self.reader), holding)

    def begin(self) -> None:
        self.notes.hold(SOURCE)
        self.notes.publish_writer(IDENTITY)
        self.notes.tell()

    def holder(self) -> str:
        holder = self.notes.look(SOURCE).holder()
        return holder.store if holder else ""


Begin = Callable[..., Process]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    yield now


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def begin(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Begin]:
    monkeypatch.setattr(link_claim, "StateTopic", lambda cluster, _: cluster)
    stores: dict[str, Store] = {}
    with ExitStack() as stack:

        def made(store: str, name: str = "", generation: int = 1, *, begun: bool = True) -> Process:
            if store not in stores:
                stores[store] = stack.enter_context(open_store(f"sqlite:///{tmp_path}/{store}.db"))
                rows = [TwinRow(LINK.name, topic, 0, "a" * 32, "b" * 32, 0, 0, 1) for topic in ("orders", "bills")]
                stores[store].twins.save(rows)
            process = Process(log, stores[store], name or f"process of {store}", generation, log_lines)
            if begun:
                process.begin()
            return process

        yield made


@pytest.mark.parametrize("vanish", [Log.cut, Log.wipe])
def test_notes_that_vanish_under_a_running_mirror_are_missed_and_refuse_a_second_store(
    begin: Begin, log: Log, vanish: Callable[[Log], None]
) -> None:
    first = begin("first")
    first.notes.check()
    vanish(log)
    first.notes.check()
    assert len(first.said) == 1
    assert mentions(first.said[0], "twinshore.twins", "west", "gone")
    with raises(RefusedError, "replication.link-of-another-store"):
        begin("second")
    told = begin("first", begun=False).notes.look(SOURCE)
    assert told.writer
    assert len(told.twins) == 2


def test_a_log_that_was_filled_again_meanwhile_is_read_whole_within_a_minute(
    begin: Begin, log: Log, clock: list[float]
) -> None:
    first = begin("first")
    filled = len(log.notes)
    for lost in range(filled):
        kept = log.notes[lost]
        log.notes[lost] = StateRecord(lost, 0, b'["a stranger"]', b"1")
        first.notes.check()
        assert not any("gone" in sentence for sentence in first.said), "nothing that moved says so"
        clock[0] += FULL_READ_INTERVAL_S
        first.notes.check()
        assert "gone: they are written again" in first.said.pop(), kept
        assert log.notes[-1].key == kept.key, "written anew"
    clock[0] += FULL_READ_INTERVAL_S
    first.notes.check()
    assert (first.said, len(log.notes)) == ([], 2 * filled), "what is whole is written once"


def test_a_policy_that_lets_notes_expire_is_mended_or_told(begin: Begin, log: Log, clock: list[float]) -> None:
    log.policy = "compact,delete"
    first = begin("first")
    assert log.policy == "compact"
    assert mentions(first.said.pop(), "cleanup.policy", "west", "was compact,delete")
    log.policy, log.policy_is_fixed = "delete", True
    for _ in range(3):
        clock[0] += FULL_READ_INTERVAL_S
        first.notes.check()
    (warned,) = first.said
    assert mentions(warned, "cleanup.policy", "west", "is delete")


def test_one_error_does_not_stop_the_looking(begin: Begin, clock: list[float]) -> None:
    first = begin("first")
    first.reader.no_read = NO_LEADER
    first.notes.check()
    first.reader.no_read = None
    begin("second", begun=False).notes.take_over(SOURCE)
    first.notes.check()  # It has just tried: a cluster that is away must not take all of the driver's time.
    clock[0] += 5
    with raises(RefusedError, "replication.link-of-another-store"):
        first.notes.check()


def test_notes_that_cannot_be_read_while_the_target_answers_are_told_once(begin: Begin, clock: list[float]) -> None:
    first = begin("first")
    first.reader.no_read = NO_LEADER
    for _ in range(4):
        clock[0] += RETRY_INTERVAL_S
        first.notes.check()
    (told,) = first.said
    assert mentions(told, "cannot be read", "west")
    first.reader.no_read = None
    clock[0] += RETRY_INTERVAL_S
    first.notes.check()
    assert "can be read again" in first.said[1]


def test_a_late_line_of_a_process_that_lost_the_lease_accuses_nobody(begin: Begin, clock: list[float]) -> None:
    old = begin("shared", "the first process", 1, begun=False)
    old.notes.hold(SOURCE)
    heir = begin("shared", "the second process", 2)
    heir.notes.check()
    old.notes.publish_writer(IDENTITY)
    for _ in range(3):
        heir.notes.check()
        clock[0] += RETRY_INTERVAL_S
    writer = heir.notes.state.writer
    assert writer
    assert (writer.process, writer.generation) == ("the second process", 2)
    # Whose lease is gone reads of its heir: that is no copy either.
    old.generation = 0
    old.notes.check()


@pytest.mark.parametrize("generation", [4, 9])
def test_of_a_store_and_its_copy_one_ends_and_the_copy_is_named(begin: Begin, generation: int) -> None:
    first, copy = begin("shared", "the first process", 4), begin("shared", "a copy's process", generation)
    with raises(RefusedError, "replication.store-copied", process="a copy's process"):
        first.notes.check()
    copy.notes.check()


def test_a_copy_that_lags_behind_is_the_one_that_ends(begin: Begin) -> None:
    first, copy = begin("shared", "the first process", 4), begin("shared", "a copy's process", 2)
    first.notes.check()
    with raises(RefusedError, "replication.store-copied", process="the first process"):
        copy.notes.check()


def test_a_restored_store_is_no_copy_of_a_process_that_is_gone(begin: Begin, clock: list[float]) -> None:
    begin("shared", "a process of yesterday", 9)
    restored = begin("shared", "a process of today", 5, begun=False)
    restored.reader.no_write = TOO_FEW
    restored.begin()
    clock[0] += RETRY_INTERVAL_S
    restored.notes.check()


def test_a_target_that_takes_no_notes_holds_no_failover_up(begin: Begin, clock: list[float]) -> None:
    begin("shared", "the first process", 1)
    heir = begin("shared", "the second process", 2, begun=False)
    heir.reader.no_write = TOO_FEW
    heir.begin()
    for _ in range(3):
        clock[0] += RETRY_INTERVAL_S
        heir.notes.check()
    (told,) = heir.said
    assert mentions(told, "cannot be written now")
    heir.reader.no_write = None
    clock[0] += RETRY_INTERVAL_S
    heir.notes.check()
    assert "are complete again" in heir.said[1]
    writer = heir.notes.look(SOURCE).writer
    assert writer
    assert writer.process == "the second process"


def test_a_claim_is_insisted_on(begin: Begin) -> None:
    first = begin("first", begun=False)
    first.reader.no_write = TOO_FEW
    with pytest.raises(KafkaError) as refused:
        first.begin()
    assert refused.value.retriable


def test_stores_take_turns_and_one_holds_whatever_vanishes(begin: Begin, log: Log, clock: list[float]) -> None:
    """Both look and write in every order after the log is lost: never do both go on."""
    for order in itertools.product("ab", repeat=4):
        log.wipe()
        stores = {"a": begin("a"), "b": begin("b", begun=False)}
        log.wipe()
        running, tried = {"a"}, set[str]()
        for one in (*order, "a", "b"):
            try:
                if one in running:
                    stores[one].notes.check()
                elif one == "b" and one not in tried:
                    tried.add(one)
                    stores[one].begin()
                    running.add(one)
            except RefusedError:
                running.discard(one)
            clock[0] += RETRY_INTERVAL_S
        assert len(running) == 1, order


def test_a_store_that_is_not_there_yet_is_named_without_an_id(
    begin: Begin, log: Log, tmp_path: Path, log_lines: LogLines
) -> None:
    first = begin("first").notes.own
    with empty_store(f"sqlite:///{tmp_path}/none.db") as none:
        looking = Process(log, none, "a plan", 0, log_lines)
        with raises(RefusedError, "replication.link-of-another-store", store=first[:8]) as refused:
            looking.notes.refuse_other_store(SOURCE)
    assert refused.value.values["here"] == none.place
    with raises(RefusedError, "replication.link-of-another-store") as refused:
        begin("second", begun=False).notes.refuse_other_store(SOURCE)
    assert re.match(r"[0-9a-f]{8}, ", refused.value.values["here"])


def test_a_writer_of_a_newer_version_is_left_as_it_is_and_told_once(begin: Begin, clock: list[float]) -> None:
    first = begin("first")
    writer = first.notes.state.writer
    assert writer
    key, _ = first.notes.state.writer_line(writer)
    first.reader.append([(key, b'{"v":2}')], 1)
    for _ in range(2):
        clock[0] += 60.0
        first.notes.check()
    first.notes.publish_writer(IDENTITY)
    assert [line for line in first.said if "newer version (v 2)" in line] == first.said
    assert len(first.said) == 1
    assert first.notes.look(SOURCE).newer_writer == 2, "nothing was written over it"
    assert first.holder() == first.notes.own, "the link stays this store's"
