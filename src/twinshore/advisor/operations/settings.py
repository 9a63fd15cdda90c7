"""Settings for stated needs: no cluster is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from twinshore.advisor.core.settings import Availability, Choice, Duplicates, Latency, Loss, Needs, Order, Side, choose
from twinshore.config.errors import ConfigError
from twinshore.config.schema import one_of

REPLICAS_MAX = 9


def chosen(*, loss: str, order: str, duplicates: str, latency: str, availability: str, replicas: int) -> Choice:
    """ConfigError where a need is none that is known."""
    if not 1 <= replicas <= REPLICAS_MAX:
        raise ConfigError(f"--replicas is {replicas}; it is 1 to {REPLICAS_MAX}")
    return choose(
        Needs(
            one_of(Loss, "loss", loss),
            one_of(Order, "order", order),
            one_of(Duplicates, "duplicates", duplicates),
            one_of(Latency, "latency", latency),
            one_of(Availability, "availability", availability),
            replicas,
        )
    )


def sentences_of(choice: Choice) -> Iterator[str]:
    """As files of settings: each reason is a comment above its line."""
    for says in choice.against:
        yield f"# CONTRADICTION: {says}."
    for side in Side:
        ours = [one for one in choice.settings if one.side is side]
        if not ours:
            continue
        yield f"## {side}"
        for one in ours:
            yield f"# {one.why}"
            # What an application does is no setting.
            yield f"# {one.name}: {one.value}" if side is Side.APPLICATION else f"{one.name}={one.value}"
            if one.librdkafka:
                yield f"# librdkafka: {one.name}={one.librdkafka}"
        if side is Side.TOPIC:
            yield f"# {topic_command(choice)}"
    for says in choice.prices:
        yield f"# PRICE: {says}."


def topic_command(choice: Choice) -> str:
    """The line that makes such a topic."""
    ours = {one.name: one.value for one in choice.settings if one.side is Side.TOPIC}
    copies = ours.pop("replication.factor")
    configs = " ".join(f"--config {name}={value}" for name, value in ours.items())
    where = "--bootstrap-server HOST:9092 --create --topic NAME --partitions N"
    return f"kafka-topics.sh {where} --replication-factor {copies} {configs}"


def values_of(choice: Choice) -> dict[str, Any]:
    """For programs."""
    return {
        "needs": asdict(choice.needs),
        "settings": [asdict(one) for one in choice.settings],
        "topic_command": topic_command(choice),
        "contradictions": list(choice.against),
        "prices": list(choice.prices),
    }
