"""Rules about links from the cluster: what would be lacking on the other side if clients had to go there now. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from twinshore.advisor import commands
from twinshore.advisor.rule import Found, Limit, Rule, Weight
from twinshore.advisor.seen import LinkSeen, Seen
from twinshore.fleet.sentences import counted, listed

NAMED = 10
Limits = Mapping[str, float]


def _status(link: LinkSeen) -> str:
    return f"twinshore status --link {shlex.quote(link.name)} --topics"


def _not_running(seen: Seen, _: Limits) -> Iterator[Found]:
    for link in seen.links:
        if link.twins and not link.runs:
            yield Found(f"link {link.name}", link.says, (_status(link),), "start `twinshore mirror run`")


def _behind(seen: Seen, limits: Limits) -> Iterator[Found]:
    for link in seen.links:
        late = [(one.lag, one.topic) for one in link.twins if one.lag is not None and one.lag > limits["records"]]
        if late:
            named = listed([f"{topic} {lag:,}" for lag, topic in sorted(late, reverse=True)], NAMED)
            total = sum(lag for lag, _ in late)
            yield Found(f"link {link.name}", f"{total:,} records are not on the twins: {named}", (_status(link),))


def _stopped(seen: Seen, _: Limits) -> Iterator[Found]:
    for link in seen.links:
        rest = [f"{one.topic} ({counted(one.stopped, 'partition')})" for one in link.twins if one.stopped]
        if rest:
            why = f"; {listed(link.incidents, NAMED, '; ')}" if link.incidents else ""
            by_hand = "each incident names what lets its partition go on"
            yield Found(f"link {link.name}", f"not carried: {listed(rest, NAMED)}{why}", (_status(link),), by_hand)


def _differs(seen: Seen, _: Limits) -> Iterator[Found]:
    for link in seen.links:
        for twin in link.twins:
            if not twin.differs:
                continue
            told = ", ".join(
                f"{name} is {_value(has)}, it should be {_value(wanted)}" for name, has, wanted in twin.differs
            )
            there = commands.Place(link.bootstrap, link.secured)
            adds = {name: wanted for name, _, wanted in twin.differs if wanted is not None}
            drops = [name for name, _, wanted in twin.differs if wanted is None]
            lines = [commands.set_on_topic(there, twin.name, adds)] if adds else []
            lines += [commands.unset_on_topic(there, twin.name, drops)] if drops else []
            by_hand = "a mirror that runs sets it by itself"
            yield Found(f"twin {twin.name} of {link.name}", told, tuple(lines), by_hand)


def _rights(seen: Seen, _: Limits) -> Iterator[Found]:
    for link in seen.links:
        there = commands.Place(link.bootstrap, link.secured)
        if link.open:
            evidence = "only this cluster has an authorizer: whoever reaches the other one may do everything there"
            yield Found(f"link {link.name}", evidence, by_hand="set authorizer.class.name on every broker there")
        told = [f"lacking there: {acl}" for acl in link.lacks]
        told += [f"there, and no more here: {acl}" for acl in link.left]
        if told:
            lines = [commands.rule(there, acl, gives=True) for acl in link.lacks]
            lines += [commands.rule(there, acl, gives=False) for acl in link.left]
            by_hand = "a mirror that runs does it by itself, where the link's section `follow` says `acls`"
            yield Found(f"link {link.name}, ACLs", listed(told, NAMED, "; "), tuple(lines), by_hand)


def _value(text: str | None) -> str:
    return "Kafka's default" if text is None else text


LINK_RULES = (
    Rule(
        "link-not-running",
        Weight.GRAVE,
        "no mirror carries a link that has twins",
        "all that is written from now on, on the other side",
        "this cluster is lost, and clients move to the other one",
        _not_running,
    ),
    Rule(
        "twin-behind",
        Weight.WARNING,
        "twins lack records",
        "these records: a switch by force would lose them, a planned one waits for them",
        "this cluster is lost now",
        _behind,
        (Limit("records", 1000, "records that a topic's twin may lack"),),
    ),
    Rule(
        "twin-stopped",
        Weight.GRAVE,
        "partitions of twins are stopped",
        "all that these partitions get, on the other side",
        "this cluster is lost, and clients move to the other one",
        _stopped,
    ),
    Rule(
        "twin-differs",
        Weight.WARNING,
        "a twin's settings are not those of its source",
        "what the settings promise: the twin keeps another promise than its topic",
        "clients move to the other cluster",
        _differs,
    ),
    Rule(
        "twin-rights",
        Weight.WARNING,
        "who may use twins is not who may use their topics",
        "reading and writing there: clients are refused, or others are let in",
        "clients move to the other cluster",
        _rights,
    ),
)
