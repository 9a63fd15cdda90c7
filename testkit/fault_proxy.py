"""A TCP proxy that simulates network faults, in a separate process to be independent of this one's GIL."""

from __future__ import annotations

import json
import os
import select
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple, Self

from twinshore.lab.ports import free_port
from twinshore.lab.processes import ChildProcess, LabError, start_child

_WORKER = str(Path(__file__).with_name("proxy_worker.py"))
_ANSWER_WITHIN_S = 10.0


class ProxyCounters(NamedTuple):
    """Bytes delivered each way since the start, and connections now and in all."""

    bytes_to_target: int
    bytes_to_source: int
    connections: int
    accepted: int


class FaultProxy:
    """Listens on loopback at `port` and forwards to the target, with faults on request. Thread-safe."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.port = free_port()
        self.target = (target_host, target_port)
        self._delay_ms = 0.0
        self._bytes_per_s = 0.0
        self._for_each = False
        self._mode = "forward"
        self._guard = threading.Lock()
        command = [sys.executable, "-I", "-S", _WORKER, str(self.port), target_host, str(target_port)]
        folder = Path(tempfile.gettempdir())
        self._child: ChildProcess = start_child(command, folder=folder, pipes=True)
        self._apply()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._child.pid

    def set_delay_ms(self, one_way: float) -> None:
        """Delays every byte each way: half a round trip."""
        self._delay_ms = one_way
        self._apply()

    def set_bandwidth(self, bytes_per_s: float, *, for_each: bool = False) -> None:
        """Limits the rate each way, shared by all connections or `for_each`; 0: no limit."""
        self._bytes_per_s, self._for_each = bytes_per_s, for_each
        self._apply()

    def cut(self) -> None:
        """Resets every connection and refuses new ones, until `heal`."""
        self._mode = "cut"
        self._apply()

    def half_open(self) -> None:
        """Silently drops every byte until `heal`; connections stay up, new ones too."""
        self._mode = "half-open"
        self._apply()

    def heal(self) -> None:
        """Forwards again, at the set delay and rate. Connections that lost bytes are reset."""
        self._mode = "forward"
        self._apply()

    def counters(self) -> ProxyCounters:
        return self._apply()

    def stop(self) -> None:
        self._child.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _apply(self) -> ProxyCounters:
        with self._guard:
            order = {
                "mode": self._mode,
                "delay_s": self._delay_ms / 1000,
                "bytes_per_s": self._bytes_per_s,
                "for_each": self._for_each,
            }
            try:
                os.write(self._child.stdin, json.dumps(order).encode() + b"\n")
            except OSError as error:
                raise LabError(f"the fault proxy at {self.address} has ended") from error
            answer = json.loads(self._line())
        names = ProxyCounters._fields
        return ProxyCounters(*(int(answer[name]) for name in names))

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._child.stdout], [], [], _ANSWER_WITHIN_S)
            got = os.read(self._child.stdout, 65_536) if ready else b""
            if not got:
                raise LabError(f"the fault proxy at {self.address} does not answer")
            line += got
        return line
