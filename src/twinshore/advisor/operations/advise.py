"""Advice on a live cluster: asked with a policy and, for what has changed, an earlier advice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twinshore.advisor.collect import Eyes, Wanted, look_at_cluster
from twinshore.advisor.core import report
from twinshore.advisor.core.model import LinkSeen, Policy, Seen, parse_policy
from twinshore.advisor.core.report import (
    Advice,
    Difference,
    Looked,
    advise,
    as_values,
    difference,
    difference_values,
    from_values,
)
from twinshore.advisor.core.rules.table import RULES
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.config.sentences import one_line
from twinshore.config.settings import Settings
from twinshore.state.opening import open_if_there

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Advise:
    """`cluster` is its name in the settings; empty where they have one alone. `policy`, `since`: files."""

    cluster: str = ""
    topics: tuple[str, ...] = ()
    policy: Path | None = None
    since: Path | None = None
    apart_s: float = 10.0
    within_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    advice: Advice
    policy: Policy
    changed: Difference | None = None

    @property
    def exit_code(self) -> int:
        return self.advice.exit_code(self.policy)


def advised(asked: Advise, settings: Settings, *, clock: Callable[[], int], wait: Callable[[float], None]) -> Answer:
    """Looks and judges. Whatever is wrong with the question is told before the cluster is asked."""
    cluster = cluster_of(asked.cluster, settings)
    for expression in asked.topics:
        _check(expression)
    policy = Policy() if asked.policy is None else parse_policy(read_text(asked.policy), str(asked.policy), RULES)
    earlier = None if asked.since is None else _earlier(asked.since)
    wanted = _wanted(asked, policy)
    before = (earlier.places, earlier.at_ms) if earlier is not None else None
    seen = _with_links(look_at_cluster(cluster, wanted, clock=clock, wait=wait, before=before), settings, clock)
    if earlier is not None and earlier.cluster_id != seen.cluster_id:
        raise ConfigError(f"{asked.since} is of another cluster: {earlier.cluster_id}, this one is {seen.cluster_id}")
    _must_meet(asked.topics, seen)
    advice = advise(seen, policy, RULES)
    looked = Looked(policy.off, wanted.admits)
    return Answer(advice, policy, difference(earlier, advice, looked) if earlier is not None else None)


def _must_meet(expressions: tuple[str, ...], seen: Seen) -> None:
    """A slip of the pen would be told that nothing was found."""
    for expression in expressions:
        if not any(re.fullmatch(expression, one.name) for one in seen.topics):
            raise ConfigError(
                f"--topic {expression}: no topic of {seen.cluster} meets it",
                hint="it is an expression that meets a name whole, as orders or orders.*",
            )


def _with_links(seen: Seen, settings: Settings, clock: Callable[[], int]) -> Seen:
    """With the links that the store knows, if there is one. A store that cannot be read is told of."""
    eyes = Eyes(list(seen.unseen))
    links: tuple[LinkSeen, ...] = ()
    with eyes.trying("links, as the store has them"):
        store = open_if_there(settings)
        if store is None:
            return seen
        # Half of all that is loaded here is for links, which few clusters have.
        from twinshore.advisor.collect import links_from

        with store:
            links = links_from(seen.cluster, settings, store, clock=clock, eyes=eyes)
    return replace(seen, links=links, unseen=tuple(dict.fromkeys(eyes.unseen)))


def cluster_of(name: str, settings: Settings) -> Cluster:
    """The cluster that is meant: the only one, where none is named."""
    if name:
        return settings.cluster(name)
    if len(settings.clusters) != 1:
        known = ", ".join(settings.clusters)
        raise ConfigError(f"there are {len(settings.clusters)} clusters: {known}", hint="say with --cluster which one")
    return next(iter(settings.clusters.values()))


def _check(expression: str) -> None:
    try:
        re.compile(expression)
    except re.error as error:
        raise ConfigError(f"--topic {expression!r} is no expression: {error}") from error


def _wanted(asked: Advise, policy: Policy) -> Wanted:
    (rule,) = [one for one in RULES if one.name == "group-retention"]
    limits = policy.limits_of(rule)
    horizon_ms, waited_ms = int(limits["hours"] * HOUR_MS), int(limits["waited"] * 1000)
    return Wanted(asked.topics, asked.apart_s, horizon_ms, limits["part"], waited_ms, asked.within_s)


def read_text(path: Path) -> str:
    """ConfigError where there is no such text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text, at byte {error.start}") from error


def _earlier(path: Path) -> Advice:
    try:
        values = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: {error}", hint="`twinshore advise --json` writes it") from error
    return from_values(values, str(path))


def values_of(answer: Answer) -> dict[str, Any]:
    """For programs, and for a later --since."""
    values = as_values(answer.advice, answer.policy)
    if answer.changed is not None:
        values["since"] = difference_values(answer.changed)
    return values


def page_of(answer: Answer) -> str:
    """For whoever opens it in a browser."""
    return report.page(answer.advice, answer.changed)


def sentences_of(answer: Answer, *, everything: bool) -> list[str]:
    """For people."""
    lines = list(report.sentences_of(answer.advice, everything=everything))
    if answer.changed is not None:
        lines += ["", *report.difference_in_words(answer.changed, answer.advice.at_ms)]
    # Names that others chose may hold line breaks; what Kafka's tools are given may not be changed by that.
    return [one_line(line) for line in lines]
