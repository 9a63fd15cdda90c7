"""Monitors and watchers of monitors as processes, and what the store says of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import twinshore
from twinshore.delay.alarms import AlarmKind
from twinshore.fleet import Cluster
from twinshore.lab.processes import Child, start_child
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


def addresses(clusters: Iterable[Cluster], links: Mapping[str, str], folder: Path) -> str:
    """Clusters by plain addresses, links with the lines of their sections, and a store in the folder."""
    lines = ["[store]", f'url = "sqlite:///{folder / "store.db"}"']
    for cluster in clusters:
        lines += [f"[clusters.{cluster.name}]", f"bootstrap = {list(cluster.bootstrap)}"]
    for link, section in links.items():
        lines += [f'[links."{link}"]', section]
    return "\n".join(lines) + "\n"


class Verb:
    """`twinshore delay WORD` as a process of its own."""

    def __init__(self, folder: Path, name: str, settings: str) -> None:
        self.settings = folder / f"{name}.toml"
        self.settings.write_text(settings, encoding="utf-8")
        self.log = folder / f"{name}.log"
        self._folder, self._name = folder, name
        self._child: Child | None = None

    def start(self) -> None:
        sources = str(Path(twinshore.__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "twinshore.cli", "delay", self._name, "--settings", str(self.settings)]
        environment = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        self._child = start_child(command, folder=self._folder, log=self.log, environment=environment)

    @property
    def child(self) -> Child:
        assert self._child is not None, "it was never started"
        return self._child

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def end(self) -> None:
        if self._child is not None:
            self._child.end(patience_s=20)

    def kill(self) -> None:
        """kill -9."""
        self.child.end()


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
