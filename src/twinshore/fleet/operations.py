"""The shape of whatever an operator may ask for, at a command line or elsewhere. Pure.

An operation is a module of the room that it is about. What is asked is a frozen value, such as `Forget(topic, links)`.
`plan` takes it, looks, decides, and changes nothing; `act` does what the plan says, and gives each step out once it is
done. Whoever asked shows the sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from twinshore.fleet.errors import TwinshoreError


class Step(Protocol):
    """One change, as a value."""

    def sentence(self, *, done: bool) -> str:
        """What it is, as done or as it would be."""
        ...


S_co = TypeVar("S_co", bound=Step, covariant=True)


@dataclass(frozen=True, slots=True)
class Plan(Generic[S_co]):
    """`shown`: what the operator must know before anything is done. `remarks`: what is worth knowing besides.
    `refused`: why some of what was asked, or all of it, is not among the steps; whoever asked raises it in the end."""

    steps: tuple[S_co, ...] = ()
    shown: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    refused: TwinshoreError | None = None
