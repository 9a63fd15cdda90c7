"""MirrorMaker 2's settings read, and the same links proposed as Twinshore's: text in, TOML and a report out.

`reading` makes properties of a dedicated MirrorMaker's file or of Connect's JSON; `meanings` is the table of what each
property becomes, or why it has no counterpart; `proposal` puts links together. No secret is ever copied.
"""

from twinshore.fleet.mirrormaker.meanings import Fate
from twinshore.fleet.mirrormaker.proposal import Proposal, propose

__all__ = ["Fate", "Proposal", "propose"]
