"""A log in which a cluster that does not answer is told once, whoever asks it and however many links wait for it.

Each link has a handful of errands that fail while a cluster is away, and each would say so by itself. Here they give
their trouble to the log. It says the cause at once, soon after it what waits for the cluster, and that again after a
while or when it has grown; in the end it says once that the cluster answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from twinshore.fleet import KafkaError
from twinshore.fleet.once import Once, in_words
from twinshore.fleet.sentences import counted, listed

GATHER_S = 15.0  # errands give up at different times: what waits is told when most of them have
AGAIN_S = 600.0
LATE_S = 20.0  # an errand that began while the cluster was away may fail so long after it is back
NAMED_MAX = 5

Errand = tuple[str, str]  # a link, and what is not done for it


@dataclass(slots=True)
class _Away:
    """A cluster that does not answer. `back_s`: since when it answers again; what still waits is not told any more."""

    since_s: float
    tell_at_s: float
    waiting: set[Errand] = field(default_factory=set)
    told: set[Errand] = field(default_factory=set)
    told_s: float = -1e9
    back_s: float | None = None


class CauseLog:
    """Takes sentences as any log does. Safe for several threads."""

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._guard = threading.Lock()
        self._away: dict[str, _Away] = {}

    def __call__(self, sentence: str) -> None:
        self._log(sentence)

    def silent(self, cluster: str, link: str, what: str, cause: str, *, since_s: float = -1.0) -> None:
        """`what` of the link is not done, since the cluster does not answer. `since_s`: when it fell silent by this
        log's clock, where that is known: an errand may have waited for long before it gave up."""
        now_s = self._clock()
        with self._guard:
            away = self._away.get(cluster)
            if away is not None and away.back_s is not None and now_s - away.back_s >= LATE_S:
                away = None
            said = ""
            if away is None:
                away = self._away[cluster] = _Away(now_s, now_s + GATHER_S)
                said = f"{cluster} does not answer: {cause}"
            if since_s >= 0 and away.back_s is None:
                away.since_s = min(away.since_s, since_s)
            away.waiting.add((link, what))
            if not said and away.back_s is None and now_s >= away.tell_at_s and _is_news(away, now_s):
                said = _what_waits(cluster, away, now_s)
                away.told, away.told_s, away.tell_at_s = set(away.waiting), now_s, now_s + GATHER_S
        if said:
            self._log(said)

    def answers(self, link: str, what: str, of: str = "") -> bool:
        """`what` of the link is done, `of` this cluster where one alone was asked; whether it had waited for a cluster,
        so that the log has said all there is to say."""
        now_s, said, waited = self._clock(), [], False
        with self._guard:
            for cluster, away in self._away.items():
                if (link, what) not in away.waiting or of not in ("", cluster):
                    continue
                away.waiting.discard((link, what))
                waited = True
                if away.back_s is None:
                    away.back_s = now_s
                    said.append(f"{cluster} answers again, after {now_s - away.since_s:.0f} s")
        for sentence in said:
            self._log(sentence)
        return waited

    def forget(self, link: str) -> None:
        """This process carries the link no more: nothing of it waits here."""
        with self._guard:
            for cluster, away in list(self._away.items()):
                away.waiting = {one for one in away.waiting if one[0] != link}
                if not away.waiting and away.back_s is None:
                    del self._away[cluster]

    def spoke_of(self, cluster: str) -> bool:
        """Whether the log has said that the cluster does not answer, and not for long that it answers again."""
        with self._guard:
            away = self._away.get(cluster)
            return away is not None and (away.back_s is None or self._clock() - away.back_s < LATE_S)


def _is_news(away: _Away, now_s: float) -> bool:
    return bool(away.waiting - away.told) or now_s - away.told_s >= AGAIN_S


def _what_waits(cluster: str, away: _Away, now_s: float) -> str:
    links = sorted({link for link, _ in away.waiting})
    what = sorted({what for _, what in away.waiting})
    wait = "waits" if len(links) == 1 else "wait"
    return (
        f"{cluster} has not answered for {now_s - away.since_s:.0f} s: {counted(len(links), 'link')} {wait}"
        f" ({listed(links, NAMED_MAX)}), with {listed(what, len(what))}"
    )


def with_causes(log: Callable[[str], None]) -> CauseLog:
    """The same log where it is such a one, as that of a whole process is; else one of its own."""
    return log if isinstance(log, CauseLog) else CauseLog(log)


class Trouble:
    """What one errand of a link says of its troubles: as `Once` does, and of a cluster that is away the log says it."""

    def __init__(self, link: str, what: str, log: Callable[[str], None], log_causes: CauseLog) -> None:
        self._link, self._what = link, what
        self._causes, self._once = log_causes, Once(log)

    def remark(self, sentence: str) -> None:
        """What is no failure."""
        self._once.say(sentence)

    def say(self, before: str, error: Exception) -> None:
        """`before`: what is not done, before the colon."""
        if isinstance(error, KafkaError) and error.silent:
            self._causes.silent(error.silent, self._link, self._what, error.cause)
        else:
            self._once.say(f"{before}: {in_words(error)}")

    def well(self, says: str = "") -> None:
        """It is done again."""
        waited = self._causes.answers(self._link, self._what)
        self._once.well("" if waited else says)
