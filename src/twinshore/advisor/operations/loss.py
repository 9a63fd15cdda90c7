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


def find_losses(cluster: str, topic: str, client: ExplorationRequest, settings: Settings) -> LossResult:
    """Reads the topic and searches. Raises ConfigError if the topic is missing or does not fit the model.

    `client`: settings unknown to brokers. Without `acks` every value is searched.
    """
    meant = select_cluster(cluster, settings)
    # Typing errors are reported before the cluster is read.
    for one in _each(client):
        explore.build_model_config(one)
    return search_losses(build_loss_inputs(collect_topic(meant, topic), topic), meant.name, client)


def search_losses(stake: LossInputs, cluster: str, client: ExplorationRequest) -> LossResult:
    """Searches with these settings. Raises ConfigError if they do not fit the model."""
    if stake.copies > REPLICAS_MAX:
        raise ConfigError("advisor.too-many-replicas", topic=stake.topic, replicas=stake.copies, most=REPLICAS_MAX)
    return LossResult(cluster, stake, tuple(explore.run_exploration(_of_topic(stake, one)) for one in _each(client)))


def _each(client: ExplorationRequest) -> Iterator[ExplorationRequest]:
    for acks in [client.acks] if client.acks else [one.value for one in reversed(ProducerAcks)]:
        # Idempotence requires acks=all. With several acks it is off for the others, even if requested.
        off = client.idempotent and not client.acks and acks != ProducerAcks.ALL
        yield replace(client, acks=acks, idempotent=False if off else client.idempotent, harms=(Anomaly.LOST,))


def _of_topic(stake: LossInputs, client: ExplorationRequest) -> ExplorationRequest:
    return replace(
        client,
        replicas=stake.copies,
        min_insync=min(stake.min_insync, REPLICAS_MAX + 1),
        unclean=stake.unclean,
        flush="each" if stake.flushed else "never",
        elr=stake.eligible,
        away=stake.away,
        capped=stake.capped,
    )


def exit_code(losing: LossResult) -> int:
    """1: a record can be lost under some settings. 0: under none within the bounds. 2: a search was incomplete."""
    codes = {explore.exit_code(one) for one in losing.answers}
    return 1 if 1 in codes else max(codes)


def describe_losses(losing: LossResult) -> Iterator[str]:
    yield from describe_loss_inputs(losing.loss_inputs, losing.cluster)
    if len(losing.answers) > 1:
        yield "No broker tells the acks of producers: each is answered. Say with --acks which one it is."
    for one in losing.answers:
        yield ""
        yield from describe_outcome(one, pictures=True)


def render_losses(losing: LossResult) -> str:
    plays = [one for found in losing.answers for one in build_exploration_playbacks(found, f"acks-{found.setup.acks}-")]
    notes = [line for found in losing.answers for line in describe_outcome(found, steps=False)]
    title = f"What loses a record of {losing.loss_inputs.topic} on {losing.cluster}"
    return render_playbacks(title, plays, [*describe_loss_inputs(losing.loss_inputs, losing.cluster), *notes])


def losses_as_values(losing: LossResult) -> dict[str, Any]:
    answers = [explore.exploration_as_values(one) for one in losing.answers]
    return {"cluster": losing.cluster, "topic": asdict(losing.loss_inputs), "answers": answers}
