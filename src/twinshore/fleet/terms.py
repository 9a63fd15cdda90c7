"""What the number of a producer epoch is made of where topics change homes. Pure.

A link writes with one producer id, in the epoch that it was given when it began: the *link's epoch*. A twin that a
switch made adds the term of its home to it: the *twin's epoch*, 0 of any other twin. The *fence*, which shuts the link
out of that twin for good, is one above what it writes in. The home's next term is one above as well, and it is the
other way's; when the link carries the topic again, the term is two above at least, and so later than each fence.
"""

from __future__ import annotations

# A topic's first home, which was seen and not decided.
FIRST_TERM = 1
# A producer's epoch has 15 bits: a term, the link's own epoch and the fence must fit into it together.
TERM_MAX = 30_000


def next_term(term: int) -> int:
    """The term behind this one; a home of which no row says a term (0) is in its first."""
    return max(term, FIRST_TERM) + 1


def twin_epoch(term: int) -> int:
    """Of the twin that a switch makes when it gives its topic a home in this term."""
    return term


def written_epoch(link_epoch: int, twin: int) -> int:
    """In which a link's records and markers lie on a twin with this epoch of its own."""
    return link_epoch + twin


def fence_epoch(written: int) -> int:
    """Of the marker that shuts out whoever wrote in this epoch."""
    return written + 1
