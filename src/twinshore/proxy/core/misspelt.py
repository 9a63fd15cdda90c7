"""A name that an operator gives, and nothing that went through has: it may be one that is not there yet, or misspelt.
Pure."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from twinshore.proxy.core.fuses import matches

NEAR: Final = 0.7


def unseen(what: str, named: str, known: Collection[str], lately: str) -> str:
    """That no `what` of this name went through `lately`, and which may be meant. Nothing where one did, or where
    nothing is known at all."""
    if not known or any(matches(named, one) for one in known):
        return ""
    near = get_close_matches(named.rstrip("*"), sorted(known), n=1, cutoff=NEAR)
    meant = f": is it {near[0]}?" if near else ""
    return f"no {what} {named} went through a proxy {lately}{meant}"
