"""The connections to clusters that all links of a process share: a few to each broker, however many links there are.

There are two registries. Who gives up within seconds, and says so, must not stand behind those who ask much and wait
long. Of a cluster that has been silent for some seconds only one is asking at a time. Pumps have connections of their
own, and so has who drives one by himself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twinshore.kafka.nodes import Pool

LINES = 8  # to one broker: as many questions are on their way to it at once


@dataclass(frozen=True, slots=True)
class Shared:
    """`client_id`: what brokers know its connections by."""

    client_id: str
    pool: Pool = field(default_factory=lambda: Pool(LINES, spares=True))


QUICK = Shared("twinshore-looks")
PATIENT = Shared("twinshore")


def once(client_id: str) -> Shared:
    """For a command that looks at many links: a cluster for which it has waited in vain it asks no more."""
    return Shared(client_id, Pool(LINES, once=True))
