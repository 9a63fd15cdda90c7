"""A link's driver's ear for its operators: looks for a new version every second, and says what holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from twinshore.fleet import ConfigError, Link
from twinshore.mirror.control.in_force import InForce, in_force
from twinshore.mirror.plan import admits
from twinshore.mirror.topology.rules import check_links
from twinshore.store import Store

EVERY_S = 1.0
Seen = tuple[str, int]


class Ruling:
    """`link` is what holds. A change that could loop or collide is refused and the last one stays."""

    def __init__(self, link: Link, links: Sequence[Link], store: Store, log: Callable[[str], None]) -> None:
        self._begins, self._links, self._store, self._log = link, links, store, log
        self._version = -1
        self._looked_at_s = 0.0
        self._said: tuple[str, ...] = ()
        self._parting: set[str] = set()
        self.link = link

    def changed(self) -> bool:
        """Whether something else holds than at the last call."""
        if time.monotonic() - self._looked_at_s < EVERY_S:
            return False
        self._looked_at_s = time.monotonic()
        version = self._store.control_version(self._begins.name)
        if version == self._version:
            return False
        now = in_force(self._begins, self._store.controls(self._begins.name))
        troubles = list(now.troubles)
        try:
            check_links(others_in_force(self._links, self._store, now))
        except ConfigError as error:
            troubles.append(f"what operators said does not count: {error.message}")
        self._version = version
        self._tell(tuple(troubles))
        if len(troubles) > len(now.troubles) or now.link == self.link:
            return False
        self.link = now.link
        return True

    def holds(self, topic: str) -> bool:
        """Whether the topic is paused."""
        return self.link.control.holds(topic)

    def flowing(self, names: Mapping[str, Seen]) -> dict[str, Seen]:
        """Those of the topics that may flow now; one that is still leaving its lanes comes back once it has left."""
        return {name: seen for name, seen in names.items() if name not in self._parting and not self.holds(name)}

    def partings(self, placed: Set[str], withdraw: Callable[[str], bool]) -> list[str]:
        """Topics on lanes that from now on may not flow, each told once. `withdraw` is asked until it says True."""
        unwanted = {topic for topic in placed if self.holds(topic) or not admits(self.link, topic)}
        fresh = sorted(unwanted - self._parting)
        self._parting |= unwanted
        self._parting -= {topic for topic in self._parting if withdraw(topic)}
        return fresh

    def _tell(self, troubles: tuple[str, ...]) -> None:
        for sentence in troubles if troubles != self._said else ():
            self._log(f"{self._begins.name}: {sentence}")
        self._said = troubles


def others_in_force(links: Iterable[Link], store: Store | None, now: InForce) -> list[Link]:
    """All links as they hold, this one as it would."""
    others = {link.name: link for link in links}
    if store:
        others = {name: in_force(link, store.controls(name)).link for name, link in others.items()}
    return [now.link if name == now.link.name else link for name, link in others.items()]


def in_words(link: Link) -> str:
    """What holds beside the filters, for a log."""
    control = link.control
    said = [
        "paused" if control.paused else "",
        f"topics {', '.join(control.paused_topics)} paused" if control.paused_topics else "",
        f"at most {control.throttle_bytes_s:,} bytes/s" if control.throttle_bytes_s else "",
        *(f"{pattern} at most {rate:,} bytes/s" for pattern, rate in control.topic_throttles),
        *(f"{pattern} has priority {weight}" for pattern, weight in control.priorities),
    ]
    filters = f"topics {json.dumps(list(link.topics))} without {json.dumps(list(link.exclude))}"
    return ", ".join([filters, *(part for part in said if part)])
