"""Was anything spoilt that nobody saw, as by an older version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from twinshore.fleet.settings import Settings
from twinshore.proof.continuous import wishes_of
from twinshore.proof.examining import Examination
from twinshore.proof.job import RunBundle
from twinshore.proof.operations.prove import throttled
from twinshore.proof.traces import Examined
from twinshore.store import Store


@dataclass(frozen=True, slots=True)
class Examine:
    """`topics`: only these of the source. `throttle_mb_s`: below 0 as the settings say."""

    links: Sequence[str] = ()
    topics: Sequence[str] = ()
    throttle_mb_s: float = -1.0


def examine(
    asked: Examine, settings: Settings, store: Store, run: RunBundle, *, stopped: Callable[[], bool]
) -> Examined:
    """Reads both sides whole, while traffic flows, and changes nothing; `stopped` ends it between two stretches."""
    tasks = settings.proof.tasks
    wishes = replace(wishes_of(throttled(settings.proof, asked.throttle_mb_s)), digest=False).per_task(tasks)
    examination = Examination(settings, store, run, wishes, tasks, stopped)
    return examination.look(settings.chosen(asked.links), asked.topics)
