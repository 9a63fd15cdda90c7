"""Plays moves of the model one after the other, each of which has to be possible."""

from __future__ import annotations

from itertools import chain

from twinshore.advisor.core.simulator.model import (
    Anomaly,
    ModelAction,
    ModelConfig,
    ModelEvent,
    ModelPartition,
    build_initial_state,
    find_anomalies,
)
from twinshore.advisor.core.simulator.search import fault_transitions, faultless_transitions


class Played:
    """A partition that is moved by hand."""

    def __init__(self, setup: ModelConfig) -> None:
        self.setup = setup
        self.state: ModelPartition = build_initial_state(setup)

    def able(self) -> dict[ModelEvent, ModelPartition]:
        return dict(chain(faultless_transitions(self.setup, self.state), fault_transitions(self.setup, self.state)))

    def may(self, deed: ModelAction, broker: int = 0, other: int = 0) -> bool:
        return ModelEvent(deed, broker, other) in self.able()

    def do(self, deed: ModelAction, broker: int = 0, other: int = 0) -> ModelPartition:
        self.state = self.able()[ModelEvent(deed, broker, other)]
        return self.state

    def fetch(self, *brokers: int) -> ModelPartition:
        for broker in brokers:
            self.do(ModelAction.FETCH, broker)
        return self.state

    def log(self, broker: int) -> list[int]:
        return [entry.record for entry in self.state.of(broker).log]

    def harms(self) -> set[Anomaly]:
        return {damage.harm for damage in find_anomalies(self.state)}
