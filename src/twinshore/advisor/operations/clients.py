"""How clients used their clusters lately, asked with a policy: habits that cost something, and what mends them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinshore.advisor.client_job import MinInsync, Slice, in_this_process, on_spark
from twinshore.advisor.collect import Eyes
from twinshore.advisor.core.clients import report
from twinshore.advisor.core.clients.model import Habit, Uses, weakly_written
from twinshore.advisor.core.clients.report import Conduct, conduct_of
from twinshore.advisor.core.clients.rules import HABITS
from twinshore.advisor.core.model import Policy, parse_policy
from twinshore.advisor.operations.advise import read_text
from twinshore.config.errors import ConfigError
from twinshore.config.frozen import CONDUCT_CLIENT_ID
from twinshore.config.sentences import one_line
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.runtime.spark import open_session, stop_quietly
from twinshore.state.opening import open_if_there

TASKS = 4
STRETCHES = 120
ANSWERS_S = 10.0
MIN_INSYNC = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Look:
    """`last_s`: of how long. `here`: without Spark. `policy`: a file."""

    last_s: int = 3600
    policy: Path | None = None
    here: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, and by which policy."""

    conduct: Conduct
    policy: Policy

    @property
    def exit_code(self) -> int:
        return self.conduct.exit_code(self.policy)


def conducted(
    asked: Look, settings: Settings, *, clock: Callable[[], int], stop: threading.Event, log: Callable[[str], None]
) -> Answer | None:
    """Reads and judges; None where `stop` came first. ConfigError where no proxy has told anything here."""
    policy = Policy() if asked.policy is None else parse_policy(read_text(asked.policy), str(asked.policy), HABITS)
    store = open_if_there(settings)
    if store is None:
        raise ConfigError(
            f"there is no store at {settings.store.url}: no proxy has told anything here",
            hint="name the proxies' settings with --settings",
        )
    store.close()
    to_ms = clock()
    from_ms = to_ms - asked.last_s * 1000
    stretch_ms = max(1_000, asked.last_s * 1000 // STRETCHES)
    whole = Slice(settings.store.url, settings.store.password, from_ms, to_ms, stretch_ms)
    eyes = Eyes()

    def ask(uses: Uses) -> MinInsync:
        return min_insync(uses, settings, eyes)

    found: tuple[Uses, list[Habit]] | None
    if asked.here:
        found = in_this_process(whole, policy, ask)
    else:
        log(f"starting Spark on {settings.mirror.spark.master}, which takes some seconds; --here goes without it")
        session = open_session(settings.mirror, TASKS, stop, ("twinshore.advisor.client_job",))
        if session is None:
            return None
        try:
            found = on_spark(session.sparkContext, whole, policy, ask, TASKS)
        finally:
            stop_quietly(session.stop)
    uses, habits = found
    return Answer(conduct_of(habits, policy, uses, (from_ms, to_ms, stretch_ms), eyes.unseen), policy)


def min_insync(uses: Uses, settings: Settings, eyes: Eyes) -> MinInsync:
    """Of topics that somebody writes with less than acks=all, as their clusters say it now."""
    wanted: dict[str, list[str]] = {}
    for cluster, topic in weakly_written(uses):
        wanted.setdefault(cluster, []).append(topic)
    found: dict[tuple[str, str], int] = {}
    for name, topics in wanted.items():
        if name not in settings.clusters:
            continue
        ways = {"client_id": CONDUCT_CLIENT_ID, "patience_s": ANSWERS_S, "call_s": ANSWERS_S}
        with (
            eyes.trying(f"{MIN_INSYNC} of topics on {name}"),
            closing(KafkaCluster(settings.cluster(name), **ways)) as kafka,  # type: ignore[arg-type]
        ):
            known, refused = kafka.admin.readable_settings(topics, (MIN_INSYNC,))
            eyes.missed(f"{MIN_INSYNC} of topic", refused)
            for topic, one in known.items():
                value = one[MIN_INSYNC].value if MIN_INSYNC in one else None
                if value is not None:
                    found[name, topic] = int(value)
    return found


def values_of(answer: Answer) -> dict[str, Any]:
    """For programs."""
    return answer.conduct.as_values(answer.policy)


def page_of(answer: Answer) -> str:
    """For whoever opens it in a browser."""
    return report.page(answer.conduct)


def sentences_of(answer: Answer, *, everything: bool) -> list[str]:
    """For people."""
    return [one_line(line) for line in report.sentences_of(answer.conduct, everything=everything)]
