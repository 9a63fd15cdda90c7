"""Checks before and during a drain: stopped topics, log ends, open transactions, live mirrors; and the operator's
commands.

Commands run without a shell and with a timeout; their output is kept. The other functions only read. A mirror is
checked before writers are held, or before anything is deleted that the mirror must recreate: else the switch would wait
for a dead mirror.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentEffect, IncidentKind
from twinshore.config.model import FIRST_TERM, Link, TopicPartition
from twinshore.config.sections.switch import SwitchSettings
from twinshore.config.sentences import count_phrase, escape_line, has_or_have, join_names
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.transactional_ids import TransactionalIds
from twinshore.replication.core.link_config import effective_link
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.recovery import GRACE_S
from twinshore.state.core.lease_watch import LeaseWatch
from twinshore.state.core.values import LeaseRow, PartitionState
from twinshore.state.store import Store
from twinshore.switch.announce import HomeAnnouncer
from twinshore.switch.core.acl_rules import plan_denial, topics_left_to_link
from twinshore.switch.core.steps import (
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    TopicMove,
)
from twinshore.switch.write_access import read_acl_snapshot

DRILL_WATCH_MS = 1000


def find_paused_topics(link: Link, topics: Sequence[str], store: Store) -> list[str]:
    control = effective_link(link, store.controls.of(link.name)).link.control
    return [topic for topic in topics if control.pauses(topic)]


def describe_partial_refill(link: Link) -> str:
    """Returns a warning if a twin of this link would not be refilled completely, or an empty string."""
    if not link.queue.fresh:
        return ""
    return f"the queue of {link.name} is fresh: what is too old for it is deleted, and not filled again"


def read_topics_left_to_link(link: Link, store: Store) -> tuple[str, ...]:
    """Returns the topics that a switch has left to the link, by the store."""
    pair = pair_name(link)
    homes = store.homes.of(pair)
    if not any(row.home == link.source and row.term > FIRST_TERM for row in homes.values()):
        return ()
    in_switch = {row.topic for row in store.topics_in_switch.of(pair)}
    return topics_left_to_link(link, homes, store.twins.of(link.name), in_switch)


def find_stopped_partitions(link: Link, topics: Sequence[str], store: Store) -> dict[str, IncidentKind | None]:
    """Returns stopped partitions and topics, with the incident; None if only the progress shows the stop."""
    incidents = [row.incident for row in store.incidents.rows(link.name, open_only=True)]
    stopped: dict[str, IncidentKind | None] = {
        f"{position.topic}-{position.partition}": None
        for position in store.progress.positions(link.name)
        if position.topic in topics and position.state != PartitionState.FLOWING
    }
    for incident in incidents:
        if incident.topic in topics and (incident.policy.stops or incident.policy.effect is IncidentEffect.TOPIC):
            name = f"{incident.topic}-{incident.partition}" if incident.partition >= 0 else incident.topic
            stopped[name] = incident.kind
    return dict(sorted(stopped.items()))


def describe_stopped_partitions(link: Link, topics: Sequence[str], store: Store) -> list[str]:
    return format_stopped_partitions(find_stopped_partitions(link, topics, store))


def format_stopped_partitions(rest: Mapping[str, IncidentKind | None]) -> list[str]:
    return [f"{name} ({kind})" if kind else name for name, kind in rest.items()]


OUTPUT_BYTES_MAX = 2_000
TOPICS_CHARS_MAX = 30_000  # of the environment's one string; all are on standard input besides
TERMINATE_TIMEOUT_S = 2.0
ENDED_WELL_SUFFIX = ", ended well"
TERMINATE_S_MAX = 2 * TERMINATE_TIMEOUT_S  # longest time to end a command that took too long


@dataclass(frozen=True, slots=True)
class CommandResult:
    """`why`: why the command failed; empty if it did not. `output`: the end of its output."""

    why: str
    took_s: float
    output: str

    def sentence(self, command: str) -> str:
        said = f": {escape_line(self.output)}" if self.output else ""
        how = f"{self.why}" if self.why else "ended well"
        return f"`{command}` {how} after {self.took_s:.1f} s{said}"


class StepHandler(Protocol):
    def once(self, state: SwitchState) -> StepOutcome: ...


class CommandSteps:
    """The operator's commands. Another process may have run a command before. `others` executes all other steps."""

    def __init__(self, settings: SwitchSettings, others: StepHandler | None = None) -> None:
        self._settings, self._others = settings, others
        self._begun: set[str] = set()

    def once(self, state: SwitchState) -> StepOutcome:
        if self._others is not None and state.step not in (SwitchStep.BEFORE, SwitchStep.AFTER):
            return self._others.once(state)
        back = state.state is SwitchStatus.ROLLING_BACK
        which = "after" if back or state.step is SwitchStep.AFTER else "before"
        command = self._settings.before if which == "before" else self._settings.after
        if back and not state.command:
            return StepDone(state, "`before` was not run" if self._settings.before else "no command is set")
        if not command:
            return StepDone(state, "no command is to be run" if back else "")
        moment = f"{which}, turned back" if back else which
        if state.command == f"{moment}{ENDED_WELL_SUFFIX}":
            return StepDone(state)  # run without the store, by a process that left the rest to it
        if state.command != moment:
            # Saved first: a process that resumes must know that it may have run.
            self._begun.add(moment)
            return StepPending(
                f"`{command[0]}` is run, for {self._settings.timeout_s:g} s at most", replace(state, command=moment)
            )
        again = "" if moment in self._begun else "it may have run before, for a process that is no more; "
        ran = run_command(
            command, command_environment(state, which, back=back), state.names(), self._settings.timeout_s
        )
        said = again + ran.sentence(command[0])
        if ran.why and which == "before":
            return StepFailed(said)
        if ran.why:
            return StepDone(replace(state, unfinished=said), said)
        return StepDone(replace(state, command=f"{moment}{ENDED_WELL_SUFFIX}", unfinished=""), said)


