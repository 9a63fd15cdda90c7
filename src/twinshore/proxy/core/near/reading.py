"""What becomes of one client's fetches where it may read near. Pure.

A client is led by the answer with which brokers lead consumers to a replica (KIP-392): the leader stays at
home, so nobody writes elsewhere. It goes on at the twin until a few minutes are over, or until it hears an error there:
NOT_LEADER_OR_FOLLOWER sends it home. A twin never tells it that its place is out of range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twinshore.kafka.errors import Code
from twinshore.proxy.core.layout import NOBODY, Layout, Place
from twinshore.proxy.core.near.knows import Near
from twinshore.proxy.core.near.rules import Part
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving import fetch

# Answers name another node to read at since v11. Clients of librdkafka that ask in it do not leave that node at an
# error (before 2.1), and those that ask in a later one do.
LEADS_FROM: Final = 12
# Who comes back sooner than that has met something there, and reads at home meanwhile. librdkafka takes no second lead
# within a minute without pausing.
AGAIN_S: Final = 65.0
# Sessions of which nothing new is known are looked at all the same, since some were led away not long ago.
LOOK_S: Final = 30.0
NOTE_S: Final = 10.0
# How long an answer waits that has nothing but places that the twin has not reached.
AHEAD_S: Final = 0.1
NOTHING_S: Final = 0.5
_NOT_HERE: Final = int(Code.NOT_LEADER_OR_FOLLOWER)


@dataclass(slots=True)
class Looked:
    """As of when nothing of a session was to be read elsewhere, and when its topics were noted last."""

    view: object = None
    at_s: float = -math.inf
    noted_s: float = -math.inf
    reads: bool = False


class Reading:
    """Of one client. `site` is where it is, by its address, or its rack where that says nothing. `reads_near`: whether
    it ever asked a twin here."""

    def __init__(self, near: Near, layout: Layout) -> None:
        self.near, self._layout = near, layout
        self.site = self._by_address = ""
        self.reads_near = self._can_be_led = False
        self._led: dict[Part, float] = {}
        self._ahead: dict[Part, float] = {}

    def comes_from(self, address: str) -> None:
        """The client is there."""
        self.site = self._by_address = self.near.site_of(address)

    def seen(self, seen: Seen) -> Seen:
        """What is known, as the client is to see it. A rack is told with a fetch alone: whoever went by it would have
        the client's other requests answered by another log of that name."""
        return self.near.as_seen(seen, self._by_address)

    def copies(self, topic: str, seen: Seen) -> Sequence[str]:
        """Clusters where it may come to read the topic, beside its home."""
        return self.near.at(topic, self.site, seen) if self.site else ()

    def note(self, asked: fetch.FetchRequest, parts: Iterable[Part], seen: Seen) -> bool:
        """Has these topics looked at, of a client that can be led; whether it may read anything elsewhere than at home.
        One whose address says nothing may name its site as its rack."""
        self._can_be_led = True
        if not self.site and asked.rack and self.near.rules.known(asked.rack):
            self.site = asked.rack
        if not self.site or asked.replica[0] != fetch.CONSUMER:
            return False
        for topic in {topic for topic, _ in parts}:
            if self.near.at(topic, self.site, seen):
                self.near.wants(topic)
        return True

    def looks_at(self, asked: fetch.FetchRequest, parts: Iterable[Part], seen: Seen, looked: Looked) -> bool:
        """The same of a session, which names its topics once: they are noted now and then."""
        now_s = self.near.now_s
        if self._can_be_led and now_s - looked.noted_s >= NOTE_S:
            looked.noted_s, looked.reads = now_s, self.note(asked, parts, seen)
        return looked.reads

    def is_here(self, one: fetch.Wanted, cluster: str, seen: Seen) -> bool:
        """Whether the partition is read at this cluster."""
        topic = str(one.topic)
        if not seen.is_elsewhere(topic, cluster):
            return True
        reads = self.near.serves(cluster, topic, one.partition)
        self.reads_near |= reads
        return reads

    def waits(self, wanted: Iterable[fetch.Wanted], cluster: str, seen: Seen) -> bool:
        """Whether it will be known in a moment if the client reads these here."""
        return any(
            self.near.is_undecided(topic) and cluster in self.near.at(topic, self.site, seen)
            for topic in {str(one.topic) for one in wanted}
        )

    def elsewhere(self, parts: Iterable[Part], cluster: str, seen: Seen) -> dict[Part, Place]:
        """Of partitions that the client asks for at their home: where it is to read them instead. Whoever was led not
        long ago and asks here again is let be."""
        view, now_s = self.near.view(self.site), self.near.now_s
        return {
            part: view[part]
            for part in parts
            if part in view
            and seen.route(part[0]) == cluster
            and view[part].cluster != cluster
            and now_s - self._led.get(part, -AGAIN_S) >= AGAIN_S
        }

    def session_leads(self, parts: Iterable[Part], cluster: str, seen: Seen, looked: Looked) -> bool:
        """The same of a session, which is looked at when something has changed, and now and then."""
        view, now_s = self.near.view(self.site), self.near.now_s
        if looked.view is view and now_s - looked.at_s < LOOK_S:
            return False
        looked.view, looked.at_s = view, now_s
        return bool(self.elsewhere(parts, cluster, seen))

    def leads(self, asked: fetch.FetchRequest, cluster: str, seen: Seen) -> fetch.FetchAnswer | None:
        """The answer that leads the client to where it reads some of this; None where all is read here. Where a place
        is no more, or not yet, in the twin's log it is read at home."""
        positions = {(str(one.topic), one.partition): one.position for one in asked.wanted}
        places = {
            part: place
            for part, place in self.elsewhere(positions, cluster, seen).items()
            if self._reaches_back(place.cluster, part, positions[part])
        }
        if not places:
            return None
        self.near.led += 1
        self._led |= dict.fromkeys(places, self.near.now_s)
        return fetch.FetchAnswer(0, 0, 0, [self._led_to(one, places) for one in asked.wanted])

    def _led_to(self, one: fetch.Wanted, places: Mapping[Part, Place]) -> fetch.Fetched:
        place = places.get((str(one.topic), one.partition))
        number = NOBODY if place is None else self._layout.number(*place)
        return _nothing(one)._replace(preferred_replica=number)

    def _reaches_back(self, cluster: str, part: Part, position: int) -> bool:
        level = self.near.level(cluster, *part)
        return level is not None and level.start <= position

    def heard(
        self, asked: fetch.FetchRequest, answer: fetch.FetchAnswer, cluster: str, seen: Seen
    ) -> tuple[fetch.FetchAnswer, float]:
        """What the client is told of a cluster's answer, and after how long; the same answer where all of it is told.
        Any error of a twin sends it home. A place that the twin has not reached waits for it as long as a twin may be
        behind: home may have shown it to the client already."""
        if not self.reads_near:
            return answer, 0.0
        ahead: dict[Part, float] = {}
        told: list[fetch.Fetched] = []
        for one in answer.fetched:
            part = str(one.topic), one.partition
            if seen.is_elsewhere(part[0], cluster):
                self.near.bytes_read[cluster] += len(one.records or b"")
                if one.error:
                    since_s = self._ahead_since_s(asked, one.error, part, cluster)
                    one = one._replace(error=_NOT_HERE, aborted=None) if since_s is None else _nothing(one)
                    ahead |= {} if since_s is None else {part: since_s}
                    self.near.sent_home += since_s is None
            told.append(one)
        self._ahead = ahead
        changed = any(one is not before for one, before in zip(told, answer.fetched, strict=True))
        wait_s = AHEAD_S if ahead and not any(one.records for one in told) else 0.0
        return (answer._replace(fetched=told) if changed else answer), wait_s

    def _ahead_since_s(self, asked: fetch.FetchRequest, error: int, part: Part, cluster: str) -> float | None:
        """Since when the client waits for the twin; None where it need not. A place is named when it has changed."""
        level, now_s = self.near.level(cluster, *part), self.near.now_s
        if error != Code.OFFSET_OUT_OF_RANGE or level is None or not self.near.serves(cluster, *part):
            return None
        named = [one.position for one in asked.wanted if (str(one.topic), one.partition) == part]
        since_s = self._ahead.get(part)
        if named:
            since_s = (now_s if since_s is None else since_s) if named[0] > level.end else None
        return since_s if since_s is not None and now_s - since_s <= self.near.rules.behind_s_max else None


def nothing_new(wanted: Iterable[fetch.Wanted]) -> fetch.FetchAnswer:
    """The answer that has no records, and no error."""
    return fetch.FetchAnswer(0, 0, 0, [_nothing(one) for one in wanted])


def _nothing(one: fetch.Wanted | fetch.Fetched) -> fetch.Fetched:
    return fetch.Fetched(one.topic, one.partition, 0, -1, -1)
