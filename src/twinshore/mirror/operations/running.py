"""What running links would begin with, and what each topic will take: looked at, and none of it done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twinshore.fleet import KafkaError
from twinshore.fleet.settings import Settings
from twinshore.mirror.driver.preview import holding, in_words, preview
from twinshore.mirror.driver.ready import check_chosen
from twinshore.mirror.follow.preview import Line
from twinshore.mirror.follow.preview import preview as follows
from twinshore.mirror.mapping.cost import Cost
from twinshore.mirror.operations.plan_lines import lines_of
from twinshore.mirror.planned import AtHome, Refuse, Stay, Step
from twinshore.service.connections import once
from twinshore.store import Store


@dataclass(frozen=True, slots=True)
class RunPlan:
    """By link: each step, what follows besides records, and why nobody can tell what a link would do."""

    steps: tuple[tuple[str, Step | Cost], ...]
    besides: tuple[tuple[str, Line], ...]
    away: tuple[tuple[str, str], ...]

    def as_values(self) -> list[dict[str, Any]]:
        """For programs."""
        values: list[dict[str, Any]] = [{"link": name, "step": "unknown", "sentence": why} for name, why in self.away]
        values += [_values(name, step) for name, step in self.steps]
        return values + [{"link": name, "step": _kind(line), **asdict(line)} for name, line in self.besides]

    def sentences(self) -> list[str]:
        """For people, every step and value: first what is not known."""
        said = [f"{name}: {in_words(step)}" for name, step in self.steps]
        return [*self._unknown(), *said, *(f"{name}: {line}" for name, line in self.besides), *self._nothing()]

    def lines(self) -> list[str]:
        """For people, a line for each topic: first what is not known."""
        said: list[str] = []
        for link in dict.fromkeys(name for name, _ in (*self.steps, *self.besides)):
            steps = [step for name, step in self.steps if name == link]
            besides = [line for name, line in self.besides if name == link]
            said += [f"{link}: {line}" for line in lines_of(link, steps, besides)]
        return [*self._unknown(), *said, *self._nothing()]

    def _unknown(self) -> list[str]:
        return [f"{name}: cannot tell what it would do: {why}" for name, why in self.away]

    def _nothing(self) -> list[str]:
        if self.steps or self.away:
            return []
        return [
            "nothing to do: the links' filters admit no topic that their sources show to the mirror's user;"
            " `twinshore link list` shows the filters, and a user sees the topics that it may Describe"
        ]


def plan_of_running(
    links: Sequence[str], settings: Settings, store: Store, *, rate_bytes_s: float = 0.0, log: Callable[[str], None]
) -> RunPlan:
    """Asks both clusters of each link; one that does not answer is the word on its link. `rate_bytes_s`: for durations;
    0: as it was measured. StoreError where the store could not be written."""
    chosen = settings.chosen(links)
    check_chosen(settings, chosen)
    store.leases.check_writable()
    steps: list[tuple[str, Step | Cost]] = []
    besides: list[tuple[str, Line]] = []
    away: list[tuple[str, str]] = []
    shared = once("twinshore-plan")
    for link in [holding(one, settings, store, log) for one in chosen]:
        try:
            found = list(preview(link, settings, store, shared, rate_bytes_s))
            carried = {step.topic for step in found if not isinstance(step, Refuse | AtHome | Stay)}
            lines = list(follows(link, settings, store, shared, carried))
        except KafkaError as error:
            away.append((link.name, str(error)))
            continue
        steps += [(link.name, step) for step in found]
        besides += [(link.name, line) for line in lines]
    return RunPlan(tuple(steps), tuple(besides), tuple(away))


def _values(link: str, step: Step | Cost) -> dict[str, Any]:
    values = asdict(step)
    if "settings" in values:
        values["settings"] = dict(values["settings"])
    return {"link": link, "step": _kind(step), **values}


def _kind(step: Step | Cost | Line) -> str:
    return type(step).__name__.lower()
