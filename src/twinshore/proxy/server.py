"""Runs the proxy: one process, or a supervisor with workers on the same ports.

A serving process has watcher, listeners and client connections in one event loop. The supervisor starts a worker for
each core, restarts those that end, and ends all in good order.

`python -m twinshore.proxy` is a worker. It reads its task from standard input, and ends in good order once that closes.
Its messages are lines on standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from uuid import uuid4

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from twinshore.config.errors import ConfigError, TwinshoreError
from twinshore.config.model import Cluster
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections import log as log_settings
from twinshore.config.sections import near
from twinshore.config.sections.proxy import SECTION, START_AFTER_ALL, ProxySettings
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.proxy.auth import Authenticator
from twinshore.proxy.broker_connection import shrink_tls_buffers
from twinshore.proxy.cluster_view import ClusterWatcher, HomesUpdate, HomeWatcher
from twinshore.proxy.context import ProxyContext
from twinshore.proxy.core.breakers import TrafficAlarms
from twinshore.proxy.core.follower_fetch import FollowerFetch, FollowerFetchRules, NetworkTable
from twinshore.proxy.core.limits import ByteQuotas, ConnectionLimits, RequestMemory
from twinshore.proxy.core.model import BrokerAddressing, NewTopicRules, RoutingTable, check_cluster_marks
from twinshore.proxy.core.traffic import TrafficTable, TrafficTotals
from twinshore.proxy.lazy_store import LazyStore
from twinshore.proxy.listeners import LISTENERS_INTERVAL_S, Listeners
from twinshore.proxy.reporting import HOUR_MS, FlowDeltas, ProxyCollector, TrafficReporter, TrafficTopic
from twinshore.proxy.store_sync import MirrorLagPoller, ResetSync, StoreSync
from twinshore.runtime.http import MetricsServer, bind_error
from twinshore.runtime.logging import LOG_FIELDS, JsonFormatter, write_log
from twinshore.runtime.process import disable_hypothesis, on_shutdown_signal, shutdown_signals
from twinshore.state.core.proxy_values import ProxyInstanceRow

log = logging.getLogger(__name__)

FAILED_EXIT_CODE: Final = 2


class WorkerMessage(StrEnum):
    """The first token of a line. LOG: a log line, as JSON; HEALTH: the metrics port; READY: clients are admitted;
    HEARTBEAT: the loop runs.
    """

    LOG = "said"
    HEALTH = "health"
    READY = "serves"
    HEARTBEAT = "beat"


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """A worker's task, with the supervisor's settings."""

    settings: Settings
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Worker:
    """This worker process; `tell` sends the supervisor a message."""

    number: int
    count: int
    tell: Callable[[WorkerMessage, str], None]

    @property
    def name(self) -> str:
        return f"process {self.number} of {self.count}"


def parse_worker_message(line: str) -> tuple[WorkerMessage, str]:
    """Parse a line. Other output, such as a traceback, is a LOG message."""
    first, _, rest = line.rstrip("\n").partition(" ")
    try:
        return WorkerMessage(first), rest
    except ValueError:
        return WorkerMessage.LOG, line.rstrip("\n")


class _LogMessage(JsonFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{WorkerMessage.LOG} {super().format(record)}"


def relay_log_line(number: int, text: str) -> None:
    """Log a worker's line with its level, logger and fields. Other output is a warning."""
    try:
        values = json.loads(text)
        level, name, said = logging.getLevelNamesMapping()[values["level"].upper()], values["logger"], values["message"]
        fields = {field: values[field] for field in LOG_FIELDS if field in values}
    except (ValueError, TypeError, KeyError):
        level, name, said, fields = logging.WARNING, __name__, text, {}
    logging.getLogger(name).log(level, f"process {number}: {said}", extra=fields)


def main() -> None:
    """Run a worker until the supervisor ends it or is gone."""
    disable_hypothesis()
    from twinshore.proxy.operations.run import serve

    task = pickle.load(sys.stdin.buffer)  # from the supervisor
    assert isinstance(task, WorkerConfig)
    threading.Thread(target=_end_with_keeper, name="keeper", daemon=True).start()
    with write_log(task.settings.of(log_settings.SECTION), _LogMessage()) as lines:

        def tell(word: WorkerMessage, text: str = "") -> None:
            lines.put(f"{word} {text}")

        code = 0
        try:
            serve(task.settings, Worker(task.number, task.count, tell))
        except TwinshoreError as error:
            log.error(str(error))
            code = FAILED_EXIT_CODE
    sys.exit(code)


