"""What asks a process to end in good order, where it goes on and on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
import threading
from twinshore.service.signals import hear
stop = threading.Event()
hear(stop.set)
print("waits", flush=True)
print("stopped in good order" if stop.wait(60) else "never asked")
"""


def waiting(*before: str) -> subprocess.Popen[str]:
    """A process that hears, once it does."""
    child = subprocess.Popen([*before, sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "waits\n"
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_sigterm_and_a_closed_terminal_ask_for_a_good_end(number: signal.Signals) -> None:
    child = waiting()
    child.send_signal(number)
    said, _ = child.communicate(timeout=60)
    assert (said, child.returncode) == ("stopped in good order\n", 0)


def test_what_was_told_to_outlive_its_terminal_does_and_ends_when_it_is_asked() -> None:
    child = waiting("/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    child.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    child.send_signal(signal.SIGTERM)
    said, _ = child.communicate(timeout=60)
    assert (said, child.returncode) == ("stopped in good order\n", 0)
