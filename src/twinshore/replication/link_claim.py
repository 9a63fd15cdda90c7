"""One link's records in the target's `twinshore.twins`: the store and producer that write, and the twins' anchors.

The records outlive the store: they stop a second store before its first write, and restore a lost one
(`operations.recover`). Without rights for the topic the link runs on, and logs that once.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.frozen import TWINS_TOPIC
from twinshore.config.model import Link
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.sentences import format_time
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.state_topic import StateTopic, split_into_batches
from twinshore.replication.core.claim_records import (
    CLEANUP_POLICY,
    TWINS_TOPIC_SETTINGS,
    ClaimKeyValue,
    LinkClaimState,
    LinkWriter,
    StoreClaim,
)
from twinshore.runtime.endpoints import verify_cluster_ids
from twinshore.runtime.logging import LinkLogger
from twinshore.state.core.values import LinkIdentity
from twinshore.state.store import Store

log = logging.getLogger(__name__)

RETRY_INTERVAL_S = 3.0
RETRY_INTERVAL_S_MAX = 30.0
FULL_READ_INTERVAL_S = 60.0  # A reader of new records alone does not see that old ones vanished.


@dataclass(frozen=True, slots=True)
class ProcessLease:
    """The process that writes, and its generation of the link's lease (0: not held now)."""

    process: str = ""
    generation: Callable[[], int] = lambda: 0
    lease_s: float = 10.0


