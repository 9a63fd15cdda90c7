"""Markers by closed units: empty transactions of the link's own, where its user may not write markers directly.

A transaction that holds a partition and no record appends one marker to it at its end. Whoever opened it may die: the
coordinator closes it, after a time or when the next holder asks for the id, and appends the same marker. So a marker is
due next from the moment a unit is open, and nothing else of ours is written to that partition meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twinshore.fleet import Cluster, KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.questions import OffsetKind
from twinshore.kafka.transactions import Transactions, Writer
from twinshore.mirror.lane.answers import RIGHTS
from twinshore.mirror.lane.marking import Marked
from twinshore.mirror.lane.runs import Marks

SLOTS = 2
UNIT_PARTITIONS_MAX = 200
UNIT_PARTITIONS_ALONE = 32  # are not worth a second unit beside the first
OPEN_S_MAX = 20.0  # the coordinator closes a unit that is open for longer
PATIENCE_S = 10.0
CALL_S = 10.0
AGAIN_S = 0.2
HOLD_S = 0.5
UNANSWERED = -1  # as brokers call an error without a name
# The id was taken from us, or forgotten: we take it again and look.
TAKEN = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.PRODUCER_FENCED,
        Code.INVALID_TXN_STATE,
        Code.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(frozen=True, slots=True)
class Closed:
    """Runs that are over, one way or the other: no unit is open on their partitions any more."""

    marks: list[Marks]
    answers: list[Marked]


class Ended(Exception):
    """This pump may write nothing more."""


@dataclass(slots=True)
class Run:
    """One partition's markers, `done` of `times` written."""

    marks: Marks
    base: int
    times: int
    done: int = 0

    @property
    def named(self) -> NamedPartition:
        return self.marks.track.order.twin_named

    def judged(self, end: int) -> Marked | None:
        """What is known when the log ends there after `done` markers; None: there are more to come."""
        if end == self.base + self.done and self.done < self.times:
            return None
        return self.answer(0, end)

    def answer(self, error: int, end: int = -1) -> Marked:
        return Marked(self.named.topic, self.named.partition, error, end)


def id_prefix(link: str, producer_id: int) -> str:
    """What the transactional ids of a link begin with. Its producer id is nobody else's on that target."""
    return f"twinshore.{link}.{producer_id}."


