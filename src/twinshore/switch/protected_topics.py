"""What a forced switch does for protected topics: it voids what mirrors said of the twins, waits until no gate believes
it any more, and says what was acknowledged by the old home alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from twinshore.config.errors import KafkaError
from twinshore.config.model import next_term
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.protection.core.gate import REACHED_TTL_S
from twinshore.protection.core.records import PromotedTwin, promoted_line
from twinshore.protection.topic import ProtectionTopic, read_accounts
from twinshore.state.core.values import LinkIdentity
from twinshore.switch.core.steps import StepDone, StepPending, SwitchState

# Gates read each half a second, and count from before they ask.
WAIT_S: Final = REACHED_TTL_S + 0.5


def describe_losses(old: str, new: KafkaCluster, topics: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each protected topic; or why they are not known, which blocks no switch."""
    try:
        for account in read_accounts(new, topics):
            yield account.sentence(old, new.name)
    except KafkaError as error:
        yield f"what was acknowledged of protected topics is not known: {error.message}"


class GatePromises:
    """Ends what gates may confirm by the twins of one forced switch."""

    def __init__(self, new: KafkaCluster) -> None:
        self._new, self._topic = new, ProtectionTopic(new)
        self._ended_s: float | None = None

    def waited(self, settled: StepDone, identity: LinkIdentity | None) -> StepDone | StepPending:
        """Done once no gate confirms by the twins any more, with what was acknowledged by the old home alone."""
        state = settled.state
        try:
            is_protected = self._end(state, identity)
        except KafkaError as error:
            if error.retriable:
                raise
            return replace(settled, sentence=f"{settled.sentence}; which topics are protected is not known: {error}")
        if not is_protected:
            return settled
        assert self._ended_s is not None
        if steady_s() < self._ended_s + WAIT_S:
            return StepPending("writers of protected topics may still be told that the twins have their records", state)
        return StepDone(state, "; ".join((settled.sentence, *describe_losses(state.old, self._new, state.names()))))

    def _end(self, state: SwitchState, identity: LinkIdentity | None) -> bool:
        """Voids what mirrors said of the twins. Returns whether any topic is protected."""
        log = self._topic.read()
        moves = [move for move in state.topics if move.topic in log.levels and log.levels[move.topic].holds]
        old_home_id = identity.source_cluster_id if identity else ""
        wanted = {(old_home_id, move.topic): PromotedTwin(next_term(move.term)) for move in moves}
        lines = [promoted_line(*key, one) for key, one in wanted.items() if log.promoted.get(key) != one]
        if lines:
            self._topic.say(lines)
        if lines or self._ended_s is None:
            self._ended_s = steady_s()
        return bool(moves)
