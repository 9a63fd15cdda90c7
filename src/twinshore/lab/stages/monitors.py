"""Monitors and watchers of monitors as processes, and what the store says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from twinshore.delay.alarms import AlarmKind
from twinshore.lab.stages.mirror_process import VerbProcess
from twinshore.store import AlarmRow, DelayPlace, Store, open_store

# The default: on a machine that carries all the rest too, a shorter one leaves whoever judges too little time.
PERIOD_S = 5.0
DELAY: Mapping[str, object] = {
    "period_s": PERIOD_S,
    "sample_s": 0.25,
    "recovery_point_s": 3,
    "heartbeat_s": 60,
    "clear_s": 1,
    "windows": '"plain"',
}


def delay_text(folder: Path, delay: Mapping[str, object] | None = None) -> str:
    """The section of a settings file."""
    values = {**DELAY, "folder": f'"{folder / "delay"}"', **(delay or {})}
    return "[delay]\n" + "\n".join(f"{name} = {value}" for name, value in values.items()) + "\n"


class Verb(VerbProcess):
    """`twinshore delay WORD`."""

    def __init__(self, folder: Path, name: str, settings: str) -> None:
        file = folder / f"{name}.toml"
        file.write_text(settings, encoding="utf-8")
        super().__init__(("delay", name), file, folder / f"{name}.log")


class History:
    """The alarms in the store, which is opened when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: Store | None = None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = open_store(f"sqlite:///{self.folder / 'store.db'}")
        return self._opened

    def alarms(self, kind: AlarmKind, *, open_only: bool = False) -> list[AlarmRow]:
        return [row for row in self._store.delay.alarms(open_only=open_only) if row.kind == kind]

    def every(self) -> tuple[AlarmRow, ...]:
        return self._store.delay.alarms()

    def places(self, link: str) -> tuple[DelayPlace, ...]:
        return self._store.delay.places(link)

    def stands(self, kind: AlarmKind) -> bool:
        return bool(self.alarms(kind, open_only=True))

    def risen_s(self, kind: AlarmKind, since_ms: int) -> float | None:
        """How long after that moment it rose, if it stands."""
        found = [row.raised_ms for row in self.alarms(kind, open_only=True)]
        return (min(found) - since_ms) / 1000 if found else None


def until(holds: Callable[[], bool], within_s: float, what: str, said: Callable[[], str]) -> float:
    """Seconds until it came true."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < within_s, f"not within {within_s} s: {what}\n{said()[-3000:]}"
        time.sleep(0.05)
    return time.monotonic() - began_s
