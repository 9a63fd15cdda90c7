"""CPU and memory of a process and of what it starts, measured on processes that burn a known amount."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from bench.kit.tree import ProcessTree, machine_cpu_s, own_cpu_s

BURN_S = 0.3
BURN = f"""
import time
def burn():
    while time.process_time() < {BURN_S}: pass
"""
# One child burns and dies, one burns and stays, and the parent burns besides.
PARENT = f"""{BURN}
import subprocess, sys
code = {BURN!r} + "burn()"
subprocess.run([sys.executable, "-S", "-c", code])
staying = subprocess.Popen([sys.executable, "-S", "-c", code + "; time.sleep(60)"])
burn()
print("burnt", flush=True)
time.sleep(60)
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[str]]:
    """The parent, once it has burnt; ended afterwards with all that it started."""
    with subprocess.Popen([sys.executable, "-S", "-c", PARENT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "burnt\n"
        tree = ProcessTree(process.pid)
        yield process
        tree.kill()


def test_a_tree_costs_what_the_dead_and_the_living_have_burnt(family: subprocess.Popen[str]) -> None:
    tree = ProcessTree(family.pid)
    deadline = time.monotonic() + 30
    while tree.cpu_s() < 3 * BURN_S - 0.1 and time.monotonic() < deadline:
        time.sleep(0.05)
    # Starting three interpreters is not free, and a clock tick is 10 ms.
    assert 3 * BURN_S - 0.1 <= tree.cpu_s() < 3 * BURN_S + 0.6
    assert BURN_S - 0.1 <= own_cpu_s(family.pid) < BURN_S + 0.4


def test_shared_pages_count_once(family: subprocess.Popen[str]) -> None:
    alone = psutil.Process(family.pid).memory_full_info()
    assert 0 < ProcessTree(family.pid).memory_mb() * 1e6 < 3 * alone.rss


def test_nothing_of_a_killed_tree_is_left(family: subprocess.Popen[str]) -> None:
    children = psutil.Process(family.pid).children()
    assert children
    tree = ProcessTree(family.pid)
    tree.kill()
    family.wait(10)
    assert not any(child.is_running() for child in children)
    assert tree.cpu_s() == 0
    assert own_cpu_s(family.pid) == 0


def test_the_machine_works_at_least_as_much_as_we_do() -> None:
    before_s, own_s = machine_cpu_s(), time.process_time()
    while time.process_time() - own_s < BURN_S:
        pass
    # The kernel books idle time a tick late.
    assert machine_cpu_s() - before_s >= BURN_S - 0.1
