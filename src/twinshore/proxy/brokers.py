"""One client's connections to brokers: each its own, dialled when it is first needed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from twinshore.proxy.core.layout import ANY, Place
from twinshore.proxy.core.login import Who
from twinshore.proxy.core.moves import ANSWER_S, Ask, Said
from twinshore.proxy.house import House
from twinshore.proxy.upstream import Asked, Upstream, deadline
from twinshore.proxy.writing import LATE_S
from twinshore.wire.apis import API_VERSIONS, shape_of
from twinshore.wire.framing import frame, read_response_header


class Brokers:
    """`pace` is called where one takes no more for now, `go_on` where it takes more. `who`: as what it has shown
    itself."""

    def __init__(self, house: House, pace: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._house, self._pace, self._go_on = house, pace, go_on
        self._lines: dict[Place, Upstream] = {}
        self._choked: dict[Place, None] = {}
        self._paused = False
        self.who = Who()

    @property
    def take_no_more(self) -> bool:
        """Whether one of them takes no more for now."""
        return bool(self._choked)

    def pause(self, paused: bool) -> None:
        """Reads nothing more of them, or reads on."""
        self._paused = paused
        for line in self._lines.values():
            line.pause(paused)

    def look(self, now_s: float) -> bool:
        """Now and then, at all of them; whether one was ended whose answer is too late."""
        return any(line.look(now_s) for line in list(self._lines.values()))

    def close(self) -> None:
        """The client is gone."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def to(self, place: Place) -> Upstream | None:
        """The client's own connection there, dialled where it has none; None where there is no such broker now."""
        if place.node == ANY:
            place = self._anybody(place.cluster)
        known = self._lines.get(place)
        if known is not None:
            return known
        broker = self._house.seen.clusters[place.cluster].brokers.get(place.node)
        if broker is None:
            return None
        made = self._lines[place] = Upstream(place, self, self._house.gate.access(place.cluster, self.who))
        made.dial(broker)
        if self._paused:
            made.pause(True)
        return made

    def _anybody(self, cluster: str) -> Place:
        """A broker of the cluster, one to which there is a connection already where there is one."""
        for place in self._lines:
            if place.cluster == cluster:
                return place
        nodes = list(self._house.seen.clusters[cluster].brokers)
        return Place(cluster, random.choice(nodes) if nodes else ANY)

    def ask(self, ask: Ask, client_id: str, wait_s: float, heard: Callable[[Said], None]) -> None:
        """Asks in the client's name, over its own connection to that broker."""
        line = self.to(ask.place)
        if line is None:
            # Not at once: the errand has more to ask before it hears anything.
            asyncio.get_running_loop().call_soon(heard, None)
            return
        shape = shape_of(ask.key, ask.version)
        number = self._house.number()

        def done(found: memoryview | None) -> None:
            if found is None:
                heard(None)
                return
            # The next answer of that broker comes into the same buffer.
            heard(memoryview(bytes(found[read_response_header(found, shape.tags_in_answer)[1] :])))

        asked = Asked(ask.key, number, deadline(wait_s), done)
        line.ask(asked, frame(ask.key, ask.version, number, client_id, ask.body, shape.tags_in_request))

    def ask_behind(self, place: Place, heard: Callable[[], None]) -> None:
        """Has the broker answer something behind all that it was sent; once it is gone, what it was sent may still
        arrive for a while."""
        line = self._lines.get(place)
        if line is None:
            asyncio.get_running_loop().call_later(LATE_S, heard)
            return

        def done(found: memoryview | None) -> None:
            if found is not None:
                heard()
            else:
                asyncio.get_running_loop().call_later(LATE_S, heard)

        number = self._house.number()
        asked = Asked(API_VERSIONS, number, deadline(ANSWER_S), done)
        line.ask(asked, frame(API_VERSIONS, 0, number, "", [], False))

    def choked(self, upstream: Upstream) -> None:
        self._choked[upstream.place] = None
        self._pace()

    def flows(self, upstream: Upstream) -> None:
        self._choked.pop(upstream.place, None)
        self._go_on()

    def lost(self, upstream: Upstream) -> None:
        self._house.lost(upstream.ended_by if upstream.shut_out else "")
        if self._lines.get(upstream.place) is upstream:
            del self._lines[upstream.place]
