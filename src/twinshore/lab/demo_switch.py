"""The demo's writers that follow homes, and the switches that move their topics: planned, forced, and back in step."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress

import psutil

from twinshore.fleet import Cluster
from twinshore.lab.demo_mirror import DemoMirror
from twinshore.lab.errors import LabError
from twinshore.lab.stages.following_writer import FollowingWriter, Writing
from twinshore.switch.deeds import Deed

RECORDS_PER_S = 300.0
ENDS_WITHIN_S = 240.0
UNCROSSED = 100
_A_DEED = re.compile(r"(?!commit|hold)(" + "|".join(deed.value for deed in Deed) + "): ")


class Writers:
    """One for each topic, begun on east; each asks the clusters where its topic is at home, and writes there."""

    def __init__(self, topics: Iterable[str], clusters: Mapping[str, Cluster]) -> None:
        self._stack = ExitStack()
        how = Writing(records_per_s=RECORDS_PER_S)
        self._writers = {
            topic: self._stack.enter_context(FollowingWriter(f"writer of {topic}", topic, clusters, "east", how))
            for topic in topics
        }

    def acknowledged(self, cluster: str, topics: Iterable[str] = ()) -> int:
        """How many records this cluster acknowledged."""
        wanted = set(topics) or set(self._writers)
        some = [writer for topic, writer in self._writers.items() if topic in wanted]
        return sum(one.cluster == cluster for writer in some for one in list(writer.acked))

    def first_at(self, cluster: str, topics: Iterable[str]) -> dict[str, float]:
        """When it acknowledged the first record of each topic; a topic is absent until then."""
        found = {}
        for topic in topics:
            times = [one.at_s for one in list(self._writers[topic].acked) if one.cluster == cluster]
            if times:
                found[topic] = times[0]
        return found

    def pause_s(self, topic: str, since_s: float) -> float:
        """The longest between two acknowledgements."""
        return self._writers[topic].longest_pause_s(since_s)

    def errors(self) -> int:
        """How many errors they were told."""
        return sum(len(writer.failed) for writer in self._writers.values())

    def stop(self) -> None:
        """LabError where one broke; done twice it does nothing."""
        self._stack.close()


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
        command, env=mirror.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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
