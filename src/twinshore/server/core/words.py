"""Words and figures for pages: times, amounts, and the sentence that stands above all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from twinshore.config.sentences import count_phrase, format_age, format_time, join_names
from twinshore.server.core.snapshots import BEHIND, DIFFERS, FINE, PAUSED, TROUBLE, UNKNOWN
from twinshore.switch.core.steps import SwitchState

RANK_WORDS: Mapping[int, str] = {
    FINE: "fine",
    PAUSED: "paused",
    BEHIND: "behind",
    UNKNOWN: "unknown",
    TROUBLE: "trouble",
    DIFFERS: "differs",
}
# What the first page says of ranks, the worst first.
WRONG = (
    (DIFFERS, "The two sides differ"),
    (TROUBLE, "Not everything is replicated"),
    (UNKNOWN, "Not everything is known"),
)
# A snapshot that is older is said to be old.
OLD_MS = 60_000


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def amount(number: float | None, unit: str = "") -> str:
    if number is None or number < 0:
        return "unknown"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if sign == 'k' else size):.1f} {sign}{unit}"
    return f"{number:,.0f}{f' {unit}' if unit else ''}"


def seconds(value: float | None) -> str:
    return "unknown" if value is None else format_age(value)


def verdict(values: Mapping[str, Any] | None) -> str:
    """Answers the first page's question: is everything the same everywhere, and what would be lost now?"""
    if values is None:
        return "Nothing is known yet: no worker has looked at the links. Start `twinshore serve` with its settings."
    if not values["link_count"]:
        return "There is no link yet: `twinshore link add` makes one, or the settings file does."
    for rank, says in WRONG:
        if many := _count(values, rank):
            # Where the sides differ, twins lack more than is behind.
            return f"{says}: {many}." if rank == DIFFERS else f"{says}: {many}. {_loss(values)}"
    whole = "All links replicate" if values["lag"] or _count(values, PAUSED) else "Everything is replicated"
    return f"{whole}; {_proof(values)}. {_loss(values)}"


def _count(values: Mapping[str, Any], rank: int) -> str:
    """The topics of this rank, or else the links; empty: none."""
    topics, links = values["ranks"][rank], values["link_ranks"][rank]
    return count_phrase(topics, "topic") if topics else count_phrase(links, "link") if links else ""


def _proof(values: Mapping[str, Any]) -> str:
    if values["topic_count"] and values["proven_topics"] == values["topic_count"]:
        return f"both sides were compared, and are the same, as of {format_time(values['proven_ms'])}"
    proven, whole = values["proven_topics"], count_phrase(values["topic_count"], "topic")
    return f"{proven} of {whole} were compared on both sides"


def _loss(values: Mapping[str, Any]) -> str:
    left = f" Not counted: {many} paused or excluded." if (many := _count(values, PAUSED)) else ""
    if values["unknown_lags"] or values["ranks"][UNKNOWN]:
        many = _count(values, UNKNOWN) or count_phrase(values["unknown_lags"], "link")
        return f"What a loss of a source would cost now is unknown for {many}.{left}"
    if not values["lag"]:
        return f"If a source is lost now, no record that it acknowledged is missing on its twin.{left}"
    worst = values["recovery_point_s"]
    oldest = f", the oldest {format_age(worst)} old" if worst is not None else ""
    return f"If every source is lost now, twins lack {count_phrase(values['lag'], 'record')}{oldest}.{left}"


def hold_sentence(state: SwitchState, now_ms: int) -> str:
    """What an open switch does to writers."""
    where = f"{count_phrase(len(state.topics), 'topic')} from {state.old} to {state.new}"
    if state.holds_writers:
        return f"Writers of {where} wait {format_age((now_ms - state.held_ms) / 1000)}: {state.step.words}"
    return f"A switch of {where} is under way: {state.step.words}"


def topic_sentence(values: Mapping[str, Any], state: str, link: str) -> str:
    """Answers a topic page's question."""
    source, _, target = link.partition("->")
    topic, lag = values["topic"], values["lag_records"]
    if state == "differs":
        return f"{topic} differs between {source} and {target}: see its incidents below."
    if state in ("refused", "stopped", "incident"):
        kinds = join_names(sorted({one["kind"] for one in values["incidents"]})) or state
        return f"{topic} is not replicated whole: {kinds}."
    if state in ("paused", "excluded"):
        return f"{topic} is {state}: nothing is replicated."
    if lag is None:
        return f"How far {target} is behind with {topic} is unknown."
    if not lag:
        return f"{target} has every record of {topic} that {source} had when it was last asked."
    late = values["recovery_point_s"]
    oldest = f", the oldest for {format_age(late)}" if late else ""
    return f"{target} lacks {count_phrase(lag, 'record')} of {topic}{oldest}."
