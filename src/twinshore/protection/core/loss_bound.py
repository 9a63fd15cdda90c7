"""Bounds what an `ASYNC` partition may lose: refuses writes while the twin lacks records older than the bound."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from twinshore.kafka.protocol.error_codes import Code
from twinshore.protection.core.gate import PartitionGate
from twinshore.protection.core.model import (
    GateCommand,
    GateState,
    ProtectionLevel,
    ProtectionSettings,
    ReachedEpoch,
    SideView,
    WaitCause,
)

SAMPLES_MAX: Final = 200


class LossBoundGate(PartitionGate):
    """Holds no write. What is not heard counts as missing."""

    def __init__(self, bound_s: float, now_s: float) -> None:
        super().__init__(ProtectionSettings(ProtectionLevel.ASYNC), now_s)
        self._bound_s = bound_s
        # Up to then the twin has all that the home had: unknown at first, so writes are refused.
        self._level_s = -math.inf
        self.state = GateState.STALLED
        self._homes: deque[SideView] = deque(maxlen=SAMPLES_MAX)
        self._copy: ReachedEpoch | None = None

    def refusal(self) -> Code | None:
        return Code.not_enough_replicas if self.state is GateState.STALLED else None

    def on_home(self, view: SideView) -> list[GateCommand]:
        """Keeps a view of each hundredth of the bound."""
        last = self._homes[-1] if self._homes else None
        if last and (view.topic_id, view.epoch) != (last.topic_id, last.epoch):
            self._homes.clear()
        if not self._homes or view.asked_s - self._homes[-1].asked_s >= self._bound_s / 100:
            self._homes.append(view)
        return self.tick(view.heard_s)

    def on_twin(self, view: SideView) -> list[GateCommand]:
        while self._homes and self._homes[0].watermark <= view.watermark and self._is_copied(self._homes[0], view):
            self._level_s = max(self._level_s, self._homes.popleft().asked_s)
        return self.tick(view.heard_s)

    def _is_copied(self, home: SideView, twin: SideView) -> bool:
        copy = self._copy
        return (
            copy is not None
            and not copy.is_stopped
            and (copy.source_id, copy.epoch) == (home.topic_id, home.epoch)
            and copy.target_id == twin.topic_id
        )

    def on_reached(self, reached: ReachedEpoch | None, asked_s: float, now_s: float) -> list[GateCommand]:  # noqa: ARG002
        self._copy = reached
        return self.tick(now_s)

    def cause(self) -> WaitCause:
        return WaitCause.REPLICATION

    def behind_s(self, now_s: float) -> float:
        """Returns how old the records may be that the twin lacks."""
        return now_s - self._level_s

    def tick(self, now_s: float) -> list[GateCommand]:
        is_behind = self.behind_s(now_s) > self._bound_s
        state = GateState.STALLED if is_behind else GateState.PROTECTED
        if state is not self.state:
            self._enter(state, now_s)
        return []
