"""A partition of a home and its twin, a mirror, a gate and a client, in virtual time: what is confirmed must be there.

Both logs are lists of record numbers with the leader epoch of each. A fault may hit any part at any moment; answers may
be late, or lost. `World.run` returns the first violation, or an empty string.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

from twinshore.protection.core import gate as shipped
from twinshore.protection.core.model import (
    AskEpochEnd,
    ClearAlone,
    Confirm,
    GateCommand,
    ProtectionLevel,
    ProtectionSettings,
    ReachedEpoch,
    RefuseWrite,
    ReportProtection,
    SideView,
    WriteAlone,
)

HOLD_S = 4.0
SETTINGS = ProtectionSettings(ProtectionLevel.SYNC, alone_after_s=2.0, stalled_after_s=1.0, ttl_s=3.0)


@dataclass
class Log:
    """A topic's partition. `producers`: the offset of each idempotent record, as a broker remembers it."""

    id: str
    epoch: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    producers: dict[int, int] = field(default_factory=dict)
    is_away: bool = False

    def append(self, record: int, epoch: int) -> int:
        self.records.append((record, epoch))
        return len(self.records) - 1

    def cut(self, length: int) -> None:
        del self.records[length:]
        self.producers = {record: offset for record, offset in self.producers.items() if offset < length}


