"""The tag of a push: which revision it is, and the digest by which its text is known to be whole. Pure.

Of two servers of one store one may be behind for a while: a client passes over what is older than what it has heard.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_FORM = re.compile(r'(?:W/)?"(?P<revision>[0-9]{1,18})-(?P<digest>[0-9a-f]{64})"')


@dataclass(frozen=True, slots=True)
class Tag:
    """`revision` grows with each push; `digest` is of its text."""

    revision: int
    digest: str

    def __str__(self) -> str:
        return f'"{self.revision}-{self.digest}"'


def digest_of(text: str) -> str:
    """By which a push, or a token, is known."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_tag(header: str) -> Tag | None:
    """The tag in a header; None where that is none."""
    found = _FORM.fullmatch(header.strip())
    return Tag(int(found["revision"]), found["digest"]) if found else None
