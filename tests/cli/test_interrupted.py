"""Ctrl-C ends any verb with one plain line and exit code 130, never with a traceback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from twinshore.cli.app import find_interrupt
from twinshore.lab.ports import free_port
from twinshore.runtime.process import INTERRUPTED_EXIT_CODE, STOPPED_MESSAGE, print_interrupted

# The verbs that wait for clusters and have no end of their own for Ctrl-C; all come out of the command's one entry.
WAITS_S = 2.0
VERBS = ("mirror plan", "advise --cluster east", "topology")


def command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "twinshore.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("silent", [False, True], ids=["refuses", "silent"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_waits_for_a_cluster_says_one_line(verb: str, silent: bool, tmp_path: Path) -> None:
    """One that nobody serves, or one that takes the connection and never answers."""
    file = tmp_path / "twinshore.toml"
    store = f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n'
    # The kernel takes connections, and nobody reads them.
    with socket.create_server(("127.0.0.1", 0)) as east, socket.create_server(("127.0.0.1", 0)) as west:
        ports = {"east": east.getsockname()[1], "west": west.getsockname()[1]} if silent else {}
        clusters = "".join(
            f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{ports.get(name) or free_port()}"]\n'
            for name in ("east", "west")
        )
        file.write_text(f'{store}{clusters}[links."east->west"]\n', encoding="utf-8")
        one_line_behind_ctrl_c(verb, file)


def one_line_behind_ctrl_c(verb: str, file: Path) -> None:
    with command(*verb.split(), "--settings", str(file)) as running:
        time.sleep(WAITS_S)  # On a slow machine it still loads then, and says the same.
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=20)
    # Where the signal meets Python in the making of a dataclass, as it still loads, Python ends itself by the signal
    # behind all else: a shell says the same number of both.
    code = 128 - running.returncode if running.returncode < 0 else running.returncode
    assert (code, said.splitlines()) == (INTERRUPTED_EXIT_CODE, [STOPPED_MESSAGE])


def test_a_verb_that_still_loads_says_the_same() -> None:
    code = "from twinshore.runtime.process import exit_on_interrupt as end; end(); print('on', flush=True); input()"
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None and running.stdout.readline() == "on\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert (running.returncode, said) == (INTERRUPTED_EXIT_CODE, f"{STOPPED_MESSAGE}\n")


def test_what_a_stopped_verb_leaves_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """Typer makes an exit of Ctrl-C, behind which the verb's own word lies."""
    verb = typer.Typer()

    @verb.command()
    def stop() -> None:
        raise KeyboardInterrupt("some places may be set")

    with pytest.raises(SystemExit) as ended:
        verb([])
    found = find_interrupt(ended.value)
    assert found is not None
    print_interrupted(*found.args)
    assert capfd.readouterr().err.endswith(": some places may be set\n")
    assert find_interrupt(SystemExit(1)) is None