def _end_with_keeper() -> None:
    # Past Python's own buffer, whose lock would be held as the process ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


# Groups with members at work that are named to a mover of groups.
NAMED_MAX: Final = 5
# The time to answer what was read, once the process is to end.
DRAIN_TIMEOUT_S: Final = 10.0


def serve(settings: Settings, store: LazyStore, part: Worker | None = None) -> None:
    """Serve until Ctrl-C, SIGTERM or SIGHUP. ConfigError if the address or a certificate cannot be used.

    `part`: this process as one of several.
    """
    clusters = select_clusters(settings)
    shrink_tls_buffers()
    # Python's own loop: uvloop saves nothing of a small request, and takes 2.6 times the CPU for what consumers read.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(_Serving(settings, clusters, store, part).run())


def select_clusters(settings: Settings) -> list[Cluster]:
    """Returns the clusters behind the proxy. ConfigError if there are none."""
    clusters = [settings.cluster(name) for name in settings.of(SECTION).clusters]
    if not clusters:
        raise ConfigError("proxy.no-clusters")
    return clusters


def build_addressing(asked: ProxySettings, clusters: Sequence[Cluster]) -> BrokerAddressing:
    names = tuple(one.name for one in clusters)
    new_topics = NewTopicRules(asked.new_topics, asked.new_topics_by_name)
    return BrokerAddressing(
        asked.advertised_host,
        asked.port,
        names,
        asked.nodes_per_cluster,
        asked.cluster_id,
        new_topics,
        asked.node_hosts,
    )


def build_follower_fetch(asked: near.NearSettings, clusters: Sequence[Cluster]) -> FollowerFetch:
    sites = {one.name: one.site for one in clusters}
    rules = FollowerFetchRules(sites, asked.next_sites, asked.behind_s_max, asked.own_topics)
    return FollowerFetch(rules, NetworkTable(asked.networks))


def _topic_of(asked: ProxySettings, clusters: list[Cluster]) -> TrafficTopic | None:
    if not asked.traffic_topic:
        return None
    (cluster,) = [one for one in clusters if one.name == (asked.traffic_cluster or clusters[0].name)]
    return TrafficTopic(cluster, asked.traffic_topic, asked.traffic_keep_hours * HOUR_MS)