def command_environment(state: SwitchState, moment: str, *, back: bool) -> dict[str, str]:
    """Twinshore's own variables have another prefix, so the command can call `twinshore`."""
    home = state.new if moment == "after" and not back else state.old
    topics = " ".join(state.names())
    return {
        "SWITCH_ID": state.id,
        "SWITCH_KIND": state.kind.value,
        "SWITCH_MOMENT": moment,
        "SWITCH_FROM": state.old,
        "SWITCH_TO": state.new,
        "SWITCH_HOME": home,
        "SWITCH_GROUP": state.group,
        "SWITCH_TOPICS": topics if len(topics) <= TOPICS_CHARS_MAX else "",
    }


def run_command(command: Sequence[str], more: dict[str, str], topics: Sequence[str], timeout_s: float) -> CommandResult:
    """Runs the command in a separate session: its children end with it, and Ctrl-C here does not reach them."""
    began_s = steady_s()
    with tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as given:
        given.write("".join(f"{topic}\n" for topic in topics).encode())
        given.seek(0)
        try:
            child = subprocess.Popen(
                list(command),
                stdin=given,
                stdout=written,
                stderr=subprocess.STDOUT,
                env={**os.environ, **more},
                start_new_session=True,
            )
        except OSError as error:
            return CommandResult(f"cannot be run ({error.strerror})", 0.0, "")
        code: int | None = None
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if code is None:
                _end(child)
        took_s = steady_s() - began_s
        written.seek(max(0, written.seek(0, os.SEEK_END) - OUTPUT_BYTES_MAX))
        output = written.read().decode("utf-8", "replace").strip()
    if code is None:
        return CommandResult(f"was ended, as it took longer than {timeout_s:g} s,", took_s, output)
    return CommandResult(f"ended with {code}" if code else "", took_s, output)


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(TERMINATE_TIMEOUT_S)


def describe_commands(settings: SwitchSettings) -> tuple[str, ...]:
    both = (("before writers are held", settings.before), ("once writers continue", settings.after))
    return tuple(f"`{command[0]}` is run {when}" for when, command in both if command)


def find_missing_command(settings: SwitchSettings) -> str:
    """Returns which command this host could not run; empty if none."""
    for name, command in (("before", settings.before), ("after", settings.after)):
        if command and not os.access(command[0], os.X_OK):
            return f"[switch] {name}: {command[0]} cannot be run on this host"
    return ""


REQUEST_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class LogEndsSnapshot:
    """`ends`: log ends by topic and partition. `unsettled`: a sentence if replicas lag or a transaction is open."""

    ends: dict[str, tuple[int, ...]]
    unsettled: str = ""