class LinkClaim:
    """Logs what is missing, once, and when lost records are written again."""

    def __init__(self, link: Link, store: Store, target: KafkaCluster, holding: ProcessLease = ProcessLease()) -> None:
        self._link, self._store, self._target = link, store, target
        self._holding, self._log = holding, LinkLogger(log, link.name)
        self._repeat_filter = RepeatFilter(self._log)
        self._notebook = StateTopic(target, TWINS_TOPIC)
        self._own = ""
        self._seen = b"", -1
        self._begins = self._read_to = 0
        self._whole_at_s = 0.0
        self._identity: LinkIdentity | None = None
        self._generation = 0
        self._met: LinkWriter | None = None
        self._blind = self._owed = self._unread = self._answers = False
        self._look_at_s = self._read_at_s = 0.0
        self._policy_filter = RepeatFilter(self._log)
        self.state = LinkClaimState(link.name, "")

    @property
    def own(self) -> str:
        """This process's store id."""
        if not self._own:
            self._own = self._store.links.own_id(uuid.uuid4().hex)
        return self._own

    # -- reading

    def look(self, source_id: str) -> LinkClaimState:
        """Reads the link's records to the log end; from the log start when records may have vanished, and every
        `FULL_READ_INTERVAL_S`.
        """
        self._answers = False
        seen = self._notebook.seen()
        self._answers = True
        if not seen[0]:
            self._seen, self.state = seen, LinkClaimState(self._link.name, source_id)
            return self.state
        begins, end = self._notebook.bounds()
        same = seen == self._seen and source_id == self.state.source_id
        whole = not same or begins > self._begins or end < self._read_to or time.monotonic() >= self._whole_at_s
        state = LinkClaimState(self._link.name, source_id) if whole else self.state
        read_to = begins if whole else self._read_to
        for notes, reached in self._notebook.pages(read_to, (begins, end)):
            read_to = reached
            for note in notes:
                state.take(note.key, note.value)
        if read_to < end:
            place = f"{self._target.name}: {TWINS_TOPIC} cannot be read to its end: {read_to} of {end}"
            raise KafkaError(place, retriable=True)
        self._seen, self._read_to, self.state = seen, read_to, state
        if whole:
            self._begins, self._whole_at_s = begins, time.monotonic() + FULL_READ_INTERVAL_S
        return state

    def refuse_other_store(self, source_id: str) -> None:
        """RefusedError when another store is seen to write the link. Writes nothing."""
        try:
            claim = self.look(source_id).holder()
        except KafkaError as error:
            if error.retriable:
                raise
            return
        if claim and claim.store != self.own:
            raise self._refusal(claim)

    # -- a lease epoch of the link

    def hold(self, source_id: str) -> None:
        """Claims the link for this store; RefusedError names another holder. Call before an epoch's first write.

        If several stores claim a link at once, the first claim in the log wins. Each store reads up to its own claim
        before any other write.
        """
        self._identity, self._generation = None, self._holding.generation()
        self._blind = self._owed = self._unread = False
        self._look_at_s = self._whole_at_s = 0.0
        try:
            self._hold(source_id)
        except KafkaError as error:
            self._without(error)
            return
        self._repeat_filter.well()
        self._met, self._read_at_s = self.state.writer, time.monotonic()
        self._ensure_compacted()
        with self._noting_errors():
            self._release_late_claims()

    def publish_writer(self, identity: LinkIdentity) -> None:
        """Writes the producer's identity, for a recovery of the store.

        Like all records but the claim, this may be written later: a target that refuses records here may take others.
        """
        self._identity = identity
        if self._ready:
            with self._noting_errors():
                self._write_writer(identity)

    def tell(self, topics: Collection[str] | None = None) -> None:
        """Writes the missing anchors of these topics' twins; None: of all."""
        if self._ready:
            with self._noting_errors():
                self._write_twins(topics)

    def retract_twins(self, topics: Container[str]) -> None:
        """Deletes the anchors of topics whose home is elsewhere by now: no recovery may restore these twins."""
        if self._ready:
            with self._noting_errors():
                for lines in split_into_batches(self.state.lines_against(topics)):
                    self._tell(lines)

    @property
    def _ready(self) -> bool:
        """Whether records may be written now."""
        return self._identity is not None and not (self._blind or self._owed)

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """Logs an error of the block; the link runs on, and `check` writes what is missing."""
        try:
            yield
        except KafkaError as error:
            if not _may_pass(error):
                self._without(error)
                return
            if not self._owed:
                self._log.warning(
                    f"its records on {self._link.target} cannot be written now: the link runs on, and they are written"
                    f" later ({error.message})"
                )
            self._owed, self._look_at_s = True, time.monotonic() + RETRY_INTERVAL_S

    def check(self) -> None:
        """Writes missing records again; RefusedError once another store has taken the link over."""
        identity, begun_s = self._identity, time.monotonic()
        if self._blind or identity is None or begun_s < self._look_at_s:
            return
        before, read_to = self.state, self._read_to
        writer, twins = before.writer, set(before.twins)
        try:
            state = self.look(identity.source_cluster_id)
        except KafkaError as error:
            self._on_read_error(error, begun_s)
            return
        self._read_at_s = time.monotonic()
        if self._unread:
            self._unread = False
            self._log.info(f"its records on {self._link.target} can be read again")
        claim = state.holder()
        if claim and claim.store != self.own:
            self._identity = None
            raise self._refusal(claim)
        if state.newer_writer:
            newer = f"has the link's writer in a form of a newer version (v {state.newer_writer})"
            self._repeat_filter.say(f"{self._link.target} {newer}, which this one cannot read: it is left unchanged")
            return
        ours = bool(claim) and state.writer == self._writer(identity)
        if ours and state is before and self._read_to == read_to and not self._owed:
            return
        if state.writer and self._superseded_by(state.writer):
            return
        self._log_missing_records(state, writer, twins)
        with self._noting_errors():
            self._rewrite_records(identity, whole=state is not before)
        if self._owed:
            self._look_at_s = _again_s(begun_s)

    def take_over(self, source_id: str) -> None:
        """Makes the link this store's, whichever store held the claim."""
        others = [store for store in self.look(source_id).claims if store != self.own]
        lines = [] if self.own in self.state.claims else [self.state.claim_line(self._claim())]
        lines += [self.state.release_line(store) for store in others]
        if lines:
            self._make()
            self._append(lines)
        claim = self.look(source_id).holder()
        if not claim or claim.store != self.own:
            self._append([self.state.release_line(self.own)])
            raise KafkaError(f"{self._target.name}: the link was not taken over", retriable=True, hint="try again")

    # -- steps

    def _hold(self, source_id: str) -> None:
        state = self.look(source_id)
        if state.holder() is None:
            self._make()
            self._append([state.claim_line(self._claim())])
            state = self.look(source_id)
        claim = state.holder()
        if claim is None or self.own not in state.claims:
            if claim and claim.store != self.own:
                raise self._refusal(claim)
            raise KafkaError(f"{self._target.name}: the claim in {TWINS_TOPIC} cannot be read yet", retriable=True)
        if claim.store != self.own:
            self._append([state.release_line(self.own)])
            raise self._refusal(claim)

    def _release_late_claims(self) -> None:
        """Deletes later claims, which would win once this one is released."""
        late = [store for store in self.state.claims if store != self.own]
        if late:
            self._append([self.state.release_line(store) for store in late])

    def _superseded_by(self, writer: LinkWriter) -> bool:
        """Whether this epoch is over; RefusedError when a process with a copy of this store writes the link too.

        Of one store's processes, the one with the higher lease generation is newer. A record of a lower generation was
        in flight when that process lost the lease.
        """
        others = writer.store == self.own and writer.process != self._holding.process
        if not others or writer == self._met or writer.generation < self._generation:
            return False
        if self._holding.generation() != self._generation:
            return True
        self._identity = None
        raise RefusedError(
            "replication.store-copied", link=self._link.name, process=writer.process, store=self._store.place
        )

    def _log_missing_records(
        self, state: LinkClaimState, writer: LinkWriter | None, twins: set[tuple[str, int]]
    ) -> None:
        count = len(twins - set(state.twins)) + (writer is not None and state.writer is None)
        which = "its records" if state.holder() is None else f"{count} of its records" if count else ""
        if which:
            where = f"{TWINS_TOPIC} on {self._link.target}"
            self._log.warning(f"{which} in {where} are gone: they are written again")

    def _rewrite_records(self, identity: LinkIdentity, *, whole: bool) -> None:
        self._hold(identity.source_cluster_id)
        if whole:
            self._ensure_compacted()
        self._release_late_claims()
        self._write_writer(identity)
        self._write_twins()
        if self._owed:
            self._owed = False
            self._log.info(f"its records on {self._link.target} are complete again")

    def _write_writer(self, identity: LinkIdentity) -> None:
        writer = self._writer(identity)
        if self.state.writer != writer and not self.state.newer_writer:
            self._tell([self.state.writer_line(writer)])
            self._met = None

    def _write_twins(self, topics: Collection[str] | None = None) -> None:
        rows = [row for row in self._store.twins.of(self._link.name) if topics is None or row.topic in topics]
        mapped = {topic for topic, _ in self._store.offset_runs.reached(self._link.name)}
        for lines in split_into_batches(self.state.twin_lines(rows, mapped)):
            self._tell(lines)

    def _writer(self, identity: LinkIdentity) -> LinkWriter:
        made = (identity.producer_id, identity.producer_epoch, identity.target_cluster_id)
        return LinkWriter(self.own, *made, self._holding.process, self._generation)

    def _claim(self) -> StoreClaim:
        return StoreClaim(self.own, socket.gethostname(), wall_ms())

    def _make(self) -> None:
        if not self._notebook.exists():
            self._notebook.make(TWINS_TOPIC_SETTINGS, lasting=True)

    def _ensure_compacted(self) -> None:
        """Sets the cleanup policy: under another one records would expire."""
        place = f"{CLEANUP_POLICY} of {TWINS_TOPIC} on {self._link.target}"
        policy = "unknown"
        try:
            admin = self._target.admin
            found = admin.topic_settings([TWINS_TOPIC]).get(TWINS_TOPIC, {}).get(CLEANUP_POLICY)
            policy = (found.value if found else None) or "delete"
            if policy == "compact":
                return
            admin.alter_topic_settings(TWINS_TOPIC, {CLEANUP_POLICY: "compact"}, topic_id=self._seen[0])
        except KafkaError as error:
            if not error.retriable:
                self._policy_filter.say(
                    f"{place} is {policy} and must be compact: once its records expire, no second store is refused, and"
                    f" no lost store recovered: {error.message} (try: {error.hint})"
                )
            return
        self._log.info(f"{place} was {policy}, so its records would expire: it is compact now")

    def _tell(self, lines: Sequence[ClaimKeyValue]) -> None:
        """Appends records whose order does not matter."""
        self._append(lines)
        for line in lines:
            self.state.take(*line)

    def _append(self, lines: Sequence[ClaimKeyValue]) -> None:
        self._notebook.append(lines, wall_ms())

    def _on_read_error(self, error: KafkaError, begun_s: float) -> None:
        """Schedules the next read, later after a long one, since the controller waits for reads."""
        self._look_at_s = _again_s(begun_s)
        if not _may_pass(error):
            self._without(error)
        elif self._answers and not self._unread and time.monotonic() - self._read_at_s > self._holding.lease_s:
            self._unread = True
            where = f"{TWINS_TOPIC} on {self._link.target}"
            self._log.warning(
                f"its records in {where} cannot be read for longer than the lease, though the cluster answers: another"
                f" store could take the link over unnoticed ({error.message})"
            )

    def _without(self, error: KafkaError) -> None:
        if _may_pass(error):
            raise error
        self._blind = True
        self._repeat_filter.say(
            "the mirror cannot see whether another store writes this link, and a lost store could not be recovered from"
            f" {self._target.name}: {error.message} (try: {error.hint})"
        )

    def _refusal(self, claim: StoreClaim) -> RefusedError:
        here = self._store.place if self._store.passes else f"{self.own[:8]}, {self._store.place}"
        values = {"store": claim.store[:8], "host": claim.host, "since": format_time(claim.since_ms), "here": here}
        place = {"link": self._link.name, "target": self._link.target}
        return RefusedError("replication.link-of-another-store", **place, **values)


def _may_pass(error: KafkaError) -> bool:
    """Whether a retry may help. OFFSET_OUT_OF_RANGE: the log was truncated during the read."""
    return error.retriable or error.code == Code.offset_out_of_range


def _again_s(begun_s: float) -> float:
    """Returns when to retry what began at `begun_s`."""
    now_s = time.monotonic()
    return now_s + min(RETRY_INTERVAL_S_MAX, max(RETRY_INTERVAL_S, now_s - begun_s))


def establish_identity(
    link: Link, store: Store, source: KafkaCluster, target: KafkaCluster, notes: LinkClaim
) -> LinkIdentity:
    """Claims the link and writes its identity; the first start takes a producer id from the target."""
    identity = verify_cluster_ids(link, store, source, target)
    notes.hold(source.cluster_id())
    if identity is None:
        producer_id, epoch = target.init_producer_id()
        made = LinkIdentity(link.name, producer_id, epoch, source.cluster_id(), target.cluster_id())
        identity = store.links.save_identity(made)
    notes.publish_writer(identity)
    return identity
