"""Which faults lose an acknowledged record of a live topic: its own settings, and what is said of its clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from twinshore.advisor.collect import look_at_topic
from twinshore.advisor.core.settings import Stake, sentences_of, stake_of
from twinshore.advisor.core.simulator import explore
from twinshore.advisor.core.simulator.explore import REPLICAS_MAX, Asked
from twinshore.advisor.core.simulator.model import Acks, Harm
from twinshore.advisor.core.simulator.report import of_explored, outcome, page
from twinshore.advisor.core.simulator.search import Explored
from twinshore.advisor.operations.advise import cluster_of
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Losing:
    cluster: str
    stake: Stake
    answers: tuple[Explored, ...]


def lost_of(cluster: str, topic: str, client: Asked, settings: Settings) -> Losing:
    """Looks at the topic as it is now, and searches. `client`: what is said of producers and consumers, which no broker
    tells; without `acks` each is answered. ConfigError where there is none, or the model cannot take it."""
    meant = cluster_of(cluster, settings)
    # What is typed wrongly is told before the cluster is asked.
    for one in _each(client):
        explore.setup_of(one)
    return answered(stake_of(look_at_topic(meant, topic), topic), meant.name, client)


def answered(stake: Stake, cluster: str, client: Asked) -> Losing:
    """Searches with these settings. ConfigError where the model cannot take them."""
    if stake.copies > REPLICAS_MAX:
        raise ConfigError(f"{stake.topic} has {stake.copies} replicas; the model takes {REPLICAS_MAX} at most")
    return Losing(cluster, stake, tuple(explore.explored(_of_topic(stake, one)) for one in _each(client)))


def _each(client: Asked) -> Iterator[Asked]:
    """With each acks that may be meant."""
    for acks in [client.acks] if client.acks else [one.value for one in reversed(Acks)]:
        # Idempotence goes with acks=all alone: with the others of several it is off, whatever was said.
        off = client.idempotent and not client.acks and acks != Acks.ALL
        yield replace(client, acks=acks, idempotent=False if off else client.idempotent, harms=(Harm.LOST,))


def _of_topic(stake: Stake, client: Asked) -> Asked:
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


def exit_code(losing: Losing) -> int:
    """1: a record can be lost under one of the settings answered; 0: under none within the bounds; 2: not all could be
    looked at."""
    codes = {explore.exit_code(one) for one in losing.answers}
    return 1 if 1 in codes else max(codes)


def told(losing: Losing) -> Iterator[str]:
    """For people: the topic, then each answer, played with the logs after each step."""
    yield from sentences_of(losing.stake, losing.cluster)
    if len(losing.answers) > 1:
        yield "No broker tells the acks of producers: each is answered. Say with --acks which one it is."
    for one in losing.answers:
        yield ""
        yield from outcome(one, pictures=True)


def page_of(losing: Losing) -> str:
    """For whoever opens it in a browser: each schedule drawn, under what was found."""
    plays = [one for found in losing.answers for one in of_explored(found, f"acks-{found.setup.acks}-")]
    notes = [line for found in losing.answers for line in outcome(found, steps=False)]
    title = f"What loses a record of {losing.stake.topic} on {losing.cluster}"
    return page(title, plays, [*sentences_of(losing.stake, losing.cluster), *notes])


def values_of(losing: Losing) -> dict[str, Any]:
    """For programs."""
    answers = [explore.values_of(one) for one in losing.answers]
    return {"cluster": losing.cluster, "topic": asdict(losing.stake), "answers": answers}
