"""One link's notes on its target: who writes it, as whom, and where its twins begin; kept true while it runs.

They outlive the store: a second store that would write the same link is refused by them before it writes a record, and
a lost store is put together again from them (`recovery`). Where the rights for the topic are missing the link runs
without, and says so once.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence

from twinshore.fleet import KafkaError, Link, RefusedError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.notes import Notebook
from twinshore.mirror.plan import TWINS_TOPIC
from twinshore.mirror.target_notes import Claim, Line, Told, Writer
from twinshore.store import LinkIdentity, Store

JOURNAL_SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "86400000"}
BYTES_AT_ONCE = 1 << 18
AWAY_S = 30.0
AGAIN_S = 5.0


class LinkNotes:
    """`process` is who writes them; `log` hears once what is missing, and when they had to be written anew."""

    def __init__(
        self,
        link: Link,
        store: Store,
        target: KafkaCluster,
        process: str = "",
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._link, self._store, self._target = link, store, target
        self._process, self._log = process, log
        self._notebook = Notebook(target, TWINS_TOPIC)
        self._own = ""
        self._topic_id = b""
        self._read_to = 0
        self._identity: LinkIdentity | None = None
        self._blind = False
        self._look_at_s = 0.0
        self.told = Told(link.name, "")

    @property
    def own(self) -> str:
        """The id of the store that this process has."""
        if not self._own:
            self._own = self._store.own_id(uuid.uuid4().hex)
        return self._own

    # -- looking

    def look(self, source_id: str) -> Told:
        """What stands there of the link from that source, read to the end."""
        topic_id = self._notebook.topic_id()
        if topic_id != self._topic_id or source_id != self.told.source_id:
            self._topic_id, self._read_to, self.told = topic_id, 0, Told(self._link.name, source_id)
        if topic_id:
            notes, self._read_to = self._notebook.read(self._read_to)
            for note in notes:
                self.told.take(note.key, note.value)
        return self.told

    def refuse_another(self, source_id: str) -> None:
        """RefusedError where another store writes the link, as far as that can be seen. Writes nothing."""
        try:
            holder = self.look(source_id).holder()
        except KafkaError as error:
            if error.retriable:
                raise
            return
        if holder and holder.store != self.own:
            raise self._refusal(holder)

    # -- a term of the link

    def hold(self, source_id: str) -> None:
        """Before a term's first write: the link is this store's from here on, or RefusedError says whose it is.

        Of stores that begin at once the one whose claim the log has first goes on: each reads the log through its own
        claim before it writes anything else.
        """
        self._identity, self._blind, self._look_at_s = None, False, 0.0
        try:
            self._hold(source_id)
        except KafkaError as error:
            self._without(error)

    def introduce(self, identity: LinkIdentity) -> None:
        """Whom the link writes as, for whoever must put its store together again."""
        self._identity = identity
        if self._blind:
            return
        made = (identity.producer_id, identity.producer_epoch, identity.target_cluster_id)
        writer = Writer(self.own, *made, self._process)
        try:
            if self.told.writer != writer:
                self._tell([self.told.writer_line(writer)])
        except KafkaError as error:
            self._without(error)

    def tell(self, topics: Collection[str] | None = None) -> None:
        """Where the twins of these topics begin, of all where none are named; only what is not there yet is written."""
        if self._blind or self._identity is None:
            return
        rows = [row for row in self._store.twins(self._link.name) if topics is None or row.topic in topics]
        mapped = {topic for topic, _ in self._store.reached(self._link.name)}
        try:
            for lines in _portions(self.told.twin_lines(rows, mapped)):
                self._tell(lines)
        except KafkaError as error:
            self._without(error)

    def check(self) -> None:
        """RefusedError once another store has taken the link over; what somebody deleted is written anew."""
        identity = self._identity
        if self._blind or identity is None or time.monotonic() < self._look_at_s:
            return
        read_to = self._read_to
        try:
            told = self.look(identity.source_cluster_id)
        except KafkaError as error:
            if not error.retriable:
                self._without(error)
            # Where it cannot be read nobody can take over either; looking costs the link's driver its patience.
            self._look_at_s = time.monotonic() + AWAY_S
            return
        holder = told.holder()
        if holder and holder.store != self.own:
            self._identity = None
            raise self._refusal(holder)
        writer = told.writer
        if holder and writer and writer.store == self.own and self._read_to == read_to:
            return
        if holder and writer and writer.store == self.own and writer.process != self._process:
            self._identity = None
            raise RefusedError(
                f"link {self._link.name} is written by {writer.process} too, with a copy of this store, "
                f"{self._store.place}",
                hint="stop both, keep the store that is further (`twinshore status --topics`), delete the other",
            )
        if holder is None:
            self._log(
                f"{self._link.name}: its notes in {TWINS_TOPIC} on {self._link.target} are gone: they are made anew"
            )
        try:
            self.hold(identity.source_cluster_id)
            self.introduce(identity)
            self.tell()
        except KafkaError:
            self._identity, self._look_at_s = identity, time.monotonic() + AGAIN_S

    def take_over(self, source_id: str) -> None:
        """The link becomes this store's, whosever it was."""
        others = [store for store in self.look(source_id).claims if store != self.own]
        lines = [] if self.own in self.told.claims else [self.told.claim_line(self._claim())]
        lines += [self.told.release_line(store) for store in others]
        if lines:
            self._make()
            self._append(lines)
        holder = self.look(source_id).holder()
        if not holder or holder.store != self.own:
            self._append([self.told.release_line(self.own)])
            raise KafkaError(f"{self._target.name}: the link was not taken over", retriable=True, hint="try again")

    # -- how

    def _hold(self, source_id: str) -> None:
        told = self.look(source_id)
        if told.holder() is None:
            self._make()
            self._append([told.claim_line(self._claim())])
            told = self.look(source_id)
        holder = told.holder()
        if holder is None or self.own not in told.claims:
            if holder and holder.store != self.own:
                raise self._refusal(holder)
            raise KafkaError(f"{self._target.name}: the claim in {TWINS_TOPIC} cannot be read yet", retriable=True)
        # Claims that came too late would hold the link once this one is given up.
        late = [store for store in told.claims if store != holder.store]
        if holder.store != self.own:
            self._append([told.release_line(self.own)])
            raise self._refusal(holder)
        if late:
            self._append([told.release_line(store) for store in late])

    def _claim(self) -> Claim:
        return Claim(self.own, socket.gethostname(), int(time.time() * 1000))

    def _make(self) -> None:
        if not self._notebook.exists():
            self._notebook.make(JOURNAL_SETTINGS, lasting=True)

    def _tell(self, lines: Sequence[Line]) -> None:
        """Appends lines whose order among others does not matter."""
        self._append(lines)
        for line in lines:
            self.told.take(*line)

    def _append(self, lines: Sequence[Line]) -> None:
        self._notebook.append(lines, int(time.time() * 1000))

    def _without(self, error: KafkaError) -> None:
        if error.retriable:
            raise error
        self._blind = True
        self._log(
            f"{self._link.name}: who else writes this link is not seen, nor could a lost store be recovered from "
            f"{self._target.name}: {error.message} (try: {error.hint})"
        )

    def _refusal(self, holder: Claim) -> RefusedError:
        name = self._link.name
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder.since_ms / 1000))
        return RefusedError(
            f"link {name} into {self._link.target} is written by store {holder.store[:8]} (host {holder.host}, since "
            f"{since}); the store here is {self.own[:8]}, {self._store.place}",
            hint=f"run it with that store; if that is lost, or shall not write any more: stop its mirror, then "
            f'`twinshore link recover "{name}" --dry-run`',
        )


def _portions(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """In order, in batches that any broker takes."""
    portion: list[Line] = []
    size = 0
    for key, value in lines:
        portion.append((key, value))
        size += len(key) + len(value or b"")
        if size >= BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
