"""`twinshore advise settings`: settings for stated needs; no cluster is needed. `twinshore simulate topic`: which
faults lose an acknowledged record of a live topic, given its clients' settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from twinshore.advisor.collect import collect_topic
from twinshore.advisor.core.settings_advice import (
    ApplicationNeeds,
    AvailabilityNeed,
    DuplicateTolerance,
    LatencyNeed,
    LossInputs,
    LossTolerance,
    OrderingNeed,
    SettingOwner,
    SettingsChoice,
    build_loss_inputs,
    choose_settings,
    describe_loss_inputs,
)
from twinshore.advisor.core.simulator import explore
from twinshore.advisor.core.simulator.explore import REPLICAS_MAX, ExplorationRequest
from twinshore.advisor.core.simulator.model import Anomaly, ProducerAcks
from twinshore.advisor.core.simulator.playback import build_exploration_playbacks, describe_outcome, render_playbacks
from twinshore.advisor.core.simulator.search import Exploration
from twinshore.advisor.operations.advice_on_cluster import select_cluster
from twinshore.config.errors import ConfigError
from twinshore.config.schema import parse_member
from twinshore.config.settings import Settings

ADVISED_REPLICAS_MAX = 9


def choose_for_needs(
    *, loss: str, order: str, duplicates: str, latency: str, availability: str, replicas: int
) -> SettingsChoice:
    """Raises ConfigError for an unknown need."""
    if not 1 <= replicas <= ADVISED_REPLICAS_MAX:
        raise ConfigError("advisor.out-of-range", option="replicas", value=replicas, least=1, most=ADVISED_REPLICAS_MAX)
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


@dataclass(frozen=True, slots=True)
class LossResult:
    cluster: str
    loss_inputs: LossInputs
    answers: tuple[Exploration, ...]


def find_losses(cluster: str, topic: str, request: ExplorationRequest, settings: Settings) -> LossResult:
    """Reads the topic and searches. Raises ConfigError if the topic is missing or does not fit the model.

    `request`: settings unknown to brokers. Without `acks` every value is searched.
    """
    meant = select_cluster(cluster, settings)
    # Typing errors are reported before the cluster is read.
    for one in _each(request):
        explore.build_model_config(one)
    return search_losses(build_loss_inputs(collect_topic(meant, topic), topic), meant.name, request)


def search_losses(inputs: LossInputs, cluster: str, request: ExplorationRequest) -> LossResult:
    """Searches with these settings. Raises ConfigError if they do not fit the model."""
    if inputs.copies > REPLICAS_MAX:
        raise ConfigError("advisor.too-many-replicas", topic=inputs.topic, replicas=inputs.copies, most=REPLICAS_MAX)
    return LossResult(cluster, inputs, tuple(explore.run_exploration(_of_topic(inputs, one)) for one in _each(request)))


def _each(request: ExplorationRequest) -> Iterator[ExplorationRequest]:
    for acks in [request.acks] if request.acks else [producer_acks.value for producer_acks in reversed(ProducerAcks)]:
        # Idempotence requires acks=all. With several acks it is off for the others, even if requested.
        off = request.idempotent and not request.acks and acks != ProducerAcks.ALL
        yield replace(request, acks=acks, idempotent=False if off else request.idempotent, harms=(Anomaly.LOST,))


def _of_topic(inputs: LossInputs, request: ExplorationRequest) -> ExplorationRequest:
    return replace(
        request,
        replicas=inputs.copies,
        min_insync=min(inputs.min_insync, REPLICAS_MAX + 1),
        unclean=inputs.unclean,
        flush="each" if inputs.flushed else "never",
        elr=inputs.eligible,
        away=inputs.away,
        capped=inputs.capped,
    )


def exit_code(losing: LossResult) -> int:
    """1: a record can be lost under some settings. 0: under none within the bounds. 2: a search was incomplete."""
    codes = {explore.exit_code(exploration) for exploration in losing.answers}
    return 1 if 1 in codes else max(codes)


def describe_losses(losing: LossResult) -> Iterator[str]:
    yield from describe_loss_inputs(losing.loss_inputs, losing.cluster)
    if len(losing.answers) > 1:
        yield "No broker tells the acks of producers: each is answered. Say with --acks which one it is."
    for exploration in losing.answers:
        yield ""
        yield from describe_outcome(exploration, pictures=True)


def render_losses(losing: LossResult) -> str:
    plays = [
        playback
        for found in losing.answers
        for playback in build_exploration_playbacks(found, f"acks-{found.config.acks}-")
    ]
    notes = [line for found in losing.answers for line in describe_outcome(found, steps=False)]
    title = f"What loses a record of {losing.loss_inputs.topic} on {losing.cluster}"
    return render_playbacks(title, plays, [*describe_loss_inputs(losing.loss_inputs, losing.cluster), *notes])


def losses_as_values(losing: LossResult) -> dict[str, Any]:
    answers = [explore.exploration_as_values(exploration) for exploration in losing.answers]
    return {"cluster": losing.cluster, "topic": asdict(losing.loss_inputs), "answers": answers}
