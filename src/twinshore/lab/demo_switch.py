"""The demo's writers behind the proxy, and the switches that move their topics: planned, forced, and back in step."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
from confluent_kafka import Message

from twinshore.fleet import Cluster
from twinshore.lab.demo_stage import DemoMirror
from twinshore.lab.errors import LabError
from twinshore.lab.produce import Workload
from twinshore.lab.stages.mirror_process import own_code
from twinshore.switch.deeds import Deed
from twinshore.switch.hands.rescue import read_origin, read_saved

RECORDS_PER_S = 300.0
ENDS_WITHIN_S = 240.0
UNCROSSED = 100
_QUIET: dict[str, str | int] = {"log_level": 0}
_A_DEED = re.compile(r"(?!commit|hold)(" + "|".join(deed.value for deed in Deed) + "): ")


class Writers:
    """One for each topic: a stock producer that knows one address, and nothing of switches."""

    def __init__(self, topics: Iterable[str], address: Cluster) -> None:
        self._heard_s: dict[str, list[float]] = {topic: [] for topic in topics}
        self._writers = [
            Workload(
                address,
                one,
                records_per_s=RECORDS_PER_S,
                compressions=["lz4"],
                settings=_QUIET,
                heard_s=heard_s,
            )
            for one, heard_s in self._heard_s.items()
        ]
        self._stopped = False
        for one in self._writers:
            one.start()

    def acknowledged(self, topics: Iterable[str]) -> int:
        """How many records of these topics."""
        return sum(len(self._heard_s[topic]) for topic in topics)

    def first_since(self, since_s: float, topics: Iterable[str]) -> dict[str, float]:
        """When the first record of each topic was acknowledged after this moment; a topic is absent until then."""
        found = {}
        for topic in topics:
            if times := [at_s for at_s in list(self._heard_s[topic]) if at_s > since_s]:
                found[topic] = times[0]
        return found

    def pause_s(self, topic: str, since_s: float) -> float:
        """The longest between two acknowledgements."""
        times = [at_s for at_s in list(self._heard_s[topic]) if at_s > since_s]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def stop(self) -> int:
        """How many records were acknowledged in all; LabError where one was given up. Done twice it does nothing."""
        if self._stopped:
            return 0
        self._stopped = True
        return sum([one.stop() for one in self._writers])


class Stopped:
    """While it lasts the mirror's workers stand still, also one that waits for its next tide: nothing crosses."""

    def __init__(self, mirror: DemoMirror) -> None:
        self._pumps: Sequence[psutil.Process] = mirror.workers()

    def __enter__(self) -> Stopped:
        self._send(signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for pump in self._pumps:
            with suppress(psutil.Error):
                pump.send_signal(number)


def run_verb(mirror: DemoMirror, words: Sequence[str], say: Callable[[str], None]) -> None:
    """Runs `twinshore WORDS` as a user would, and says what it says while it runs, but for what each deed found on its
    way; LabError where it failed."""
    say(f"  $ twinshore {' '.join(words)}")
    command = [sys.executable, "-u", "-m", "twinshore.cli", *words, "--settings", str(mirror.settings)]
    child = subprocess.Popen(
        command, env={**os.environ, **own_code()}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    overdue = threading.Timer(ENDS_WITHIN_S, child.kill)
    overdue.start()
    try:
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line.rstrip())
            if not _A_DEED.match(line):
                say(f"    {lines[-1].replace(str(mirror.settings.parent), '...')}")
        if child.wait():
            raise LabError(f"twinshore {' '.join(words)} ended with code {child.returncode}: {lines[-10:]}")
    finally:
        overdue.cancel()
        child.kill()
        child.wait()


# When its producer made it, key and value: a producer that asks again changes none of them.
Identity = tuple[int, bytes | str | None, bytes | str | None]


@dataclass(frozen=True, slots=True)
class Account:
    """What clients were acknowledged in the demo, accounted for: each record is on both sides, or was saved from the
    lost one. A saved record whose producer asked again is in both places, and counts once. `again`: of those that were
    saved, how many stand on both sides too."""

    acknowledged: int
    on_both: int
    saved: int
    again: int

    def sentence(self) -> str:
        """LabError where it does not come out even."""
        found = self.on_both + self.saved - self.again
        if found != self.acknowledged:
            raise LabError(f"{self.acknowledged} records were acknowledged, {found} are found: {self}")
        more = f", {self.saved:,} more were saved from east" if self.saved else ""
        twice = f", {self.again:,} of which their producers sent again" if self.again else ""
        return f"acknowledged: {self.acknowledged:,} records; {self.on_both:,} are on both sides{more}{twice}"


class Rescued:
    """The records that a fail-back saved: the writers of the demo write no two alike to a topic in one moment."""

    def __init__(self, folder: Path) -> None:
        self._left: dict[str, set[Identity]] = {}
        self.count = self.again = 0
        for path in sorted(folder.glob("*.jsonl")) if folder.exists() else ():
            topic = self._left.setdefault(read_origin(path).topic, set())
            for one in read_saved(path):
                topic.add((one.record.timestamp, one.record.key, one.record.value))
                self.count += 1

    def listener(self, topic: str) -> Callable[[Message], None]:
        """Hears every record that is on both sides."""
        left = self._left.get(topic, set())

        def hear(message: Message) -> None:
            record = message.timestamp()[1], message.key(), message.value()
            if record in left:
                left.remove(record)
                self.again += 1

        return hear