class Units:
    """The hand that writes them, beside the pump's loop. `holds`: whether the partitions may still be written."""

    def __init__(
        self,
        target: Cluster,
        prefix: str,
        lane: int,
        *,
        holds: Callable[[], bool],
        report: Callable[[Closed], None],
        cluster_id: str = "",
    ) -> None:
        """`prefix` is the link's; a lane's next pump has the same ids, and so closes what this one leaves open."""
        self._prefix, self._holds, self._report = prefix, holds, report
        self._waiting: deque[Run] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._told = ""
        self._trouble: KafkaError | None = None
        names = [f"{prefix}{lane}.{number}" for number in range(SLOTS)]
        self._slots = [Slot(_client(target, cluster_id), name, self.go) for name in names]
        self._watch = _client(target, cluster_id)
        self._threads = [threading.Thread(target=self._work, args=(slot,), daemon=True) for slot in self._slots]
        for thread in self._threads:
            thread.start()

    def take(self, marks: Iterable[Marks]) -> None:
        """Writes these; each is reported once no unit is open on its partition."""
        runs = [Run(one, one.blank.base, one.blank.end - one.blank.base) for one in marks]
        if runs:
            with self._news:
                self._waiting.extend(runs)
                self._news.notify(min(len(runs), SLOTS))

    def settled(self) -> set[NamedPartition]:
        """To be asked before any look at a twin: closes what a dead pump of this lane left open. Returns where a marker
        of any other pump of the link is still due, which is not to be looked at yet. Also tells of what has troubled
        the units since it was last asked: what became of them then, only a look can say."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        for slot in self._slots:
            try:
                slot.hold()
            except KafkaError as error:
                if error.code not in RIGHTS:
                    raise
                # Markers will be refused, with a sentence; all else may cross.
        return Transactions(self._watch, patience_s=PATIENCE_S, go=self.go).open_of(self._prefix)

    def go(self) -> None:
        """To be asked before each request: what was sent before the grant ran out is fenced by the next holder."""
        if self._closed or not self._holds():
            raise Ended

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._watch.close()
        for slot in self._slots:
            slot.close()

    def _work(self, slot: Slot) -> None:
        runs: list[Run] = []
        while not self._closed:
            runs += self._next(UNIT_PARTITIONS_MAX - len(runs), wait=not runs)
            if not runs:
                continue
            try:
                over = slot.round(runs)
            except Ended:
                # A grant may come late. Where none does, who has the partitions next closes what is open.
                time.sleep(AGAIN_S)
                continue
            except Exception as error:
                # Whatever it is, the next round closes what this one left open.
                self._tell(f"closed units: {type(error).__name__}: {error}")
                time.sleep(AGAIN_S)
                continue
            self._told = ""
            gone = {id(run) for run, _ in over}
            runs = [run for run in runs if id(run) not in gone]
            if over:
                self._report(Closed([run.marks for run, _ in over], [answer for _, answer in over]))

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            self._trouble = KafkaError(sentence, retriable=True)

    def _next(self, most: int, *, wait: bool) -> list[Run]:
        with self._news:
            if wait and not self._waiting and not self._closed:
                self._news.wait(1.0)
            share = max(UNIT_PARTITIONS_ALONE, -(-len(self._waiting) // SLOTS))
            return [self._waiting.popleft() for _ in range(min(most, share, len(self._waiting)))]


class Slot:
    """One transactional id and its connections."""

    def __init__(self, target: KafkaCluster, name: str, go: Callable[[], None]) -> None:
        self._cluster, self._name, self._go = target, name, go
        self._talk = Transactions(self._cluster, patience_s=PATIENCE_S, go=go)
        self._turn = threading.Lock()
        self._writer: Writer | None = None
        # The last round was cut short, and perhaps its unit is open.
        self._unsure = False

    def hold(self) -> None:
        """Takes the id, unless this pump has it: then no unit of it is open but those of rounds. A round that waits
        for the coordinator is not waited for: that is a KafkaError which passes."""
        if self._writer is not None:
            return
        if not self._turn.acquire(timeout=HOLD_S):
            raise KafkaError(f"{self._cluster.name}: {self._name} is being taken, which takes long", retriable=True)
        try:
            self._held()
        finally:
            self._turn.release()

    def round(self, runs: list[Run]) -> list[tuple[Run, Marked]]:
        """One unit over all of them; returns those that are over. No unit is open when it returns."""
        with self._turn:
            try:
                if not self._unsure:
                    self._unsure = True
                    over = self._round(runs)
                    self._unsure = False
                    return over
                code = self._recover(UNANSWERED)
            except KafkaError as error:
                known = not error.retriable and error.code not in TAKEN
                code = self._recover(error.code or UNANSWERED if known else UNANSWERED)
            self._unsure = False
        return [(run, run.answer(code)) for run in runs]

    def _round(self, runs: list[Run]) -> list[tuple[Run, Marked]]:
        writer = self._held()
        elsewhere = self._elsewhere([run for run in runs if not run.done])
        if elsewhere:
            return [(run, run.answer(UNANSWERED)) for run in elsewhere]
        refused = self._talk.begin(writer, [run.named for run in runs])
        if refused:
            return [(run, run.answer(refused[run.named])) for run in runs if run.named in refused]
        self._talk.abort(writer)
        self._talk.complete(writer)
        ends = self._cluster.list_offsets([run.named for run in runs], OffsetKind.LOG_END)
        over = []
        for run in runs:
            run.done += 1
            answer = run.judged(ends[run.named])
            if answer:
                over.append((run, answer))
        return over

    def _elsewhere(self, new: list[Run]) -> list[Run]:
        """Those whose twin does not end where they begin: since it was looked at, its leader lost what it had, or
        somebody wrote to it."""
        ends = self._cluster.list_offsets([run.named for run in new], OffsetKind.LOG_END) if new else {}
        return [run for run in new if ends[run.named] != run.base]

    def _held(self) -> Writer:
        if self._writer is None:
            self._writer = self._talk.acquire(self._name, OPEN_S_MAX)
        return self._writer

    def _recover(self, code: int) -> int:
        """What became of a unit is not known: taking the id anew closes it. Returns what its runs are answered, which
        is `code` unless the id is refused us."""
        self._writer = None
        while True:
            try:
                self._held()
            except KafkaError as again:
                if not again.retriable:
                    return again.code or UNANSWERED
                self._talk.forget(self._name)
                self._go()
                time.sleep(AGAIN_S)
            else:
                return code

    def close(self) -> None:
        self._cluster.close()


def _client(target: Cluster, cluster_id: str) -> KafkaCluster:
    return KafkaCluster(
        target, client_id="twinshore-units", cluster_id=cluster_id, patience_s=PATIENCE_S, call_s=CALL_S
    )
