"""What becomes of a request, as values: the hands that carry it out need not know of which API it is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeAlias

from twinshore.proxy.core.layout import Place
from twinshore.store.traffic_values import Flow
from twinshore.wire.primitives import Buffer

# How long a broker may take, beyond what the request itself allows it.
ANSWER_S = 30.0
# An errand's questions: a cluster that hangs must not hold up what is asked of others beside it.
ERRAND_S = 5.0

Parts: TypeAlias = Sequence[Buffer]


class Ask(NamedTuple):
    """A question to a broker, asked for the client by the client's own connection there. `flows`: what is to hear how
    long the answer took."""

    place: Place
    key: int
    version: int
    body: Parts
    flows: tuple[Flow, ...] = ()


# The body of an answer; None where none is to be had.
Said: TypeAlias = memoryview | None
# Asks several questions at once, is sent what came of each in the same order, and returns the body for the client.
Errand: TypeAlias = Generator[Sequence[Ask], Sequence[Said], Parts]


class Later(NamedTuple):
    """Answered here, but not before so long."""

    body: Parts
    wait_s: float


# What an answer's body becomes, and when where not at once; None where it may stay as it came.
Rewrite: TypeAlias = Callable[[memoryview, int], Parts | Later | None]


class Pass(NamedTuple):
    """Passed on to this broker as it came, or with another `body`; its answer too, unless `rewrite` says otherwise.
    `topics`: to which it writes; `flows`: what is to hear how long the answer took."""

    place: Place
    wait_s: float = ANSWER_S
    rewrite: Rewrite | None = None
    answered: bool = True
    body: Parts | None = None
    topics: tuple[str, ...] = ()
    flows: tuple[Flow, ...] = ()


class Say(NamedTuple):
    """Answered here, with this body."""

    body: Parts


class Run(NamedTuple):
    """Several brokers are to be asked. Nothing else of this client is begun meanwhile. `topics`: to which it writes."""

    errand: Errand
    wait_s: float = ERRAND_S
    topics: tuple[str, ...] = ()


class Hold(NamedTuple):
    """Kept until more is known, and judged anew then. Nothing else of this client is begun meanwhile. `refusal` tells
    it to ask again; None where nothing does. `goes_first`: what it has sent behind must not overtake this, so it is
    refused only if nothing more is read, and else the connection ends."""

    refusal: Parts | None
    goes_first: bool = False


class Drop(NamedTuple):
    """Nothing is passed on, and nothing said: the client waits for no answer."""


class HangUp(NamedTuple):
    """The connection ends: there is no answer that would say so."""

    why: str


Move: TypeAlias = Pass | Say | Later | Run | Hold | Drop | HangUp
