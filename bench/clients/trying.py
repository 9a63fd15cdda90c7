"""What a client is tried for: steps that know no make.

The job comes as JSON, the only argument; each step is answered by a line of JSON as soon as it is over.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.clients.client import (
    COOPERATIVE,
    EAGER,
    LACKS,
    NO,
    POLL_S,
    QUIET_S,
    RECORDS,
    REFUSED,
    SERVER,
    WITHIN_S,
    YES,
    Client,
    Job,
    Lacks,
    Member,
    Part,
    WentWrong,
    closing,
)
from bench.clients.moving import group_moves, transactions_move


def values_of(step: str) -> list[str]:
    """What a step writes to each topic."""
    return [f"{step}-{number}" for number in range(RECORDS)]


def metadata(client: Client, job: Job) -> None:
    topics, brokers = client.look()
    wanted = 1 if job.alone else 2
    if not set(job.topics) <= topics or 0 < brokers < wanted:
        raise WentWrong(f"it sees {brokers} brokers, and {len(set(job.topics) & topics)} of {len(job.topics)} topics")


def _produce(step: str, acks: str, *, idempotent: bool = False) -> Callable[[Client, Job], None]:
    def produce(client: Client, job: Job) -> None:
        values = values_of(step)
        for topic in job.topics:
            client.produce(topic, values, acks, idempotent=idempotent)
            lacking = set(values) - client.read(topic, values, WITHIN_S)
            if lacking:
                raise WentWrong(f"{len(lacking)} of {len(values)} records are not on the topic")

    return produce


def transaction(client: Client, job: Job) -> None:
    kept, dropped = values_of("kept"), values_of("dropped")
    group = f"{job.name}-transaction"
    client.transact(job.first, dropped, group, 3, commit=False)
    client.transact(job.first, kept, group, 5, commit=True)
    found = client.read(job.first, kept, WITHIN_S)
    if lacking := set(kept) - found:
        raise WentWrong(f"{len(lacking)} committed records are not read")
    if seen := set(dropped) & found:
        raise WentWrong(f"{len(seen)} records are read that were never committed")
    if (place := client.place(group, job.first)) != 5:
        raise WentWrong(f"the group stands at {place}, and not where the transaction committed")


def transaction_elsewhere(client: Client, job: Job) -> None:
    """With a topic that is not at home where groups and transactions are."""
    if job.alone:
        raise Lacks("there is one cluster")
    client.transact(job.second, values_of("elsewhere"), f"{job.name}-elsewhere", 1, commit=True)


def _all_parts(job: Job) -> set[Part]:
    return {(topic, number) for topic in job.topics for number in (0, 1)}


def settle(members: Sequence[Member], wanted: set[Part], enough: Callable[[set[str]], bool]) -> set[str]:
    """Polls all in turn until each has partitions, all are dealt out once, and enough values were seen."""
    seen: set[str] = set()
    until_s = time.monotonic() + WITHIN_S
    while True:
        for one in members:
            seen |= set(one.poll(POLL_S))
        parts = [one.parts() for one in members]
        dealt = all(parts) and set().union(*parts) == wanted and sum(map(len, parts)) == len(wanted)
        if dealt and enough(seen):
            return seen
        if time.monotonic() > until_s:
            held = ", ".join(str(len(one)) for one in parts)
            raise WentWrong(f"members hold {held} of {len(wanted)} partitions, and have read {len(seen)} values")


def _group(step: str, way: str) -> Callable[[Client, Job], None]:
    def group(client: Client, job: Job) -> None:
        named = f"{job.name}-{step}"
        with contextlib.ExitStack() as stack:
            members = [closing(stack, client.member(named, job.topics, way, "")) for _ in range(2)]
            settle(members, _all_parts(job), lambda _: True)
            # Written only now, so that nobody commits a place that the other one has still to read from.
            written = {topic: [f"{topic}-{value}" for value in values_of(step)] for topic in job.topics}
            for topic, values in written.items():
                client.produce(topic, values, "all", idempotent=False)
            settle(members, _all_parts(job), lambda seen: set().union(*written.values()) <= seen)
            for one in members:
                one.commit()
        with contextlib.ExitStack() as stack:
            heir = closing(stack, client.member(named, job.topics, way, ""))
            again = settle([heir], _all_parts(job), lambda _: True)
            until_s = time.monotonic() + QUIET_S
            while time.monotonic() < until_s:
                again |= set(heir.poll(POLL_S))
            if again:
                raise WentWrong(f"{len(again)} values come again behind a commit")

    return group


def static(client: Client, job: Job) -> None:
    """A member that comes back under its name gets what it had, and the other keeps what it has."""
    named = f"{job.name}-static"
    with contextlib.ExitStack() as stack:
        stays = closing(stack, client.member(named, job.topics, EAGER, "stays"))
        with contextlib.ExitStack() as inner:
            goes = closing(inner, client.member(named, job.topics, EAGER, "goes"))
            settle([stays, goes], _all_parts(job), lambda _: True)
            before = stays.parts(), goes.parts()
        back = closing(stack, client.member(named, job.topics, EAGER, "goes"))
        settle([stays, back], _all_parts(job), lambda _: True)
        if (stays.parts(), back.parts()) != before:
            raise WentWrong("partitions were dealt out anew when a member came back")


def describe(client: Client, job: Job) -> None:
    cluster_id, brokers = client.describe()
    if not cluster_id or brokers < (1 if job.alone else 2):
        raise WentWrong(f"it is told of cluster {cluster_id!r} with {brokers} brokers")


def create(client: Client, job: Job) -> None:
    client.create(job.made)
    until_s = time.monotonic() + WITHIN_S
    while job.made not in client.look()[0]:
        if time.monotonic() > until_s:
            raise WentWrong("the topic is not seen")
        time.sleep(0.1)


def ends(client: Client, job: Job) -> None:
    for topic in job.topics:
        client.produce(topic, values_of("ends"), "all", idempotent=False)
    found = client.ends(job.topics)
    if any(found.get(topic, 0) < RECORDS for topic in job.topics):
        raise WentWrong(f"it is told {sorted(found.values())} records")


def groups(client: Client, job: Job) -> None:
    named = f"{job.name}-listed"
    with contextlib.ExitStack() as stack:
        member = closing(stack, client.member(named, job.topics, EAGER, ""))
        settle([member], _all_parts(job), lambda _: True)
        found = client.groups()
    if named not in found:
        raise WentWrong(f"the group is not among {len(found)}")


STEPS: dict[str, Callable[[Client, Job], str | None]] = {
    "metadata": metadata,
    "acks=0": _produce("acks-0", "0"),
    "acks=1": _produce("acks-1", "1"),
    "acks=all": _produce("acks-all", "all"),
    "idempotent": _produce("idempotent", "all", idempotent=True),
    "transaction": transaction,
    "transaction elsewhere": transaction_elsewhere,
    "group, eager": _group("eager", EAGER),
    "group, cooperative": _group("cooperative", COOPERATIVE),
    "static member": static,
    "group of the new protocol": _group("server", SERVER),
    "describe cluster": describe,
    "create topic": create,
    "list offsets": ends,
    "list groups": groups,
    "group through a switch and a move of groups": group_moves,
    "transactions through a switch": transactions_move,
}


def outcome(client: Client, job: Job, step: str, in_words: Callable[[Exception], str | None]) -> tuple[str, str]:
    """What came of a step, and the sentence of whoever refused it. `in_words`: what a client's error says; None where
    it is no refusal."""
    try:
        says = STEPS[step](client, job)
    except Lacks as error:
        return LACKS, str(error)
    except WentWrong as error:
        return NO, str(error)
    except Exception as error:
        said = in_words(error)
        return (REFUSED, said) if said else (NO, f"{type(error).__name__}: {error}".splitlines()[0])
    return YES, says or ""


def run(client: Callable[[Job, dict[str, Any]], Client], in_words: Callable[[Exception], str | None]) -> None:
    """Tries all that the job names."""
    told = json.loads(sys.argv[1])
    job = Job(**{**told["job"], "steps": tuple(told["job"]["steps"])})
    made = client(job, told["own"])
    for step in job.steps:
        came, said = outcome(made, job, step, in_words)
        print(json.dumps({"step": step, "outcome": came, "says": said}), flush=True)
