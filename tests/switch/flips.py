"""What a switch that is over left in the store: another home of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from twinshore.state.core.values import HomeChange

IDS = {"east": "a" * 32, "west": "b" * 32}


def flip_of(
    topic: str,
    old: str,
    new: str,
    term: int,
    points: tuple[int, ...],
    *,
    ids: Mapping[str, str] = IDS,
    since_ms: int = 5,
    by: str = "anna",
) -> HomeChange:
    """`ids`: the topic's, by cluster."""
    return HomeChange(
        pair="<>".join(sorted((old, new))),
        topic=topic,
        home=new,
        term=term,
        link=f"{old}->{new}",
        back=f"{new}->{old}",
        source_topic_id=ids[new],
        target_topic_id=ids[old],
        points=points,
        since_ms=since_ms,
        set_by=by,
    )
