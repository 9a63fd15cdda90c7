"""What asks a process to end in good order, where it goes on and on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("a_terminal")

WAITS = """
import threading
from twinshore.runtime.process import on_shutdown_signal
stop = threading.Event()
on_shutdown_signal(stop.set)
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


AMIDST = """
import os, signal, threading
from twinshore.runtime.process import on_shutdown_signal, catch_stop_request
with catch_stop_request() as asked:
    stop = asked.stop if {catch_stop_request} else threading.Event()
    {catch_stop_request} or on_shutdown_signal(stop.set)
    with stop._cond:
        os.kill(os.getpid(), signal.SIGTERM)
        {catch_stop_request} or os.kill(os.getpid(), signal.SIGHUP)
    print("stopped in good order" if stop.wait(60) else "never asked")
"""


@pytest.mark.parametrize("one", [True, False])
def test_who_is_asked_while_he_looks_whether_he_was_asked_does_not_wait_for_himself(one: bool) -> None:
    """A closed terminal says it twice: the second came in the midst of the first, and the mirror never ended."""
    code = AMIDST.replace("{heard}", str(one))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout, found.returncode) == ("stopped in good order\n", 0), found.stderr
