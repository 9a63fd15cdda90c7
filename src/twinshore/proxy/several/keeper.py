"""Whoever looks after the parts: starts one for each core, and again where one ends; ends them all in good order."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from twinshore.fleet import ConfigError
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections.proxy import SECTION, ProxySettings
from twinshore.kafka.clock import steady_s
from twinshore.proxy.gate import Gate
from twinshore.proxy.serving import chosen
from twinshore.proxy.several.part import Task, Word, read_word
from twinshore.service.server import MetricsServer, not_served
from twinshore.service.signals import hear

# A part says each second that its loop goes round. While it is loaded and looks at the clusters for the first time it
# says nothing.
BEGINS_S: Final = 120.0
STANDS_STILL_S: Final = 15.0
# How soon one that has ended is started again: each time later, until one has lasted.
AGAIN_S: Final = 1.0
AGAIN_S_MAX: Final = 30.0
LASTED_S: Final = 60.0
# What it is given to answer what clients have asked, and to say goodbye to clusters and store.
END_S: Final = 30.0
PATIENCE_S: Final = 2.0
# Whatever web proxy the environment names, parts are on this machine.
_BY_ITSELF: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LOOK_S: Final = 0.2


class PartProcess:
    """A part as its keeper has it: started, heard, ended, and started again. `log` gets what it says. `port` is where
    it answers for itself, 0 while it does not; `starts` counts."""

    def __init__(self, task: Task, log: Callable[[str], None]) -> None:
        self.number, self.starts, self.port, self.serves = task.number, 0, 0, False
        self._task, self._log = pickle.dumps(task), log
        self._child: subprocess.Popen[bytes] | None = None
        self._since_s = self._heard_s = self._due_s = 0.0
        self._again_s = AGAIN_S

    @property
    def pid(self) -> int:
        """0 while there is none."""
        return self._child.pid if self._child is not None else 0

    def start(self) -> None:
        """Begins it. In a separate session, since Ctrl-C is its keeper's to hear."""
        command = [sys.executable, "-m", "twinshore.proxy.several"]
        pipe = subprocess.PIPE
        self._since_s = steady_s()
        try:
            child = self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:  # the machine has no room for it now
            again = self._comes_again(self._since_s)
            self._log(f"process {self.number} cannot be started: {error.strerror}; it is tried again in {again:g} s")
            return
        self.starts += 1
        self._heard_s = self._since_s + BEGINS_S - STANDS_STILL_S
        threading.Thread(target=self._hear, args=(child,), name=f"part {self.number}", daemon=True).start()
        assert child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already
            child.stdin.write(self._task)
            child.stdin.flush()

    def look(self) -> None:
        """Now and then: ends it where it stands still, and starts it where it has ended."""
        now_s = steady_s()
        if self._child is None:
            if now_s >= self._due_s:
                self.start()
        elif (code := self._child.poll()) is not None:
            self._is_gone(code, now_s)
        elif now_s > self._heard_s + STANDS_STILL_S:
            self._log(f"process {self.number} stands still, and keeps its clients waiting: it is killed")
            self._child.kill()

    def _is_gone(self, code: int, now_s: float) -> None:
        self._let_go()
        if now_s - self._since_s >= LASTED_S:
            self._again_s = AGAIN_S
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        again = self._comes_again(now_s)
        self._log(f"process {self.number} has ended unasked, {how}: it is started again in {again:g} s")

    def _comes_again(self, now_s: float) -> float:
        """In so many seconds."""
        again_s = self._again_s
        self._due_s = now_s + again_s
        self._again_s = min(2 * again_s, AGAIN_S_MAX)
        return again_s

    def _let_go(self) -> None:
        child, self._child, self.port, self.serves = self._child, None, 0, False
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _hear(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # the pipe is closed under it
            for line in child.stdout:
                if child is not self._child:
                    return
                word, text = read_word(line.decode(errors="replace"))
                self._heard_s = max(self._heard_s, steady_s())
                match word:
                    case Word.SAID:
                        self._log(f"process {self.number}: {text}")
                    case Word.HEALTH:
                        self.port = int(text)
                    case Word.SERVES:
                        self.serves = True
                    case Word.BEAT:
                        self._heard_s = steady_s()

    def ask_to_end(self) -> None:
        """It answers what was asked, and ends."""
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def end(self) -> None:
        """Waits until it has ended, and ends it by force where that takes too long."""
        if self._child is None:
            return
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._log(f"process {self.number} has not ended within {END_S:g} s: it is killed")
            self._child.kill()
            self._child.wait()
        self._let_go()


class Joined(Collector):
    """Asks each part whenever somebody asks here. One that does not answer is missing."""

    def __init__(self, parts: Sequence[PartProcess]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("twinshore_proxy_processes", "processes that are to serve", value=len(self._parts))
        serve = sum(one.serves for one in self._parts)
        yield GaugeMetricFamily("twinshore_proxy_processes_now", "processes that let clients in", value=serve)
        restarts = CounterMetricFamily("twinshore_proxy_restarts", "times it was started again", labels=["process"])
        for one in self._parts:
            restarts.add_metric([str(one.number)], max(0, one.starts - 1))
        yield restarts
        yield from self._of_parts()

    def _of_parts(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for one in self._parts:
            for told in text_string_to_metric_families(_asked(one, "metrics")[1]):
                metric = found.setdefault(told.name, Metric(told.name, told.documentation, told.type))
                for sample in told.samples:
                    metric.add_sample(sample.name, {**sample.labels, "process": str(one.number)}, sample.value)
        yield from found.values()

    def processes(self) -> dict[str, Any]:
        """How each part stands, for /health."""
        return {str(one.number): self._stands(one) for one in self._parts}

    def _stands(self, one: PartProcess) -> dict[str, Any]:
        code, text = _asked(one, "health")
        told = json.loads(text) if text else {"ok": False, "says": "it does not answer"}
        return {"pid": one.pid, "serves": one.serves, **told, "ok": code == 200}


def trouble(processes: Mapping[str, Any]) -> str:
    """Why the whole should be started again, by how each part stands; empty while one part is well, as its keeper sees
    to the others. Nobody is asked a second time: they may say something else."""
    if any(one["serves"] and one["ok"] for one in processes.values()):
        return ""
    says = "; ".join(f"{number}: {one['says']}" for number, one in processes.items())
    return f"no process is well: {says}"


def _asked(one: PartProcess, page: str) -> tuple[int, str]:
    if not one.port:
        return 0, ""
    with suppress(OSError, HTTPException):
        try:
            with _BY_ITSELF.open(f"http://127.0.0.1:{one.port}/{page}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
    return 0, ""


def keep(settings: Settings, count: int, log: Callable[[str], None]) -> None:
    """Until Ctrl-C, SIGTERM or SIGHUP. ConfigError where no part could begin."""
    asked = settings.of(SECTION)
    # Each part would say so by itself, again and again.
    Gate(asked, chosen(settings), lambda _: None).close()
    _must_be_free(asked)
    parts = [PartProcess(Task(settings, number, count), log) for number in range(1, count + 1)]
    server = _server(asked, parts)
    stop = threading.Event()
    hear(stop.set)
    served = 0
    try:
        while not stop.wait(LOOK_S):
            for one in parts:
                one.look()
            if (serve := sum(one.serves for one in parts)) != served:
                served = serve
                log(f"{serve} of {count} processes serve clients at {asked.address}:{asked.port}")
            if server is not None:
                server.beat()
    finally:
        for one in parts:
            one.ask_to_end()
        for one in parts:
            one.end()
        if server is not None:
            server.close()
    log("ended")


def _must_be_free(asked: ProxySettings) -> None:
    """Parts share a port with whoever is willing to: so it is asked for here by one who is not."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("[proxy] processes: this system lets no two processes serve at one port", hint="take 1")
    kind = socket.AF_INET6 if ":" in asked.address else socket.AF_INET
    try:
        with socket.socket(kind) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((asked.address, asked.port))
    except OSError as error:
        raise not_served("proxy", asked.address, asked.port, error) from error


def _server(asked: ProxySettings, parts: Sequence[PartProcess]) -> MetricsServer | None:
    if not asked.metrics_port:
        return None
    joined = Joined(parts)
    return MetricsServer(
        asked.metrics_address,
        asked.metrics_port,
        joined,
        joined.processes,
        section="proxy",
        of="processes",
        trouble=trouble,
    )
