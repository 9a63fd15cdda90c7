"""A talk: several questions one after another, each depending on the answers before. A talk does no IO: it yields what
to ask, is sent the body of each answer, and returns what it learnt.

A blocking caller drives it with `kafka.connection.Connection.hold`; an event loop awaits each answer and sends it in.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from twinshore.wire.api_versions import (
    UNSUPPORTED_VERSION,
    Software,
    VersionsAnswer,
    encode_versions_request,
    parse_versions,
)
from twinshore.wire.apis import API_VERSIONS

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
