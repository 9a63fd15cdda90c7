"""`twinshore simulate topic`: which faults lose an acknowledged record of a live topic, given its clients' settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from twinshore.advisor.collect import collect_topic
from twinshore.advisor.core.settings_advice import LossInputs, build_loss_inputs, describe_loss_inputs
from twinshore.advisor.core.simulator import explore
from twinshore.advisor.core.simulator.explore import REPLICAS_MAX, ExplorationRequest
from twinshore.advisor.core.simulator.model import Anomaly, ProducerAcks
from twinshore.advisor.core.simulator.playback import build_exploration_playbacks, describe_outcome, render_playbacks
from twinshore.advisor.core.simulator.search import Exploration
from twinshore.advisor.operations.advice_on_cluster import select_cluster
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings


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
