"""Markers by closed units: empty transactions of the link's own, where its user may not write markers directly.

What is asked next is decided by `core/unit_core.py`. Here are the threads, the connections and the clock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from twinshore.fleet import Cluster, KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.kafka.transactions import Transactions, Writer
from twinshore.mirror.core.unit_core import AskEnds, Close, Open, Question, Run, Take, TakeLater, UnitCore
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

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Closed:
    """Runs that are over, one way or the other: no unit is open on their partitions any more."""

    marks: list[Marks]
    answers: list[Marked]


class Ended(Exception):
    """This pump may write nothing more."""


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
        self._core = UnitCore()
        self._writer = Writer(name, -1, -1)

    def hold(self) -> None:
        """Takes the id, unless this pump has it. A round that waits for the coordinator is not waited for: that is a
        KafkaError which passes."""
        if self._core.held:
            return
        if not self._turn.acquire(timeout=HOLD_S):
            raise KafkaError(f"{self._cluster.name}: {self._name} is being taken, which takes long", retriable=True)
        try:
            self._carried(self._core.hold())
        finally:
            self._turn.release()

    def round(self, runs: list[Run]) -> list[tuple[Run, Marked]]:
        """One unit over all of them; returns those that are over."""
        with self._turn:
            return self._carried(self._core.round(runs))

    def _carried(self, talk: Generator[Question, Any, R]) -> R:
        answer, failed = None, None
        while True:
            try:
                question = talk.throw(failed) if failed else talk.send(answer)
            except StopIteration as over:
                return cast("R", over.value)
            try:
                answer, failed = self._asked(question), None
            except KafkaError as error:
                failed = error

    def _asked(self, question: Question) -> Any:
        match question:
            case Take():
                self._writer = self._talk.acquire(self._name, OPEN_S_MAX)
            case TakeLater():
                self._talk.forget(self._name)
                self._go()
                time.sleep(AGAIN_S)
            case Open(partitions):
                return self._talk.begin(self._writer, partitions)
            case Close():
                self._talk.abort(self._writer)
                self._talk.complete(self._writer)
            case AskEnds(partitions):
                return self._cluster.list_offsets(partitions, OffsetKind.LOG_END)
        return None

    def close(self) -> None:
        self._cluster.close()


def _client(target: Cluster, cluster_id: str) -> KafkaCluster:
    return KafkaCluster(
        target, client_id="twinshore-units", cluster_id=cluster_id, patience_s=PATIENCE_S, call_s=CALL_S
    )