def read_log_ends(cluster: KafkaCluster, topics: Iterable[TopicMove]) -> LogEndsSnapshot:
    moves = list(topics)
    partitions = [TopicPartition(move.topic, number) for move in moves for number in range(move.partitions)]
    # The end first: a log that grows between the questions is neither behind nor held by a transaction.
    end, high, stable = (
        cluster.list_offsets(partitions, kind)
        for kind in (OffsetKind.LOG_END, OffsetKind.HIGH_WATERMARK, OffsetKind.LAST_STABLE)
    )
    lagging = [str(partition) for partition in partitions if high[partition] < end[partition]]
    held = [str(partition) for partition in partitions if stable[partition] < high[partition]]
    unsettled = ""
    if lagging:
        unsettled = f"replicas on {cluster.name} are behind their leaders in {join_names(lagging)}"
    elif held:
        unsettled = f"a transaction is open on {cluster.name} in {join_names(held)}"
    ends = {
        move.topic: tuple(end[TopicPartition(move.topic, number)] for number in range(move.partitions))
        for move in moves
    }
    return LogEndsSnapshot(ends, unsettled)


def open_transactions(cluster: KafkaCluster, topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns partitions that await transaction markers, by transactional id, even without a record yet."""
    names = set(topics)
    asker = TransactionalIds(cluster, patience_s=REQUEST_TIMEOUT_S, go=lambda: None)
    found = {
        name: tuple(sorted(str(partition) for partition in partitions if partition.topic in names))
        for name, partitions in asker.open_by_id("").items()
    }
    return {name: parts for name, parts in found.items() if parts}


def drain(old: KafkaCluster, state: SwitchState) -> StepOutcome:
    """Done once no transaction is open on the topics, and two successive reads saw the same log ends."""
    due = open_transactions(old, state.names())
    parts = join_names(sorted({named for some in due.values() for named in some}))
    if state.kind is SwitchKind.DRILL:
        log_ends = read_log_ends(old, state.topics)
        would = f"; transactions are open in {parts}, and would be waited for" if due else ""
        return StepDone(_ending(state, log_ends), f"the logs on {old.name} as they are now{would}")
    if due:
        return StepPending(f"{join_names(list(due))} {has_or_have(due)} a transaction open on {old.name} in {parts}")
    log_ends = read_log_ends(old, state.topics)
    found = _ending(state, log_ends)
    if log_ends.unsettled:
        return StepPending(log_ends.unsettled, found)
    if not all(move.ends for move in state.topics):
        return StepPending(f"the logs on {old.name} are checked a second time", found)
    if grows := _grown(state, {move.topic: move.ends for move in state.topics}, log_ends):
        return StepPending(f"clients still write to {grows} on {old.name}", found)
    return StepDone(found, f"nothing is open on {old.name}, and two looks saw the same ends")


def check_twins_level(new: KafkaCluster, state: SwitchState) -> StepOutcome:
    """Done once the twins end where the old home does. These ends are the points at which the topics change homes."""
    log_ends = read_log_ends(new, state.topics)
    behind = sum(
        max(0, old_end - new_end)
        for move in state.topics
        for old_end, new_end in zip(move.ends, log_ends.ends[move.topic], strict=True)
    )
    if behind:
        return StepPending(f"the twins on {new.name} are {count_phrase(behind, 'offset')} behind")
    if state.kind is SwitchKind.DRILL:
        points = tuple(replace(move, points=move.ends) for move in state.topics)
        return StepDone(replace(state, topics=points), f"the twins on {new.name} have come as far")
    if log_ends.unsettled:
        return StepPending(log_ends.unsettled)
    beyond = [move.topic for move in state.topics if move.ends != log_ends.ends[move.topic]]
    if beyond:
        return StepFailed(f"{join_names(beyond)} on {new.name} ends beyond the old home: another client wrote there")
    return StepDone(_at(state, log_ends), f"the twins on {new.name} are level")


def describe_topic_changes(cluster: KafkaCluster, topics: Iterable[TopicMove], *, new: bool) -> str:
    """Returns what differs from the plan: a recreated topic, or another partition count (a new partition would be left
    behind). Empty if nothing.
    """
    moves = list(topics)
    seen = cluster.metadata([move.topic for move in moves], refresh=True).topics
    for move in moves:
        topic = seen.get(move.topic)
        if topic is None or topic.error:
            return f"topic {move.topic} is not on {cluster.name} now"
        if topic.topic_id.hex() != (move.new_id if new else move.old_id):
            return f"topic {move.topic} was deleted and made again on {cluster.name}"
        if len(topic.partitions) != move.partitions:
            count = count_phrase(len(topic.partitions), "partition")
            planned = f"and the link replicates {move.partitions}: plan again"
            return f"topic {move.topic} has {count} on {cluster.name}, {planned}"
    return ""


def count_missing_offsets(old: KafkaCluster, new: KafkaCluster, topics: Iterable[TopicMove]) -> int:
    """Returns how many offsets the twins lack now, by the logs and not by the stored progress."""
    moves = list(topics)
    ours, theirs = (read_log_ends(cluster, moves).ends for cluster in (old, new))
    return sum(
        max(0, end - twin) for move in moves for end, twin in zip(ours[move.topic], theirs[move.topic], strict=True)
    )


def describe_writes_since(old: KafkaCluster, state: SwitchState) -> str:
    """Returns which logs have grown past the points, or an empty string."""
    grown = _grown(state, {move.topic: move.points for move in state.topics}, read_log_ends(old, state.topics))
    return f"clients wrote to {grown} on {old.name} while writers were held" if grown else ""


def _grown(state: SwitchState, before: Mapping[str, tuple[int, ...]], log_ends: LogEndsSnapshot) -> str:
    grown = [
        f"{move.topic}-{number}"
        for move in state.topics
        for number, (then, now) in enumerate(zip(before[move.topic], log_ends.ends[move.topic], strict=True))
        if then != now
    ]
    return join_names(grown)


def why_unreachable(cluster: KafkaCluster) -> str:
    """Returns why the cluster does not answer; empty if it does."""
    try:
        cluster.cluster_id()
        cluster.metadata([], refresh=True)
    except KafkaError as error:
        return error.message
    return ""


def _ending(state: SwitchState, log_ends: LogEndsSnapshot) -> SwitchState:
    return replace(state, topics=tuple(replace(move, ends=log_ends.ends[move.topic]) for move in state.topics))


def _at(state: SwitchState, log_ends: LogEndsSnapshot) -> SwitchState:
    return replace(state, topics=tuple(replace(move, points=log_ends.ends[move.topic]) for move in state.topics))


def finish_drill(old: KafkaCluster, announcer: HomeAnnouncer, done: StepDone, now_ms: int) -> StepOutcome:
    """Ends a drill, and reports writes to topics that no rule can keep writers from: those are watched for a while."""
    state = replace(done.state, let_write_ms=done.state.let_write_ms or now_ms)
    open_to = plan_denial(read_acl_snapshot(old, state.names())).open_to_all
    if not open_to:
        return done
    ends = read_log_ends(old, state.topics).ends
    written = {move.topic for move in state.topics if move.topic in open_to and ends[move.topic] != move.points}
    if not written and 0 <= now_ms - state.held_ms < DRILL_WATCH_MS:
        return StepPending(f"watches {join_names(sorted(open_to))}, which nothing can keep writers from", state)
    followed = announcer.followed(state)
    if unheld := written - followed:
        return replace(done, state=replace(state, why=describe_drill_failure(unheld)))
    return replace(done, sentence=f"{done.sentence}; {describe_drill_writes(open_to, written)}")


def describe_drill_failure(topics: Collection[str]) -> str:
    some = join_names(sorted(topics))
    return f"{some} was written during the drill by writers that nothing can hold: a switch would have turned back"


def describe_drill_writes(open_to: Collection[str], written: Collection[str]) -> str:
    """`open_to`: topics that no rule can block. `written`: those that subscribers, and perhaps others, have written."""
    if not written:
        return f"no client wrote to {join_names(sorted(open_to))} during the drill"
    some = join_names(sorted(written))
    follow = "clients that follow homes write there, and a switch turns back where anybody else does"
    return f"{some} was written during the drill: {follow}"


class MirrorWatch:
    """Whether a mirror renews the link's lease, as seen here: no clocks of two hosts are compared."""

    def __init__(self, store: Store, link: str, lease_s: float) -> None:
        self._store, self._link = store, link
        self._watch = LeaseWatch(lease_s, GRACE_S)
        self._first: LeaseRow | None = None
        self._alive = False

    def check_alive(self) -> StepPending | StepFailed | None:
        """Returns None once a mirror has shown that it runs."""
        if self._alive:
            return None
        row = self._store.leases.read(f"link {self._link}")
        if row is None or row.released:
            return StepFailed(f"no mirror runs {self._link} now: start `twinshore mirror run`")
        self._first = self._first or row
        self._alive = row != self._first
        if self._alive:
            return None
        if self._watch.observe(row, steady_s()):
            return StepFailed(f"{row.owner} gives no sign of life, and ran {self._link}: is its mirror dead?")
        return StepPending(f"waits for a sign of life of {row.owner}, which runs {self._link}")

    def waiting(self, sentence: str) -> StepPending:
        """For a step that waits for the mirror: returns `sentence` as pending while the mirror may be running, else a
        request to start the mirror, which is noticed.
        """
        row = self._store.leases.read(f"link {self._link}")
        if not self._watch.observe(row, steady_s()):
            return StepPending(sentence)
        return StepPending(f"waits for the mirror of {self._link}, which gives no sign of life: start it, this goes on")
