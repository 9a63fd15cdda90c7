"""A schedule in plain sentences, and as values for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from twinshore.fleet.sentences import counted
from twinshore.loss.partition import FAULTS, NOWHERE, Deed, Move, Partition, Replica, Sent
from twinshore.loss.replication import common
from twinshore.loss.search import Explored, Schedule, Step
from twinshore.loss.settings import Acks, Fault, Flush, Setup, Truncation

_BROKER = {
    Deed.FOLLOW: "Broker {b} turns to the new leader and cuts its log to its own high watermark",
    Deed.ELECT: "The controller makes broker {b} the leader",
    Deed.RESTART: "Broker {b} starts again",
    Deed.HEAL: "Broker {b} reaches the others again",
    Deed.RECOVER: "Broker {b} is as fast as before",
    Deed.GIVE_UP: "The producer waits no longer for broker {b} and turns to the new leader",
    Deed.POLL: "The consumer gets record {o}",
    Deed.HANDLE: "The consumer handles record {o}",
    Deed.CRASH: "The process of broker {b} dies",
    Deed.CUT: "Broker {b} is cut off from the other brokers and the controller, not from clients",
    Deed.READER: "The consumer dies, and another one goes on from the committed place",
    Deed.REST: "The group has no member for so long that its place is forgotten (offsets.retention.minutes)",
    Deed.DELETE: "Retention deletes record {o}",
}


def told(setup: Setup, steps: Iterable[Step]) -> Iterator[str]:
    """A numbered sentence for each step; faults are named as such."""
    for number, step in enumerate(steps, 1):
        yield f"{number}. {'Fault: ' if step.move.is_fault else ''}{sentence(setup, step)}"


def sentence(setup: Setup, step: Step) -> str:
    move, before, after = step.move, step.before, step.after
    return "; ".join([_deed(setup, move, before, after), *_changes(step)]) + "."


def _deed(setup: Setup, move: Move, before: Partition, after: Partition) -> str:
    broker = move.broker
    if move.deed in (Deed.SEND, Deed.UNANSWERED):
        return _sending(setup, move, before, after)
    if move.deed is Deed.FETCH:
        return f"Broker {broker} fetches from broker {before.leader}"
    if move.deed is Deed.SHRINK:
        whom = "all followers" if broker == before.leader else f"broker {broker}"
        return f"The leader takes {whom} out of the in-sync set"
    if move.deed is Deed.NOTICE:
        heir = f" and makes broker {move.other} the leader" if move.other else ""
        nobody = " and has nobody to lead" if before.leader and not after.leader else ""
        return f"The controller misses broker {broker}{heir}{nobody}"
    if move.deed is Deed.COMMIT and after.reader is not None:
        return f"The consumer commits place {after.reader.committed}"
    if move.deed is Deed.SEEK and after.reader is not None:
        to = f"offset {after.reader.place} (auto.offset.reset={setup.reset})"
        return f"The consumer has no place there, and goes to {to}"
    if move.deed is Deed.POWER:
        return f"Broker {broker} loses its power, and with it what was not on disk"
    if move.deed is Deed.SLOW:
        what = "answers its followers too slowly" if broker == before.leader else "is too slow to fetch"
        return f"Broker {broker} {what}"
    return _BROKER[move.deed].format(b=broker, o=move.other)


def _sending(setup: Setup, move: Move, before: Partition, after: Partition) -> str:
    broker, record = move.broker, move.other
    old, new = before.of(broker), after.of(broker)
    again = " again" if before.sent[record - 1] == Sent.REFUSED else ""
    sends = f"The producer sends record {record}{again} to broker {broker}"
    if len(new.log) > len(old.log):
        does = f"it is appended at offset {len(old.log)}"
    elif setup.acks is Acks.NONE:
        return f"{sends}, and it never arrives"
    elif old.holds(record):
        does = "the broker knows its sequence number, and does not append it again"
    elif len(before.in_sync) < setup.needed:
        does = "too few replicas are in sync (NOT_ENOUGH_REPLICAS)"
    else:
        does = "an earlier record is missing (OUT_OF_ORDER_SEQUENCE_NUMBER)"
    return f"{sends}; {does}{', and the answer is lost' if move.deed is Deed.UNANSWERED else ''}"


def _changes(step: Step) -> Iterator[str]:
    before, after = step.before, step.after
    for broker in before.brokers:
        yield from _log_changes(step.move, before.of(broker), after.of(broker))
    if after.leader and after.leader == before.leader and after.of(after.leader).high > before.of(after.leader).high:
        yield f"the high watermark is {after.of(after.leader).high}"
    if after.in_sync != before.in_sync:
        yield f"in sync: {_numbers(after.in_sync)}"
    if _eligible(after) != _eligible(before):
        yield f"eligible: {_numbers(_eligible(after))}"
    for record, (old, new) in enumerate(zip(before.sent, after.sent, strict=True), 1):
        if old != new and new == Sent.ACKNOWLEDGED:
            yield f"record {record} is acknowledged" if _is_answered(step) else f"record {record} counts as sent"
        elif old != new and new == Sent.REFUSED:
            yield f"record {record} is not acknowledged"


def _is_answered(step: Step) -> bool:
    """With acks=0 a record may count though it never arrived."""
    return any(step.after.of(one).holds(record) for one in step.after.brokers for record in _fresh(step))


def _fresh(step: Step) -> set[int]:
    return set(step.after.acknowledged) - set(step.before.acknowledged)


def _log_changes(move: Move, old: Replica, new: Replica) -> Iterator[str]:
    kept = common(old, new)
    if gone := [entry.record for entry in old.log[kept:]]:
        verb = "loses" if move.deed is Deed.POWER else "cuts"
        yield f"it {verb} {_records(gone)}"
    if move.deed is Deed.FETCH and (got := [entry.record for entry in new.log[kept:]]):
        yield f"it gets {_records(got)}"


def _eligible(state: Partition) -> tuple[int, ...]:
    return tuple(broker for broker in state.brokers if state.of(broker).eligible)


def _records(numbers: list[int]) -> str:
    return f"record{'s' if len(numbers) > 1 else ''} {_numbers(numbers)}"


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "nobody"


def picture(state: Partition) -> Iterator[str]:
    """A line for each broker: how it stands, and its log."""
    for broker in state.brokers:
        replica = state.of(broker)
        signs = {
            "leads": broker == state.leader,
            "takes itself for the leader": replica.leads and broker != state.leader,
            "down": not replica.up,
            "cut off": replica.cut,
            "slow": replica.slow,
            "in sync": replica.in_sync,
            "eligible": replica.eligible,
        }
        log = " ".join(f"{entry.record}" for entry in replica.log[state.first :]) or "-"
        shown = ", ".join(sign for sign, holds in signs.items() if holds)
        yield f"broker {broker} | records {log} | high watermark {replica.high} | {shown or 'lags'}"
    if (reader := state.reader) is not None:
        handled = [
            f"{at}{f' {count} times' if count > 1 else ''}" for at, count in enumerate(reader.handled, 1) if count
        ]
        hand = f" | has record {reader.hand}" if reader.hand else ""
        places = f"reads next {_place(reader.place)} | committed {_place(reader.committed)}"
        yield f"consumer | {places}{hand} | handled {', '.join(handled) or '-'}"


def _place(offset: int) -> str:
    return "nothing" if offset == NOWHERE else f"offset {offset}"


def described(setup: Setup) -> str:
    """The settings in one line."""
    parts = [
        counted(setup.replicas, "replica"),
        f"acks={setup.acks}",
        f"min.insync.replicas={setup.min_insync}{_taken(setup)}",
        f"unclean election {'on' if setup.unclean else 'off'}",
        f"idempotence {'on' if setup.idempotent else 'off'}",
        f"retries {'on' if setup.retries else 'off'}",
        f"eligible leader replicas {'on' if setup.elr else 'off'}",
    ]
    parts += [f"{setup.away} away, and a record acknowledged before"] if setup.away else []
    parts += ["each record flushed"] if setup.flush is Flush.EACH else []
    parts += ["followers cut by high watermark"] if setup.truncation is Truncation.HIGH_WATERMARK else []
    parts += [] if setup.commit == "none" else [f"commit: {setup.commit}"]
    parts += [] if setup.reset == "none" else [f"auto.offset.reset={setup.reset}"]
    return ", ".join(parts)


def _taken(setup: Setup) -> str:
    return f" (Kafka takes {setup.needed})" if setup.needed < setup.min_insync else ""


def outcome(explored: Explored, *, steps: bool = True, pictures: bool = False) -> Iterator[str]:
    """For each harm sought the smallest schedule, or that there is none within the bounds. Without `steps` only how
    many there are; with `pictures` the partition after each of them."""
    setup = explored.setup
    yield f"With {described(setup)}:"
    for harm in explored.sought:
        yield from [""] if steps else []
        found = explored.found.get(harm)
        if found is not None:
            many = f"{harm.upper()} by {counted(found.faults, 'fault')} in {counted(len(found.steps), 'step')}"
            yield f"{many}{':' if steps else '.'}"
            yield from _played(setup, found, pictures=pictures) if steps else []
        elif explored.whole:
            yield f"{harm.upper()}: by no schedule within {_bounds(explored)}; {explored.states} states were looked at."
        else:
            yield f"{harm.upper()}: cannot tell. {explored.states} states were looked at, and there are more."
    # What was not looked for must not be taken for safe.
    if left := [fault.value for fault in Fault if fault not in setup.able]:
        yield from [""] if steps else []
        yield f"Left out: {', '.join(left)}."


def _played(setup: Setup, found: Schedule, *, pictures: bool) -> Iterator[str]:
    for line, step in zip(told(setup, found.steps), found.steps, strict=True):
        yield f"  {line}"
        yield from (f"       {broker}" for broker in picture(step.after) if pictures)
    yield f"  So it ends: {found.damage.says}."


def _bounds(explored: Explored) -> str:
    return f"{counted(explored.faults_max, 'fault')} and {counted(explored.setup.records, 'record')}"


def values(setup: Setup) -> dict[str, Any]:
    """`faults` are those that were looked at: such as can happen under these settings."""
    return {**asdict(setup), "faults": [fault for fault in Fault if fault in setup.able]}


def step_values(setup: Setup, steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [
        {
            "says": sentence(setup, step),
            "deed": step.move.deed,
            "fault": FAULTS.get(step.move.deed),
            "broker": step.move.broker or None,
            "after": state_values(step.after),
        }
        for step in steps
    ]


def state_values(state: Partition) -> dict[str, Any]:
    """The log's entries as pairs of record and leader epoch."""
    return {
        "leader": state.leader or None,
        "epoch": state.epoch,
        "in_sync": list(state.in_sync),
        "log_start": state.first,
        "acknowledged": list(state.acknowledged),
        "sent": [Sent(status).name.lower().replace("_", " ") for status in state.sent],
        "brokers": [
            {
                "broker": broker,
                "log": [list(entry) for entry in state.of(broker).log],
                "high_watermark": state.of(broker).high,
                "up": state.of(broker).up,
                "takes_itself_for_leader": state.of(broker).leads,
                "cut_off": state.of(broker).cut,
                "slow": state.of(broker).slow,
                "eligible": state.of(broker).eligible,
            }
            for broker in state.brokers
        ],
        "reader": None if state.reader is None else dict(zip(state.reader._fields, state.reader, strict=True)),
    }
