"""One client's records where there are fuses: what a fuse cuts is answered here, and the rest goes on. Pure.

NOT_ENOUGH_REPLICAS is what producers are refused with: clients of all ages send again behind it, without asking where
the topic is; newer errors, such as THROTTLING_QUOTA_EXCEEDED, librdkafka hands to the application. Consumers are
answered that there is nothing new, after as long as they would have waited for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from twinshore.kafka.errors import Code
from twinshore.proxy.core.fuses import Fusebox, Written
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.moved import Batch, batch_in, count_in, distance
from twinshore.proxy.core.moves import Drop, Errand, Hold, Later, Move, Parts, Pass, Run, Say
from twinshore.proxy.core.near import nothing_new
from twinshore.proxy.core.records import SESSION_IS_OVER, SESSIONS, Records, all_refused
from twinshore.proxy.core.seen import Seen
from twinshore.store.proxy_values import FuseKind, FusePolicy, FuseRow
from twinshore.wire.batch import CRC_START
from twinshore.wire.serving import fetch, produce
from twinshore.wire.serving.requests import Request

# What clients are asked to leave the broker alone for; it holds up also what they have for others, so it is short, and
# not asked of who has.
THROTTLE_MS: Final = 200
FETCH_WAIT_S_MAX: Final = 1.0
# A client that has not sent again by then what was refused has given it up.
RETRY_S: Final = 10.0


# So many batches of one client are known again.
PRINTS_MAX: Final = 1000
Print: TypeAlias = tuple[str, int, bytes]


class _Refused(NamedTuple):
    """The first of a producer's sequences that was refused, and when it was last."""

    sequence: int
    at_s: float


class _Cut(NamedTuple):
    """A batch that a fuse answers."""

    one: produce.Batches
    row: FuseRow
    batch: Batch | None
    drop: bool


