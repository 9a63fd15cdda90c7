"""Groups that a cluster refuses again and again, as one sentence for the ledger. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from twinshore.fleet.sentences import listed
from twinshore.kafka.errors import describe

# Shorter ones are what brokers answer while they change hands.
TOLD_AFTER_S = 30.0
NAMED_MAX = 3


def refusals_in_words(refused: Mapping[str, tuple[float, str]], now_s: float) -> str:
    """`refused`: since when each group is, and in which words. Empty where none has been for long."""
    told = [f"group {name}: {words}" for name, (since_s, words) in sorted(refused.items()) if _lasts(since_s, now_s)]
    if not told:
        return ""
    many = "1 group does" if len(told) == 1 else f"{len(told)} groups do"
    return f"{many} not follow, or not with all places: {listed(told, NAMED_MAX, '; ')}"


def words_of(code: int) -> str:
    """Kafka's code as a sentence, with what to do about it."""
    known = describe(code)
    return f"{known.sentence}; {known.hint}" if known.hint else known.sentence


def _lasts(since_s: float, now_s: float) -> bool:
    return now_s - since_s >= TOLD_AFTER_S
