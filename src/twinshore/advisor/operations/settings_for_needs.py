"""`twinshore advise settings`: settings for stated needs. No cluster is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from twinshore.advisor.core.settings_advice import (
    ApplicationNeeds,
    AvailabilityNeed,
    DuplicateTolerance,
    LatencyNeed,
    LossTolerance,
    OrderingNeed,
    SettingOwner,
    SettingsChoice,
    choose_settings,
)
from twinshore.config.errors import ConfigError
from twinshore.config.schema import parse_member

REPLICAS_MAX = 9


def choose_for_needs(
    *, loss: str, order: str, duplicates: str, latency: str, availability: str, replicas: int
) -> SettingsChoice:
    """Raises ConfigError for an unknown need."""
    if not 1 <= replicas <= REPLICAS_MAX:
        raise ConfigError("advisor.out-of-range", option="replicas", value=replicas, least=1, most=REPLICAS_MAX)
    return choose_settings(
        ApplicationNeeds(
            parse_member(LossTolerance, "loss", loss),
            parse_member(OrderingNeed, "order", order),
            parse_member(DuplicateTolerance, "duplicates", duplicates),
            parse_member(LatencyNeed, "latency", latency),
            parse_member(AvailabilityNeed, "availability", availability),
            replicas,
        )
    )


def describe_choice(choice: SettingsChoice) -> Iterator[str]:
    """Settings files, with each reason as a comment above its line."""
    for says in choice.against:
        yield f"# CONTRADICTION: {says}."
    for side in SettingOwner:
        ours = [setting for setting in choice.settings if setting.side is side]
        if not ours:
            continue
        yield f"## {side}"
        for setting in ours:
            yield f"# {setting.why}"
            # What an application does itself is no setting.
            own = side is SettingOwner.APPLICATION
            yield f"# {setting.name}: {setting.value}" if own else f"{setting.name}={setting.value}"
            if setting.librdkafka:
                yield f"# librdkafka: {setting.name}={setting.librdkafka}"
        if side is SettingOwner.TOPIC:
            yield f"# {build_topic_command(choice)}"
    for says in choice.prices:
        yield f"# PRICE: {says}."


def build_topic_command(choice: SettingsChoice) -> str:
    ours = {setting.name: setting.value for setting in choice.settings if setting.side is SettingOwner.TOPIC}
    copies = ours.pop("replication.factor")
    configs = " ".join(f"--config {name}={value}" for name, value in ours.items())
    where = "--bootstrap-server HOST:9092 --create --topic NAME --partitions N"
    return f"kafka-topics.sh {where} --replication-factor {copies} {configs}"


def choice_as_values(choice: SettingsChoice) -> dict[str, Any]:
    return {
        "needs": asdict(choice.needs),
        "settings": [asdict(setting) for setting in choice.settings],
        "topic_command": build_topic_command(choice),
        "contradictions": list(choice.against),
        "prices": list(choice.prices),
    }
