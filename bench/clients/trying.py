"""What a client is tried for: steps that know no make, and the ends of clients that each make has of its own.

The job comes as JSON, the only argument; each step is answered by a line of JSON as soon as it is over.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

WITHIN_S = 45.0
RECORDS = 20
# How long a member is polled, and a group that has read all is watched for more.
POLL_S, QUIET_S = 0.3, 3.0

YES, NO, REFUSED, LACKS = "yes", "no", "refused", "lacks"
EAGER, COOPERATIVE, SERVER = "eager", "cooperative", "server"
Part = tuple[str, int]


class Lacks(Exception):
    """This client, in this version, has no such thing."""


class WentWrong(Exception):
    """Nobody refused anything, and yet it is not as it should be."""


@dataclass(frozen=True)
class Job:
    """Where to try what. `first` and `second` are topics of two clusters, of which the first has the groups. `alone`:
    there is only one cluster, which has both, and no proxy."""

    bootstrap: str
    first: str
    second: str
    made: str
    name: str
    steps: tuple[str, ...]
    alone: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.first, self.second)


class Member(Protocol):
    """A consumer in a group."""

    def poll(self, seconds: float) -> list[str]:
        """Values that came meanwhile."""

    def parts(self) -> set[Part]:
        """Which partitions it has."""

    def commit(self) -> None: ...

    def close(self) -> None:
        """A static member does not leave its group by it."""


class Client(Protocol):
    """One make in one version. What a client has not got raises `Lacks`."""

    def look(self) -> tuple[set[str], int]:
        """Topics, and how many brokers there are."""

    def produce(self, topic: str, values: Sequence[str], acks: str, *, idempotent: bool) -> None:
        """Each value is its record's key too, so that all partitions get some. Returns once all are acknowledged, as
        far as that is asked for."""

    def read(self, topic: str, wanted: Iterable[str], seconds: float) -> set[str]:
        """Committed values from the beginning on, until all that are wanted were there or the time is over."""

    def transact(self, topic: str, values: Sequence[str], group: str, place: int, *, commit: bool) -> None:
        """A transaction with these values and a group's place in partition 0 of the topic, to its end."""

    def place(self, group: str, topic: str) -> int:
        """Where a group stands in partition 0."""

    def member(self, group: str, topics: Sequence[str], way: str, instance: str) -> Member:
        """`way` of dealing out partitions; `instance` is empty for one that is not static."""

    def describe(self) -> tuple[str, int]:
        """The cluster's id, and how many brokers it has."""

    def create(self, topic: str) -> None: ...

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        """How many records each topic has."""

    def groups(self) -> set[str]: ...


def values_of(step: str) -> list[str]:
    """What a step writes to each topic."""
    return [f"{step}-{number}" for number in range(RECORDS)]


def metadata(client: Client, job: Job) -> None:
    topics, brokers = client.look()
    wanted = 1 if job.alone else 2
    if not set(job.topics) <= topics or brokers < wanted:
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
            members = [_closing(stack, client.member(named, job.topics, way, "")) for _ in range(2)]
            settle(members, _all_parts(job), lambda _: True)
            # Written only now, so that nobody commits a place that the other one has still to read from.
            written = {topic: [f"{topic}-{value}" for value in values_of(step)] for topic in job.topics}
            for topic, values in written.items():
                client.produce(topic, values, "all", idempotent=False)
            settle(members, _all_parts(job), lambda seen: set().union(*written.values()) <= seen)
            for one in members:
                one.commit()
        with contextlib.ExitStack() as stack:
            heir = _closing(stack, client.member(named, job.topics, way, ""))
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
        stays = _closing(stack, client.member(named, job.topics, EAGER, "stays"))
        with contextlib.ExitStack() as inner:
            goes = _closing(inner, client.member(named, job.topics, EAGER, "goes"))
            settle([stays, goes], _all_parts(job), lambda _: True)
            before = stays.parts(), goes.parts()
        back = _closing(stack, client.member(named, job.topics, EAGER, "goes"))
        settle([stays, back], _all_parts(job), lambda _: True)
        if (stays.parts(), back.parts()) != before:
            raise WentWrong("partitions were dealt out anew when a member came back")


def _closing(stack: contextlib.ExitStack, member: Member) -> Member:
    def close() -> None:
        with contextlib.suppress(Exception):  # what it was tried for is over
            member.close()

    stack.callback(close)
    return member


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
        member = _closing(stack, client.member(named, job.topics, EAGER, ""))
        settle([member], _all_parts(job), lambda _: True)
        found = client.groups()
    if named not in found:
        raise WentWrong(f"the group is not among {len(found)}")


STEPS: dict[str, Callable[[Client, Job], None]] = {
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
}


def outcome(client: Client, job: Job, step: str, in_words: Callable[[Exception], str | None]) -> tuple[str, str]:
    """What came of a step, and the sentence of whoever refused it. `in_words`: what a client's error says; None where
    it is no refusal."""
    try:
        STEPS[step](client, job)
    except Lacks as error:
        return LACKS, str(error)
    except WentWrong as error:
        return NO, str(error)
    except Exception as error:
        said = in_words(error)
        return (REFUSED, said) if said else (NO, f"{type(error).__name__}: {error}".splitlines()[0])
    return YES, ""


def run(client: Callable[[Job, dict[str, Any]], Client], in_words: Callable[[Exception], str | None]) -> None:
    """Tries all that the job names."""
    told = json.loads(sys.argv[1])
    job = Job(**{**told["job"], "steps": tuple(told["job"]["steps"])})
    made = client(job, told["own"])
    for step in job.steps:
        came, said = outcome(made, job, step, in_words)
        print(json.dumps({"step": step, "outcome": came, "says": said}), flush=True)
