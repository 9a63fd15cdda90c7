"""Verbs of the command as processes of their own: one that ends by itself, and the verbs of `twinshore delay`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from twinshore.lab.mirror_process import COMMAND, VerbProcess, own_code
from twinshore.lab.processes import LabError


def run_verb(words: Sequence[str], settings: Path, *, command: str = COMMAND, within_s: float = 60.0) -> str:
    """Returns the output of `twinshore WORDS`. Raises LabError on failure."""
    asked = [sys.executable, "-m", command, *words, "--settings", str(settings)]
    environment = {**os.environ, **own_code()}
    done = subprocess.run(
        asked, cwd=settings.parent, env=environment, capture_output=True, text=True, timeout=within_s, check=False
    )
    if done.returncode:
        said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise LabError("lab.process-ended", process=f"twinshore {' '.join(words)}", exit_code=done.returncode, log=said)
    return done.stdout


# The default: on a machine with everything else on it, a shorter period leaves too little time.
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
    values = {**DELAY, "folder": f'"{folder / "delay"}"', **(delay or {})}
    return "[delay]\n" + "\n".join(f"{name} = {value}" for name, value in values.items()) + "\n"


class Verb(VerbProcess):
    def __init__(self, folder: Path, name: str, settings: str) -> None:
        file = folder / f"{name}.toml"
        file.write_text(settings, encoding="utf-8")
        super().__init__(("delay", name), file, folder / f"{name}.log")


def until(holds: Callable[[], bool], within_s: float, what: str, said: Callable[[], str]) -> float:
    """Waits until `holds`; returns the seconds waited."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < within_s, f"not within {within_s} s: {what}\n{said()[-3000:]}"
        time.sleep(0.05)
    return time.monotonic() - began_s
