"""Plays moves of the model one after the other, each of which has to be possible."""

from __future__ import annotations

from itertools import chain

from twinshore.advisor.core.simulator.model import Deed, Harm, Move, Partition, Setup, begin, damages
from twinshore.advisor.core.simulator.search import faults, quiet


class Played:
    """A partition that is moved by hand."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.state: Partition = begin(setup)

    def able(self) -> dict[Move, Partition]:
        return dict(chain(quiet(self.setup, self.state), faults(self.setup, self.state)))

    def may(self, deed: Deed, broker: int = 0, other: int = 0) -> bool:
        return Move(deed, broker, other) in self.able()

    def do(self, deed: Deed, broker: int = 0, other: int = 0) -> Partition:
        self.state = self.able()[Move(deed, broker, other)]
        return self.state

    def fetch(self, *brokers: int) -> Partition:
        for broker in brokers:
            self.do(Deed.FETCH, broker)
        return self.state

    def log(self, broker: int) -> list[int]:
        return [entry.record for entry in self.state.of(broker).log]

    def harms(self) -> set[Harm]:
        return {damage.harm for damage in damages(self.state)}