class _Serving:
    def __init__(
        self,
        settings: Settings,
        clusters: list[Cluster],
        store: LazyStore,
        part: Worker | None,
    ) -> None:
        self._asked, self._deaf, self._part = settings.of(SECTION), RepeatFilter(log), part
        self._store = store
        asked = self._asked
        layout = build_addressing(asked, clusters)
        gate = Authenticator(asked, clusters)
        rules = build_follower_fetch(settings.of(near.SECTION), clusters)
        self._lookout = ClusterWatcher(
            *(clusters, layout, store),
            follows=asked.follows_switches,
            start_all=asked.start == START_AFTER_ALL,
            is_own=rules.rules.is_own,
        )
        self._house = ProxyContext(layout, self._lookout.seen, self._lookout.news, gate)
        self._house.quotas = ByteQuotas(asked.client_bytes_s)
        self._house.budget = RequestMemory(asked.queued_bytes_max)
        self._house.crowd = ConnectionLimits(asked.clients_max, asked.clients_of_one_address_max)
        self._totals, self._alarms = TrafficTotals(), TrafficAlarms(asked.alarms)
        self._house.flows = TrafficTable(kept=self._alarms.place_of)
        self._house.near = rules
        if asked.balancers:
            self._house.balancers = NetworkTable((one, one) for one in asked.balancers)
        self._levels = MirrorLagPoller(clusters, self._house.near, lambda: self._house.seen, store)
        self._doors = Listeners(asked.address, self._house, shared=part is not None)
        name = f"proxy {asked.advertised_host}:{asked.port}"
        if part is not None:
            name = f"{name}, {part.name}"
        self._follows = HomeWatcher(name, clusters, store) if asked.follows_switches else None
        serves = ProxyInstanceRow(uuid4().hex, name, socket.gethostname(), asked.port, wall_ms(), 0, wall_ms())
        house = self._house
        resets = ResetSync(house.resets, lambda way: house.in_flight_writes[way] > 0, lambda: house.changed(house.seen))
        memory = Path(asked.memory_file) if asked.memory_file else None
        self._control = StoreSync(store.get, house.breakers, serves, resets, memory)
        self._telling = TrafficReporter(
            store.get,
            house.flows,
            serves,
            every_s=asked.traffic_every_s,
            keep_hours=asked.traffic_keep_hours,
            heard=self._heard,
            topic=_topic_of(asked, clusters),
        )
        self._asked_to_end, self._news = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unforeseen)
        for number in shutdown_signals():
            with suppress(RuntimeError):  # where signals cannot be handled, as in a test's thread
                loop.add_signal_handler(number, self._asked_to_end.set)
        await self._doors.bind()
        server = self._metrics_server()
        self._lookout.changed = self._changed
        if self._follows is not None:
            self._house.heard(dict.fromkeys(self._house.layout.clusters, -math.inf))
            self._house.quiet = self._follows.quiet
            self._follows.changed = self._led
            self._follows.start()
        tasks: list[asyncio.Task[None]] = []
        try:
            tasks.append(loop.create_task(self._begin(server)))
            ending = loop.create_task(self._ended())
            await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done() and not ending.done():
                tasks[0].result()
            ending.cancel()
            await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            await self._telling.end()
            await self._control.end()
            self._lookout.stop()
            self._lookout.close()
            self._levels.close()
            if self._follows is not None:
                await loop.run_in_executor(None, self._follows.stop)
            self._house.gate.close()
            if server is not None:
                server.close()
        log.info("ended")

    async def _ended(self) -> None:
        await self._asked_to_end.wait()

    async def _begin(self, server: MetricsServer | None) -> None:
        """Open the ports once clusters are known, and then those of new brokers.

        API versions are unknown until a cluster answers. Without home records, readers would go to old homes and commit
        there.
        """
        await asyncio.gather(self._lookout.first(), self._control.first())
        check_cluster_marks(
            {name: one.cluster_id for name, one in self._lookout.seen.clusters.items() if one.has_answered}
        )
        self._store.check_version()  # a store that is only away is awaited
        tasks = (self._lookout.look(), self._control.run(), self._levels.run(), self._telling.run())
        looking = [asyncio.create_task(one) for one in tasks]
        try:
            while not (self._house.seen.offers and (self._follows is None or self._follows.has_read_home_records())):
                await self._wait_for_news(server)
            await self._doors.open(self._house.seen)
            # What is loaded by now stays: collecting it would delay clients now and then.
            gc.collect()
            gc.freeze()
            await self._doors.open_first()
            first = f"{self._asked.address}:{self._asked.port}"
            log.info(f"serves clients of {', '.join(self._house.layout.clusters)} at {first}")
            self._tell(WorkerMessage.READY)
            while True:
                await self._wait_for_news(server)
                await self._doors.open(self._house.seen)
        finally:
            for one in looking:
                one.cancel()

    async def _wait_for_news(self, server: MetricsServer | None) -> None:
        """Wait at most a second, and check time limits."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LISTENERS_INTERVAL_S):
                await self._news.wait()
        self._news.clear()
        self._house.look()
        if self._follows is not None and (why := self._follows.trouble()):
            self._deaf.say(why)
        else:
            self._deaf.well("all clusters are heard again: writers go on")
        self._tell(WorkerMessage.HEARTBEAT)
        if server is not None:
            server.beat()

    def _tell(self, word: WorkerMessage, text: str = "") -> None:
        if self._part is not None:
            self._part.tell(word, text)

    def _changed(self, seen: RoutingTable) -> None:
        self._house.changed(seen)
        self._news.set()

    def _led(self, led: HomesUpdate) -> None:
        """Take home records, and tell switches at once which held topics have no writes in flight."""
        assert self._follows is not None
        was_deaf = self._house.heard(led.until_s)
        self._lookout.led(led)
        self._follows.at_work(self._house.at_work.some(NAMED_MAX) if self._house.seen.groups_gathering else ())
        if was_deaf:
            self._house.changed(self._house.seen)
        for topic in self._follows.held():
            if self._house.seen.writes_paused(topic) and not self._house.in_flight_writes[topic]:
                self._follows.quiet(topic)

    async def _drain(self) -> None:
        """Answer what was read, for a limited time, then disconnect."""
        self._doors.close()
        self._house.drain()
        until_s = asyncio.get_running_loop().time() + DRAIN_TIMEOUT_S
        while self._house.guests and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(0.05)
        if self._house.guests:
            log.warning(f"{len(self._house.guests)} clients were not answered within {DRAIN_TIMEOUT_S:g} s")
        for guest in list(self._house.guests):
            guest.hang_up("the proxy ends")

    def _heard(self, grown: FlowDeltas, lasted_s: float) -> None:
        """Take a window of traffic."""
        self._totals.take(grown)
        for one in self._alarms.look(grown, lasted_s, steady_s()):
            log.warning(one.sentence)

    def _metrics_server(self) -> MetricsServer | None:
        """Start the metrics server. A worker's is for the supervisor, which asks all workers."""
        address, port = self._asked.metrics_address, self._asked.metrics_port
        if self._part is not None:
            address, port = "127.0.0.1", 0
        elif not port:
            return None
        collector = ProxyCollector(self._house, self._doors, self._totals, self._alarms)
        server = MetricsServer(
            address,
            port,
            collector,
            collector.clusters,
            section="proxy",
            of="clusters",
            trouble=lambda _: collector.trouble(),
        )
        self._tell(WorkerMessage.HEALTH, str(server.port))
        return server

    def _unforeseen(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Log an uncaught error. The affected connection has ended; others continue."""
        error = context.get("exception")
        what = describe_error(error) if isinstance(error, Exception) else ""
        log.error(f"{context.get('message', 'unforeseen')}: {what}")


# A worker sends a heartbeat each second, but none while it loads and looks at the clusters for the first time.
WORKER_START_TIMEOUT_S: Final = 120.0
WORKER_STALL_TIMEOUT_S: Final = 15.0
# Restart delays, each longer than the last, until a worker has lasted.
RESTART_DELAY_MIN_S: Final = 1.0
RESTART_DELAY_MAX_S: Final = 30.0
RESTART_DELAY_RESET_S: Final = 60.0
# The time to answer what was read, and to leave clusters and store.
WORKER_STOP_TIMEOUT_S: Final = 30.0
WORKER_METRICS_TIMEOUT_S: Final = 2.0
# Workers are on this machine, so a web proxy of the environment is not used.
_BY_ITSELF: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SUPERVISOR_INTERVAL_S: Final = 0.2


class WorkerProcess:
    """A worker as the supervisor runs it. `port`: of its metrics, 0 while unknown. `starts`: number of starts."""

    def __init__(self, task: WorkerConfig) -> None:
        self.number, self.starts, self.port, self.serves = task.number, 0, 0, False
        self._task = pickle.dumps(task)
        self._child: subprocess.Popen[bytes] | None = None
        self._since_s = self._heard_s = self._due_s = 0.0
        self._again_s = RESTART_DELAY_MIN_S

    @property
    def pid(self) -> int:
        """The process id; 0 while there is none."""
        return self._child.pid if self._child is not None else 0

    def start(self) -> None:
        """Start in a separate session, since the supervisor handles Ctrl-C."""
        command = [sys.executable, "-m", "twinshore.proxy"]
        pipe = subprocess.PIPE
        self._since_s = steady_s()
        try:
            child = self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:  # the machine lacks resources now
            again = self._comes_again(self._since_s)
            log.warning(f"process {self.number} cannot be started: {error.strerror}; it is tried again in {again:g} s")
            return
        self.starts += 1
        self._heard_s = self._since_s + WORKER_START_TIMEOUT_S - WORKER_STALL_TIMEOUT_S
        threading.Thread(target=self._hear, args=(child,), name=f"part {self.number}", daemon=True).start()
        assert child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already
            child.stdin.write(self._task)
            child.stdin.flush()

    def look(self) -> None:
        """Kill the worker if its loop stalls, and restart one that has ended."""
        now_s = steady_s()
        if self._child is None:
            if now_s >= self._due_s:
                self.start()
        elif (code := self._child.poll()) is not None:
            self._is_gone(code, now_s)
        elif now_s > self._heard_s + WORKER_STALL_TIMEOUT_S:
            log.warning(f"process {self.number} stands still, and keeps its clients waiting: it is killed")
            self._child.kill()

    def _is_gone(self, code: int, now_s: float) -> None:
        self._let_go()
        if now_s - self._since_s >= RESTART_DELAY_RESET_S:
            self._again_s = RESTART_DELAY_MIN_S
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        again = self._comes_again(now_s)
        log.warning(f"process {self.number} has ended unasked, {how}: it is started again in {again:g} s")

    def _comes_again(self, now_s: float) -> float:
        """Schedule a restart, and return the delay in seconds."""
        again_s = self._again_s
        self._due_s = now_s + again_s
        self._again_s = min(2 * again_s, RESTART_DELAY_MAX_S)
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
                word, text = parse_worker_message(line.decode(errors="replace"))
                self._heard_s = max(self._heard_s, steady_s())
                match word:
                    case WorkerMessage.LOG:
                        relay_log_line(self.number, text)
                    case WorkerMessage.HEALTH:
                        self.port = int(text)
                    case WorkerMessage.READY:
                        self.serves = True
                    case WorkerMessage.HEARTBEAT:
                        self._heard_s = steady_s()

    def ask_to_end(self) -> None:
        """Ask the worker to answer what was read, and end."""
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def end(self) -> None:
        """Wait for the end, and kill the worker after a timeout."""
        if self._child is None:
            return
        try:
            self._child.wait(WORKER_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log.warning(f"process {self.number} has not ended within {WORKER_STOP_TIMEOUT_S:g} s: it is killed")
            self._child.kill()
            self._child.wait()
        self._let_go()


class WorkersCollector(Collector):
    """Collects the metrics of all workers that answer."""

    def __init__(self, parts: Sequence[WorkerProcess]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("twinshore_proxy_processes", "configured processes", value=len(self._parts))
        serve = sum(one.serves for one in self._parts)
        yield GaugeMetricFamily("twinshore_proxy_processes_running", "processes that let clients in", value=serve)
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
        """Returns each worker's state, for /health."""
        return {str(one.number): self._stands(one) for one in self._parts}

    def _stands(self, one: WorkerProcess) -> dict[str, Any]:
        code, text = _asked(one, "health")
        told = json.loads(text) if text else {"ok": False, "says": "it does not answer"}
        return {"pid": one.pid, "serves": one.serves, **told, "ok": code == 200}


def describe_unhealthy_workers(processes: Mapping[str, Any]) -> str:
    """Returns why to restart the proxy, else empty. One healthy worker is enough, since others are restarted.

    Only the given states count: a second request could get other answers.
    """
    if any(one["serves"] and one["ok"] for one in processes.values()):
        return ""
    says = "; ".join(f"{number}: {one['says']}" for number, one in processes.items())
    return f"no process is well: {says}"


def _asked(one: WorkerProcess, page: str) -> tuple[int, str]:
    if not one.port:
        return 0, ""
    with suppress(OSError, HTTPException):
        try:
            with _BY_ITSELF.open(f"http://127.0.0.1:{one.port}/{page}", timeout=WORKER_METRICS_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
    return 0, ""


def supervise_workers(settings: Settings, count: int) -> None:
    """Run until Ctrl-C, SIGTERM or SIGHUP. ConfigError if no worker could start."""
    asked = settings.of(SECTION)
    # Else each worker would report errors again and again.
    Authenticator(asked, select_clusters(settings)).close()
    _must_be_free(asked)
    parts = [WorkerProcess(WorkerConfig(settings, number, count)) for number in range(1, count + 1)]
    server = _server(asked, parts)
    stop = threading.Event()
    on_shutdown_signal(stop.set)
    served = 0
    try:
        while not stop.wait(SUPERVISOR_INTERVAL_S):
            for one in parts:
                one.look()
            if (serve := sum(one.serves for one in parts)) != served:
                served = serve
                log.info(f"{serve} of {count} processes serve clients at {asked.address}:{asked.port}")
            if server is not None:
                server.beat()
    finally:
        for one in parts:
            one.ask_to_end()
        for one in parts:
            one.end()
        if server is not None:
            server.close()
    log.info("ended")


def _must_be_free(asked: ProxySettings) -> None:
    """Check that the port is free, by a socket without SO_REUSEPORT, which would share it."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("proxy.port-not-shareable")
    kind = socket.AF_INET6 if ":" in asked.address else socket.AF_INET
    try:
        with socket.socket(kind) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((asked.address, asked.port))
    except OSError as error:
        raise bind_error("proxy", asked.address, asked.port, error) from error


def _server(asked: ProxySettings, parts: Sequence[WorkerProcess]) -> MetricsServer | None:
    if not asked.metrics_port:
        return None
    joined = WorkersCollector(parts)
    return MetricsServer(
        asked.metrics_address,
        asked.metrics_port,
        joined,
        joined.processes,
        section="proxy",
        of="processes",
        trouble=describe_unhealthy_workers,
    )
