"""What becomes of a request, as values: the hands that carry it out know no API. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeAlias

from twinshore.proxy.core.layout import Place
from twinshore.wire.primitives import Buffer

# How long a broker may take, beyond what the request itself allows it.
ANSWER_S = 30.0
# An errand's questions: a cluster that hangs must not hold up what is asked of others beside it.
ERRAND_S = 5.0

Parts: TypeAlias = Sequence[Buffer]
# What an answer's body becomes; None where it may stay as it came.
Rewrite: TypeAlias = Callable[[memoryview, int], Parts | None]


class Ask(NamedTuple):
    """A question to a broker, asked for the client by the client's own connection there."""

    place: Place
    key: int
    version: int
    body: Parts


# The body of an answer; None where none is to be had.
Said: TypeAlias = memoryview | None
# Asks several questions at once, is sent what came of each in the same order, and returns the body for the client.
Errand: TypeAlias = Generator[Sequence[Ask], Sequence[Said], Parts]


class Pass(NamedTuple):
    """Passed on to this broker as it came, or with another `body`; its answer too, unless `rewrite` says otherwise."""

    place: Place
    wait_s: float = ANSWER_S
    rewrite: Rewrite | None = None
    answered: bool = True
    body: Parts | None = None


class Say(NamedTuple):
    """Answered here, with this body."""

    body: Parts


class Run(NamedTuple):
    """Several brokers are to be asked. Nothing else of this client is begun meanwhile."""

    errand: Errand
    wait_s: float = ERRAND_S


class Drop(NamedTuple):
    """Nothing is passed on, and nothing said: the client waits for no answer."""


class HangUp(NamedTuple):
    """The connection ends: there is no answer that would say so."""

    why: str


Move: TypeAlias = Pass | Say | Run | Drop | HangUp
