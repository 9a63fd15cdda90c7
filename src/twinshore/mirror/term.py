"""One holding of a link's lease: what its pumps are told stands for as long. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinshore.mirror.forgetting import SETTING
from twinshore.store import LinkIdentity


@dataclass(slots=True)
class Term:
    """Who we write as, what flows, on which lane. `units`: what our transactional ids begin with, empty where markers
    are written directly. `never_cut`: no record of a twin is cut off."""

    generation: int
    identity: LinkIdentity
    state_expiry_ms: int
    units: str
    never_cut: bool
    flowing: dict[str, tuple[str, int]] = field(default_factory=dict)

    def outdated(self, target: str, state_expiry_ms: int, *, never_cut: bool) -> str:
        """Why pumps must begin anew with what holds now; empty where they need not."""
        if state_expiry_ms < self.state_expiry_ms:
            # What they believe to be remembered may be forgotten: they begin anew, and know better.
            return f"{SETTING} of {target} is shorter now"
        if never_cut == self.never_cut:
            return ""
        return "no record may be cut off from now on" if never_cut else "records may be cut off again"
