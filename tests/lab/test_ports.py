"""Ports are given once, also to several processes at the same time."""

from __future__ import annotations

import subprocess
import sys

from twinshore.lab import ports
from twinshore.lab.ports import free_port

_GIVE_UNTIL_TOLD = """
import sys
from twinshore.lab import ports
ports._FIRST, ports._LAST = int(sys.argv[1]), int(sys.argv[2])
print(*(ports.free_port() for _ in range(int(sys.argv[3]))), flush=True)
sys.stdin.read()
"""


def _given_by_another(first: int, last: int, count: int) -> tuple[subprocess.Popen[str], set[int]]:
    command = [sys.executable, "-c", _GIVE_UNTIL_TOLD, str(first), str(last), str(count)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    return other, {int(word) for word in other.stdout.readline().split()}


def test_two_processes_are_never_given_the_same_port() -> None:
    """Nobody listens on any of these 40 ports, so only the claims keep the two halves apart."""
    first, last = 11_000, 11_040
    other, theirs = _given_by_another(first, last, 20)
    try:
        ours = {port for port in range(first, last) if ports._claimed(port)}
        assert len(theirs) == 20
        assert not ours & theirs
    finally:
        other.communicate("")
    assert all(ports._claimed(port) for port in theirs), "whoever ends lets its ports go"


def test_a_port_is_given_once() -> None:
    given = [free_port() for _ in range(50)]
    assert len(set(given)) == 50
