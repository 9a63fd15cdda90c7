"""What each make of client has of its own, as the steps see it, and what they are told."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

WITHIN_S = 45.0
RECORDS = 20
# How long a member is polled, and a group that has read all is watched for more.
POLL_S, QUIET_S = 0.3, 3.0

YES, NO, REFUSED, LACKS = "yes", "no", "refused", "lacks"
EAGER, COOPERATIVE, SERVER = "eager", "cooperative", "server"
Part = tuple[str, int]
# Errors name other ports each time.
ADDRESS = re.compile(r"\d+(\.\d+){3}:\d+")
Living = TypeVar("Living", "Member", "Writer")


class Lacks(Exception):
    """This client, in this version, has no such thing."""


class WentWrong(Exception):
    """Nobody refused anything, and yet it is not as it should be."""


@dataclass(frozen=True)
class Job:
    """Where to try what. `first` and `second` are topics of two clusters, of which the first has the groups. `alone`:
    there is only one cluster, which has both, and no proxy. `moves`: commands that move `first` and all groups."""

    bootstrap: str
    first: str
    second: str
    made: str
    name: str
    steps: tuple[str, ...]
    alone: bool = False
    moves: tuple[tuple[str, ...], ...] = ()

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


class Writer(Protocol):
    """A producer that lives on, idempotent where the make has that, else with acks=all."""

    def write(self, values: Sequence[str]) -> None:
        """Returns once all are acknowledged, or their transaction is committed. One that fails is aborted."""

    def close(self) -> None: ...


class Client(Protocol):
    """One make in one version. What a client has not got raises `Lacks`."""

    def look(self) -> tuple[set[str], int]:
        """Topics, and how many brokers there are: 0 where the make does not tell."""

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
        """`way` of dealing out partitions; `instance` is empty for one that is not static. Without a group it reads
        all partitions, where the make has no groups."""

    def writer(self, topic: str, transactional: str) -> Writer:
        """`transactional`: its id, empty for a producer without transactions."""

    def describe(self) -> tuple[str, int]:
        """The cluster's id, and how many brokers it has."""

    def create(self, topic: str) -> None: ...

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        """How many records each topic has."""

    def groups(self) -> set[str]: ...


def closing(stack: contextlib.ExitStack, member: Living) -> Living:
    def close() -> None:
        with contextlib.suppress(Exception):  # what it was tried for is over
            member.close()

    stack.callback(close)
    return member