class Fused:
    """In front of `records`, which it asks for all that no fuse cuts."""

    def __init__(self, records: Records, box: Fusebox) -> None:
        self._records, self._box, self._reader = records, box, produce.RequestReader()
        self._refused: dict[Written, _Refused] = {}
        # What was cut, and when last; the oldest first.
        self._prints: dict[Print, float] = {}
        self._writes_elsewhere = False
        self._out_of_step: set[int] = set()

    def on_produce(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """A broker that does not know a producer yet takes whatever number comes first: so behind a batch that was
        refused none of its successors goes on before it does."""
        box = self._box
        asked = self._reader.read(request.view, request.position, request.version)
        if FuseKind.PRODUCE not in box.looks and not self._refused and not box.gaps:
            return self._records.on_produce(request, place, seen, asked)
        client, remembers = request.client_id or "", bool(self._refused or box.gaps)
        cut: list[_Cut] = []
        told: list[produce.Appended] = []
        kept: list[produce.Batches] = []
        for one in asked.batches:
            topic = str(one.topic)
            if not self._prints or not self._came_before(_print(one)):
                box.wants(FuseKind.PRODUCE, topic, client, count_in(one.records), len(one.records or b""))
            row = box.cut(FuseKind.PRODUCE, topic, client)
            # Nearly always nothing more of it is asked than how many records it says that it has.
            batch = batch_in(one.records) if remembers or row is not None else None
            if row is not None:
                self._note(_print(one))
                drops = row.policy is FusePolicy.DROP and asked.transactional_id is None
                cut.append(_Cut(one, row, batch, drops or not asked.acks))
            elif (code := self._must_not_go_on(one, batch)) is not None:
                told.append(_appended(one, code))
            else:
                kept.append(one)
        self._writes_elsewhere |= bool(kept)
        move = self._what_is_left(request, place, seen, asked, kept, len(cut) + len(told))
        if isinstance(move, Hold):
            return move  # all of it is judged again
        told += [self._answer(one, client) for one in cut]
        return self._with(move, request, told) if told and asked.acks else move

    def _came_before(self, print_of: Print | None) -> bool:
        """Whether this is what was refused a moment ago: who sends it again wants nothing more than before, and would
        keep a fuse open for ever that closes once all is quiet."""
        at_s = self._prints.get(print_of) if print_of is not None else None
        return at_s is not None and self._box.now_s - at_s < RETRY_S

    def _note(self, print_of: Print | None) -> None:
        if print_of is None:
            return
        self._prints.pop(print_of, None)
        self._prints[print_of] = self._box.now_s
        if len(self._prints) > PRINTS_MAX:
            del self._prints[next(iter(self._prints))]

    def _what_is_left(
        self,
        request: Request,
        place: Place | None,
        seen: Seen,
        asked: produce.ProduceRequest,
        kept: list[produce.Batches],
        out: int,
    ) -> Move:
        if not out:
            return self._records.on_produce(request, place, seen, asked)
        if not kept:
            return Say([]) if asked.acks else Drop()
        less = asked._replace(batches=kept)
        move = self._records.on_produce(request, place, seen, less)
        if isinstance(move, Hold) and move.refusal is not None:
            return move._replace(refusal=all_refused(request, asked, Code.NOT_LEADER_OR_FOLLOWER))
        if isinstance(move, Pass) and move.body is None:
            return move._replace(body=produce.write_request(request.version, less))
        return move

    def _answer(self, cut: _Cut, client: str) -> produce.Appended:
        one, row, batch, drop = cut
        records, size = _count(batch), len(one.records or b"")
        self._box.answered(row, 1, records, size)
        writer = _writer(one, batch)
        if not drop:
            if writer is not None and batch is not None:
                self._remember(writer, batch.header.base_sequence)
            return _appended(one, Code.NOT_ENOUGH_REPLICAS)
        self._box.dropped(row, str(one.topic), client, one.partition, records, size)
        if writer is not None:
            self._refused.pop(writer, None)
            self._box.gap(writer)
        return _appended(one, Code.NONE)

    def _remember(self, writer: Written, sequence: int) -> None:
        known = self._refused.get(writer)
        if known is not None and distance(sequence, known.sequence) > 0 and self._box.now_s - known.at_s < RETRY_S:
            sequence = known.sequence
        self._refused[writer] = _Refused(sequence, self._box.now_s)

    def _must_not_go_on(self, one: produce.Batches, batch: Batch | None) -> Code | None:
        writer = _writer(one, batch)
        if writer is None or batch is None:
            return None
        if writer in self._box.gaps:
            # It takes a new number for itself, or a new epoch, and counts from 0: the broker misses nothing then.
            return Code.UNKNOWN_PRODUCER_ID
        known = self._refused.get(writer)
        if known is None:
            return None
        if self._box.now_s - known.at_s < RETRY_S and distance(batch.header.base_sequence, known.sequence) > 0:
            return Code.NOT_ENOUGH_REPLICAS
        del self._refused[writer]
        return None

    def _with(self, move: Move, request: Request, told: Sequence[produce.Appended]) -> Move:
        """The answer with what was cut in it."""
        version = request.version

        def whole(body: memoryview, at: int) -> Parts:
            answer = produce.read_answer(body, at, version)
            return [produce.write_answer(version, answer._replace(appended=[*answer.appended, *told]))]

        if isinstance(move, Say) and not move.body:
            throttle_ms = 0 if self._writes_elsewhere else THROTTLE_MS
            return Say([produce.write_answer(version, produce.ProduceAnswer(told, throttle_ms))])
        return _told_by(move, whole)

    def on_fetch(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """While a fuse cuts some of what a client reads, it reads without a session, as the broker's would have all. A
        session of which all is cut stands still, and is opened anew behind the fuse: clients do so by themselves."""
        box = self._box
        if place is None or (FuseKind.FETCH not in box.looks and not self._out_of_step):
            return self._records.on_fetch(request, place, seen)
        version, client = request.version, request.client_id or ""
        asked = fetch.read_request(request.view, request.position, version)
        topics = {str(one.topic) for one in asked.wanted}
        in_session = version >= SESSIONS and asked.session_epoch > 0
        if in_session:
            if not self._records.goes_on(asked, place, seen):
                return Say(fetch.write_answer(version, SESSION_IS_OVER))
            topics = self._records.sessions.topics_of(asked.session_id)
        rows = {topic: row for topic in topics if (row := box.cut(FuseKind.FETCH, topic, client)) is not None}
        if not in_session:
            self._out_of_step.discard(asked.session_id)
        if not rows and asked.session_id not in self._out_of_step:
            return self._records.on_fetch(request, place, seen, asked, self._meter(client))
        for row in rows.values():
            box.answered(row, 1, 0, 0)
        if rows and len(rows) == len(topics):
            if in_session:
                self._out_of_step.add(asked.session_id)
            nothing = fetch.FetchAnswer(THROTTLE_MS, 0, asked.session_id if in_session else 0, [])
            return Later(fetch.write_answer(version, nothing), min(asked.max_wait_ms / 1000, FETCH_WAIT_S_MAX))
        if in_session:
            self._records.sessions.forget(asked.session_id)
            self._out_of_step.discard(asked.session_id)
            return Say(fetch.write_answer(version, SESSION_IS_OVER))
        return self._fetch_part(request, place, seen, asked, frozenset(rows))

    def _fetch_part(
        self, request: Request, place: Place, seen: Seen, asked: fetch.FetchRequest, cut: frozenset[str]
    ) -> Move:
        version = request.version
        kept = [one for one in asked.wanted if str(one.topic) not in cut]
        told = nothing_new(one for one in asked.wanted if str(one.topic) in cut).fetched
        less = asked._replace(wanted=kept, dropped=(), session_id=0, session_epoch=-1)
        move = self._records.on_fetch(request, place, seen, less, self._meter(request.client_id or ""))

        def whole(view: memoryview, at: int) -> Parts:
            answer = fetch.read_answer(view, at, version)
            return fetch.write_answer(version, answer._replace(fetched=[*answer.fetched, *told]))

        if isinstance(move, Pass) and move.body is None:
            move = move._replace(body=[fetch.write_request(version, less)])
        return _told_by(move, whole)

    def _meter(self, client: str) -> Callable[[fetch.FetchAnswer], None] | None:
        """Counts what the broker gives, for fuses that trip by it."""
        box = self._box
        if FuseKind.FETCH not in box.looks:
            return None

        def count(answer: fetch.FetchAnswer) -> None:
            for one in answer.fetched:
                box.wants(FuseKind.FETCH, str(one.topic), client, 0, len(one.records or b""))

        return count


def _told_by(move: Move, whole: Callable[[memoryview, int], Parts]) -> Move:
    """The same, with an answer that `whole` makes of what it would be, whoever gives it."""

    def errand(begun: Errand) -> Errand:
        return whole(_joined((yield from begun)), 0)

    match move:
        case Pass():
            rewrite = move.rewrite

            def both(view: memoryview, at: int) -> Parts | Later:
                parts = rewrite(view, at) if rewrite else None
                if isinstance(parts, Later):
                    return Later(whole(_joined(parts.body), 0), parts.wait_s)
                return whole(view, at) if parts is None else whole(_joined(parts), 0)

            return move._replace(rewrite=both)
        case Run():
            return move._replace(errand=errand(move.errand))
        case Say(body):
            return Say(whole(_joined(body), 0))
        case Later(body, wait_s):
            return Later(whole(_joined(body), 0), wait_s)
    return move


def _joined(parts: Parts) -> memoryview:
    return memoryview(b"".join(parts))


def _count(batch: Batch | None) -> int:
    return batch.header.count if batch is not None else 0


def _writer(one: produce.Batches, batch: Batch | None) -> Written | None:
    if batch is None or batch.header.producer_id < 0:
        return None
    return Written(str(one.topic), one.partition, batch.header.producer_id, batch.header.producer_epoch)


def _print(one: produce.Batches) -> Print | None:
    """What a batch is known by that is sent again: where it goes, and its own check sum."""
    data = one.records
    if data is None or len(data) < CRC_START:
        return None
    return str(one.topic), one.partition, bytes(data[CRC_START - 4 : CRC_START])


def _appended(one: produce.Batches, code: Code) -> produce.Appended:
    log_start = 0 if code is Code.UNKNOWN_PRODUCER_ID else -1
    return produce.Appended(one.topic, one.partition, int(code), -1, log_start=log_start)
