"""An operator's words as values: what each verb would make of what holds now, and whether a word meets any topic.
Pure; None means: as the settings say."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any

from twinshore.fleet import ConfigError, Link
from twinshore.fleet.settings.edge import NEAR, did_you_mean
from twinshore.links.filters import admits
from twinshore.links.in_force import NAMES, BadValueError, InForce, as_json, read

Wish = dict[str, Any]


def pause(now: InForce, topics: Sequence[str]) -> Wish:
    """The topics, or the whole link where none is named."""
    if not topics:
        return {"paused": True}
    held = now.link.control.paused_topics
    return {"paused_topics": (*held, *(one for one in topics if one not in held))}


def resume(now: InForce, topics: Sequence[str], *, every: bool = False) -> Wish:
    """The topics as they were paused; the link's own pause where none is named. `every`: that and all its topics'."""
    held = now.link.control.paused_topics
    if every:
        return {"paused": False, "paused_topics": ()}
    if not topics:
        return {"paused": False}
    for one in topics:
        if one not in held:
            raise ConfigError(f"{one!r} is not paused on link {now.link.name}{did_you_mean(one, held)}")
    return {"paused_topics": tuple(one for one in held if one not in topics)}


def throttle(now: InForce, bytes_s: int, topic: str | None) -> Wish:
    """The link, or the topics that match; 0: no bound any more."""
    if topic is None:
        return {"throttle_bytes_s": bytes_s}
    return {"topic_throttles": _with_pair(now.link.control.topic_throttles, topic, bytes_s)}


def priority(now: InForce, topic: str, weight: int) -> Wish:
    """Of the topics that match; 0: as all others."""
    return {"priorities": _with_pair(now.link.control.priorities, topic, weight)}


def filters(
    topics: Sequence[str], exclude: Sequence[str], groups: Sequence[str], exclude_groups: Sequence[str]
) -> Wish:
    """Those that are named; the others stay as they are."""
    given = {"topics": topics, "exclude": exclude, "groups": groups, "exclude_groups": exclude_groups}
    found = {name: tuple(value) for name, value in given.items() if value}
    if not found:
        raise ConfigError("no filter is named", hint="give --topics, --exclude, --groups or --exclude-groups")
    return found


def reset(names: Sequence[str]) -> Wish:
    """These, or all, as the settings say."""
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"nothing is called {name!r}{did_you_mean(name, NAMES)}")
    return dict.fromkeys(names or NAMES)


def _with_pair(pairs: tuple[tuple[str, int], ...], pattern: str, number: int) -> tuple[tuple[str, int], ...]:
    """The newest goes first: it shall count though an older one matches too."""
    rest = tuple(pair for pair in pairs if pair[0] != pattern)
    return ((pattern, number), *rest) if number else rest


def check(wish: Wish, link: str) -> Wish:
    """The wish without what it cannot mean; ConfigError that names the value otherwise."""
    for name, value in wish.items():
        if value is None:
            continue
        try:
            read(name, json.loads(as_json(value)))
        except BadValueError as error:
            raise ConfigError(f"link {link}: {name}: {error}") from error
    return wish


def steps(now: InForce, wish: Wish, begins: InForce) -> list[tuple[str, str, str]]:
    """Name, before and after, as JSON, of each value that would change; `begins`: the link as its settings have it."""
    found = []
    stored = dict(now.origins)
    for name, value in wish.items():
        after = begins.value(name) if value is None else value
        if value is None and stored[name] != "store":
            continue
        if value is None or as_json(now.value(name)) != as_json(after):
            found.append((name, as_json(now.value(name)), as_json(after)))
    return found


def carries(pattern: str, link: Link, topics: Collection[str]) -> bool:
    """Whether the link carries one of these topics that the expression matches."""
    return any(re.fullmatch(pattern, topic) and admits(link, topic) for topic in topics)


def remark(pattern: str, link: Link, topics: Collection[str] | None) -> str:
    """Why the word changes nothing now, by the source's topics; None where it cannot be asked. Empty where it does."""
    later = "it holds for one that appears"
    if topics is None:
        return f"whether a topic matches {pattern!r} is not known: {link.source} does not answer; {later}"
    if carries(pattern, link, topics):
        return ""
    left_out = sorted(topic for topic in topics if re.fullmatch(pattern, topic))
    if left_out:
        return f"the link does not admit {left_out[0]}, which {pattern!r} matches: nothing of it is carried"
    near = get_close_matches(pattern, [topic for topic in topics if admits(link, topic)], n=1, cutoff=NEAR)
    mean = f"; did you mean {near[0]}?" if near else ""
    return f"no topic of {link.source} matches {pattern!r} now{mean}; {later}"
