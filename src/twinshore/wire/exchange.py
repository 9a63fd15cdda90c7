"""The asker's side of a connection to a broker, without the connection: requests get numbers, answers are matched to
what was asked, and each has a bound on its size and a deadline.

A broker answers a connection's requests in order. So the next answer must be to the oldest request; anything else ends
the connection. Time enters as values only: whoever drives the exchange looks at `due_s`.

A talk is several questions one after another, each depending on the answers before. It does no IO: it yields what to
ask, is sent the body of each answer, and returns what it learnt. A blocking caller drives it with
`kafka.connection.Connection.hold`; an event loop awaits each answer and sends it in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from twinshore.fleet.errors import WireError
from twinshore.wire.api_versions import (
    UNSUPPORTED_VERSION,
    Software,
    VersionsAnswer,
    encode_versions_request,
    parse_versions,
)
from twinshore.wire.apis import API_VERSIONS, Shape, api_name, shape_of
from twinshore.wire.framing import Framer, FrameSizeError, frame, read_response_header
from twinshore.wire.primitives import Buffer

_NUMBERS = 0x7FFFFFFF


class AnswerOrderError(WireError):
    """An answer to something else than the oldest request, or to nothing."""


class Asked(NamedTuple):
    """A request whose answer is still to come."""

    number: int
    api: Shape
    deadline_s: float

    @property
    def what(self) -> str:
        return f"the answer to {api_name(self.api.key)}"


class Answer(NamedTuple):
    """A whole answer: its body begins at `position` of `view`."""

    asked: Asked
    view: memoryview
    position: int


class Exchange:
    """After any WireError of its the connection is to be closed. Not for two threads at once."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.framer = Framer()
        self._number = 0
        self._asked: deque[Asked] = deque()

    @property
    def oldest(self) -> Asked:
        """The request that is answered next; there must be one."""
        return self._asked[0]

    @property
    def due_s(self) -> float:
        """When the next answer is late; `inf` while nothing is asked."""
        return self._asked[0].deadline_s if self._asked else math.inf

    @property
    def asking(self) -> int:
        """How many requests are unanswered."""
        return len(self._asked)

    def ask(self, key: int, version: int, parts: Sequence[Buffer], deadline_s: float) -> list[Buffer]:
        """The buffers to send, in order."""
        self._number = number = (self._number + 1) & _NUMBERS
        api = shape_of(key, version)
        self._asked.append(Asked(number, api, deadline_s))
        return frame(key, version, number, self.client_id, parts, api.tags_in_request)

    def put_off(self, deadline_s: float) -> None:
        """The next answer has so long: for whom any sign of life counts."""
        number, api, _ = self._asked[0]
        self._asked[0] = Asked(number, api, deadline_s)

    def answer(self) -> Answer | None:
        """The next whole answer among what was received. FrameSizeError, AnswerOrderError or another WireError where
        the peer does not keep to the protocol."""
        if not self._asked:
            if self.framer.waiting:
                raise AnswerOrderError(f"the peer sent {self.framer.waiting} bytes unasked")
            return None
        asked = self._asked[0]
        try:
            view = self.framer.next(asked.api.answer_bytes_max)
        except FrameSizeError as error:
            raise FrameSizeError(asked.what, error.size, error.bytes_max) from error
        if view is None:
            return None
        try:
            number, position = read_response_header(view, asked.api.tags_in_answer)
        except WireError as error:
            raise WireError(f"{asked.what}: its header cannot be read: {error.message}") from error
        if number != asked.number:
            raise AnswerOrderError(f"{api_name(asked.api.key)} {asked.number} got the answer to {number}")
        self._asked.popleft()
        return Answer(asked, view, position)


Learnt = TypeVar("Learnt")


class Question(NamedTuple):
    """A request's body, in a version that the talk has reason to believe in."""

    key: int
    version: int
    body: bytes


Talk: TypeAlias = Generator[Question, memoryview, Learnt]


def offered(software: Software) -> Talk[VersionsAnswer]:
    """Which versions a broker offers. One that does not know ours is asked in the first."""
    highest, first = 3, 0
    answer = yield Question(API_VERSIONS, highest, encode_versions_request(highest, software))
    versions = parse_versions(answer, 0, highest)
    if versions.error != UNSUPPORTED_VERSION:
        return versions
    answer = yield Question(API_VERSIONS, first, encode_versions_request(first, software))
    return parse_versions(answer, 0, first)