class World:
    """`reports`: the client tells the gate only of what the home has acknowledged, as the library does. What it writes
    belongs to the topic and epoch of the gate's next look, so there the home elects no leader uncleanly, and makes no
    topic again.
    """

    def __init__(
        self,
        seed: int,
        level: ProtectionLevel,
        module: ModuleType = shipped,
        for_s: float = 40.0,
        *,
        reports: bool = False,
    ) -> None:
        self.reports = reports
        self.chance = random.Random(f"{seed} {level}")
        self.module, self.for_s, self.level = module, for_s, level
        self.now_s, self.home_lag_s = 0.0, self.chance.choice((0.005, 0.01, 0.3))
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.ids = itertools.count()
        self.home, self.twin = Log(self._id("s")), Log(self._id("t"))
        self.gate = self._gate()
        self.violation = ""
        self.story: list[str] = []
        # The mirror: what it copies, the epoch that it has told, whether it works.
        self.pair = self.home.id, self.twin.id
        self.told: ReachedEpoch | None = ReachedEpoch(*self.pair, -1)
        self.said: set[tuple[str, str, int]] = set()
        self.mirror_away = self.is_stopped = False
        # Words outside the home: who may acknowledge alone, until when by the world's clock.
        self.alone_until_s = -1.0
        self.away = False  # the place outside the home where words are kept
        self.is_calm = False
        self.promoted_s: float | None = None
        self.confirmed: dict[int, tuple[str, int]] = {}  # record -> twin's id and offset
        self.alone: set[int] = set()
        self.lost_by_twin: set[int] = set()
        self.writes: dict[int, tuple[int, bool, float]] = {}  # write -> record, idempotent, sent
        self.counts = {"confirmed": 0, "alone": 0, "refused": 0, "incidents": 0, "epoch ends": 0}

    def _id(self, side: str) -> str:
        return f"{side}{next(self.ids)}"

    def _gate(self) -> shipped.PartitionGate:
        made: shipped.PartitionGate = self.module.PartitionGate(replace(SETTINGS, level=self.level), self.now_s)
        return made

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._numbers), act))

    def lag_s(self, usual_s: float = 0.01) -> float:
        return self.chance.expovariate(1 / usual_s) * (30 if self.chance.random() < 0.03 else 1)

    def say(self, what: str) -> None:
        self.story.append(f"{self.now_s:8.3f} {what}")

    def run(self) -> str:
        for act in (self._write, self._copy, self._ask, self._tick, self._fault, self._renew):
            self.after(self.chance.random() * 0.05, act)
        self._play()
        if self.promoted_s is None and not self.violation:
            self._calm_down()
        return self.violation

    def _play(self) -> None:
        while self._events and self.now_s < self.for_s and not self.violation:
            self.now_s, _, act = heapq.heappop(self._events)
            act()

    def _calm_down(self) -> None:
        """All is back and no fault happens any more: writes are confirmed again."""
        self.is_calm, self.home.is_away, self.twin.is_away, self.mirror_away, self.away = True, *[False] * 4
        self.say("all is calm")
        for delay_s in (0.0, 5.0):
            self.after(delay_s, self._decide)
        before, self.for_s = self.counts["confirmed"], self.now_s + 30.0
        self._play()
        if not self.violation and self.counts["confirmed"] < before + 10:
            self.violation = f"nothing is confirmed, though all is calm: {self.gate.state}, {self.gate.cause()}"

    # -- the client and the home's broker

    def _write(self) -> None:
        self.after(self.chance.choice((0.002, 0.05, 0.3)), self._write)
        self._send(next(self._numbers), self.chance.random() < 0.6, 0)

    def _send(self, record: int, idempotent: bool, tries: int) -> None:
        if tries > 6 or self.gate.refusal():
            return
        write, gate = next(self._numbers), self.gate
        self.writes[write] = record, idempotent, self.now_s
        if not self.reports:
            gate.sent(write, self.now_s, HOLD_S, has_producer=idempotent)
        self.after(self.lag_s(), lambda: self._append(write, record, idempotent, tries, gate))

    def _append(self, write: int, record: int, idempotent: bool, tries: int, gate: shipped.PartitionGate) -> None:
        home = self.home
        if home.is_away:
            gate.failed(write)
            return
        if idempotent and record in home.producers:
            offset = home.producers[record]
        else:
            offset = home.append(record, home.epoch)
            if idempotent:
                home.producers[record] = offset
        if self.chance.random() < 0.02:
            gate.failed(write)  # the answer is lost, and the client tries again
            self.after(0.1, lambda: self._send(record, idempotent, tries + 1))
            return
        self.after(self.lag_s(), lambda: self._answered(write, offset, gate))
        if self.chance.random() < 0.1:
            self.after(self.chance.random() * 5, lambda: self._send(record, idempotent, tries + 1))

    def _answered(self, write: int, offset: int, gate: shipped.PartitionGate) -> None:
        if gate is not self.gate:
            return
        if self.reports:
            self._do(gate.reported(write, offset if self.chance.random() < 0.8 else -1, self.now_s))
        elif self.chance.random() < 0.2:
            gate.committed(write, self.now_s)  # as a transaction's end, whose offset is not told
        else:
            self._do(gate.appended(write, offset, self.now_s))

    # -- what the gate asks and does

    def _ask(self) -> None:
        self.after(self.chance.choice((0.005, 0.02)), self._ask)
        asked_s, gate = self.now_s, self.gate
        for is_home in (True, False):
            if self.chance.random() < 0.95:
                lag_s = self.lag_s(self.home_lag_s if is_home else 0.01)
                self.after(lag_s, lambda is_home=is_home: self._look(is_home, asked_s, gate))  # type: ignore[misc]

    def _look(self, is_home: bool, asked_s: float, gate: shipped.PartitionGate) -> None:
        log = self.home if is_home else self.twin
        if log.is_away or self.chance.random() < 0.02:
            return
        seen = log.id, log.epoch, len(log.records), asked_s
        self.after(self.lag_s(), lambda: self._heard(is_home, seen, gate))

    def _heard(self, is_home: bool, seen: tuple[str, int, int, float], gate: shipped.PartitionGate) -> None:
        if gate is self.gate:
            view = SideView(*seen, heard_s=self.now_s)
            self._do(gate.on_home(view) if is_home else gate.on_twin(view))

    def _tick(self) -> None:
        self.after(0.1, self._tick)
        self._do(self.gate.tick(self.now_s))

    def _do(self, commands: Sequence[GateCommand]) -> None:
        for command in commands:
            match command:
                case Confirm(write, is_alone):
                    self._confirmed(write, is_alone)
                case RefuseWrite(write):
                    record, idempotent, _ = self.writes.pop(write)
                    self.counts["refused"] += 1
                    self.after(0.1, lambda record=record, idempotent=idempotent: self._send(record, idempotent, 1))  # type: ignore[misc]
                case WriteAlone():
                    self._word(alone=True)
                case ClearAlone():
                    self._word(alone=False)
                    there = {record for record, _ in self.twin.records} | self.lost_by_twin
                    if lacks := [one for one, _ in self.home.records if one in self.alone and one not in there]:
                        self.violation = f"nothing is alone any more, it says, and the twin lacks {lacks[:5]}"
                case ReportProtection():
                    self.counts["incidents"] += 1
                case AskEpochEnd():
                    self.after(self.lag_s(), lambda command=command: self._ask_end(command))  # type: ignore[misc]

    def _ask_end(self, question: AskEpochEnd) -> None:
        """A leader of another epoch, or of another topic whose epoch is the same by chance, may get the question."""
        home, gate = self.home, self.gate
        if home.is_away or home.epoch != question.home_epoch or self.chance.random() < 0.1:
            return
        epochs = [epoch for _, epoch in home.records]
        end = sum(epoch <= question.epoch for epoch in epochs) if question.epoch in epochs else -1
        self.counts["epoch ends"] += 1

        def heard() -> None:
            if gate is self.gate:
                self._do(gate.on_epoch_end(question, end, self.now_s))

        self.after(self.lag_s(), heard)

    def _word(self, *, alone: bool) -> None:
        asked_s, gate, is_lost = self.now_s, self.gate, self.chance.random() < 0.1

        def answered(is_written: bool) -> None:
            if gate is not self.gate:
                return
            if not is_written:
                gate.on_alone_failed(self.now_s)
            elif alone:
                self._do(gate.on_alone_written(asked_s, self.now_s))

        def written() -> None:
            is_written = not (self.away or is_lost or self.promoted_s is not None)
            if is_written:
                self.alone_until_s = self.now_s + SETTINGS.ttl_s if alone else -1.0
            self.after(self.lag_s(), lambda: answered(is_written))

        self.after(self.lag_s(), written)

    def _renew(self) -> None:
        """What the mirror says is read again."""
        self.after(0.5, self._renew)
        asked_s, told, gate = self.now_s, self.told, self.gate
        if self.away or self.chance.random() < 0.1:
            return
        self.after(
            self.lag_s(), lambda: self._do(gate.on_reached(told, asked_s, self.now_s)) if gate is self.gate else None
        )

    def _confirmed(self, write: int, is_alone: bool) -> None:
        record, _, _ = self.writes.pop(write)
        if is_alone:
            self.alone.add(record)
            self.counts["alone"] += 1
            if self.now_s > self.alone_until_s:
                self.violation = f"record {record} is acknowledged alone, and that is written nowhere"
            return
        self.counts["confirmed"] += 1
        found = [offset for offset, (one, _) in enumerate(self.twin.records) if one == record]
        if not found and record not in self.lost_by_twin and record not in self.confirmed:
            self.violation = f"record {record} is confirmed, and the twin does not have it"
        self.confirmed[record] = self.twin.id, found[0] if found else -1

    # -- the mirror

    def _copy(self) -> None:
        self.after(self.chance.choice((0.003, 0.01, 0.05)), self._copy)
        home, twin = self.home, self.twin
        if self.mirror_away or self.is_stopped or home.is_away or twin.is_away or self.promoted_s is not None:
            return
        if (home.id, twin.id) != self.pair:
            return  # a topic was made again: somebody must decide
        at = len(twin.records)
        if at > len(home.records) or home.records[:at] != twin.records:
            self.say("the mirror stops: the histories part")
            self.is_stopped = True
            if self.told:
                self._tell(self.told.epoch, stopped=True)
            return
        for record, epoch in home.records[at : at + self.chance.randrange(1, 20)]:
            twin.append(record, epoch)
            if (*self.pair, epoch) not in self.said:
                self.said.add((*self.pair, epoch))
                self._tell(epoch)

    def _tell(self, epoch: int, *, stopped: bool = False) -> None:
        told = ReachedEpoch(*self.pair, epoch, stopped)

        def written() -> None:
            before = self.told
            is_late = before is not None and before.target_id == told.target_id and before.epoch > epoch
            if self.promoted_s is None and not is_late:
                self.told = told

        if stopped:
            self.told = told
        else:
            self.after(self.lag_s(0.05), written)

    # -- faults

    def _fault(self) -> None:
        if self.is_calm:
            return
        self.after(self.chance.expovariate(1 / 3), self._fault)
        faults = [
            self._clean, self._unclean, self._unclean, self._recreate, self._twin_unclean, self._twin_away,
            self._twin_away, self._home_away, self._mirror_away, self._mirror_away, self._decide, self._decide,
            self._outside_away, self._gate_dies, self._promote,
        ]  # fmt: skip
        self.chance.choice(faults)()

    def _clean(self) -> None:
        self.home.epoch += 1
        self.say(f"the home elects a leader: epoch {self.home.epoch}")

    def _unclean(self) -> None:
        if self.reports:
            return
        self.home.cut(max(0, len(self.home.records) - self.chance.choice((0, 1, 3, 20))))
        self._clean()
        self.say(f"uncleanly: it ends at {len(self.home.records)}")

    def _recreate(self) -> None:
        if self.reports or self.chance.random() < 0.5:
            return
        epoch = self.chance.choice((0, self.home.epoch))
        self.home = Log(self._id("s"), epoch, is_away=self.home.is_away)
        self.confirmed.clear()
        self.say("the home's topic is made again")

    def _twin_unclean(self) -> None:
        cut = self.chance.choice((1, 3, 10))
        self.lost_by_twin |= {record for record, _ in self.twin.records[-cut:]}
        self.twin.cut(max(0, len(self.twin.records) - cut))
        self.twin.epoch += 1
        self.say(f"the twin elects a leader uncleanly: it ends at {len(self.twin.records)}")

    def _twin_away(self) -> None:
        self._away(self.twin)

    def _home_away(self) -> None:
        self._away(self.home)

    def _away(self, log: Log) -> None:
        log.is_away = True
        self.say(f"{log.id} is away")

        def back() -> None:
            log.is_away = False
            self.say(f"{log.id} is back")

        self.after(self.chance.choice((0.2, 2.0, 6.0)), back)

    def _mirror_away(self) -> None:
        self.mirror_away = True
        self.say("the mirror is away")

        def back() -> None:
            self.mirror_away = False

        self.after(self.chance.choice((0.3, 3.0, 8.0)), back)

    def _outside_away(self) -> None:
        self.away = True

        def back() -> None:
            self.away = False

        self.after(self.chance.choice((1.0, 6.0)), back)

    def _decide(self) -> None:
        """The operator has the mirror begin a new twin, where it has stopped or a topic was made again."""
        if self.promoted_s is None and (self.is_stopped or (self.home.id, self.twin.id) != self.pair):
            self.twin = Log(self._id("t"), is_away=self.twin.is_away)
            self.pair, self.is_stopped = (self.home.id, self.twin.id), False
            self.confirmed.clear()
            self._tell(-1)
            self.say(f"a new twin: {self.pair}")

    def _gate_dies(self) -> None:
        self.writes.clear()
        self.gate = self._gate()
        self.say("the gate is another process")

    def _promote(self) -> None:
        """A forced switch: what the mirror said is taken back; others write there once no gate may believe it."""
        if self.promoted_s is not None or self.away or self.chance.random() < 0.7:
            return
        self.promoted_s = self.now_s
        if self.told:
            self.told = replace(self.told, is_stopped=True)
        self.say("the twin is promoted")
        lost = [
            record
            for record, (twin, offset) in self.confirmed.items()
            if twin == self.twin.id and record not in self.lost_by_twin
            and (offset >= len(self.twin.records) or self.twin.records[offset][0] != record)
        ]  # fmt: skip
        if lost:
            self.violation = f"the promoted twin lacks the confirmed records {lost[:5]}"
        self.for_s = min(self.for_s, self.now_s + 8)
        self.after(shipped.REACHED_TTL_S, self._write_there)

    def _write_there(self) -> None:
        for _ in range(50):
            self.twin.append(next(self._numbers), 99)
        self.after(0.2, self._write_there)
