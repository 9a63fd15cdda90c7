"""Runs the proxy: one process, or a supervisor with workers on the same ports.

A serving process has watcher, listeners and client connections in one event loop. The supervisor starts a worker for
each core, restarts those that end, and ends all in good order.

`python -m twinshore.proxy` is a worker. It reads its task from standard input, and ends in good order once that closes.
Its messages are lines on standard output.
"""

from __future__ import annotations

import asyncio
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
from twinshore.config.frozen import PROXY_CLIENT_ID
from twinshore.config.model import Cluster
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections import log as log_settings
from twinshore.config.sections import near
from twinshore.config.sections.proxy import SECTION, START_AFTER_ALL, ProxySettings
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.protection.keeper import TICK_S, GateKeeper
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
from twinshore.runtime.live_settings import LiveSettings
from twinshore.runtime.logging import LOG_FIELDS, JsonFormatter, write_log
from twinshore.runtime.process import RestartPause, disable_hypothesis, on_shutdown_signal, shutdown_signals
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

        def tell(message: WorkerMessage, text: str = "") -> None:
            lines.put(f"{message} {text}")

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


def build_addressing(settings: ProxySettings, clusters: Sequence[Cluster]) -> BrokerAddressing:
    address, names = (settings.advertised_host, settings.port), tuple(cluster.name for cluster in clusters)
    new_topics = NewTopicRules(settings.new_topics, settings.new_topics_by_name)
    identity = settings.nodes_per_cluster, settings.cluster_id
    return BrokerAddressing(*address, names, *identity, new_topics, settings.node_hosts)


def build_near_rules(
    near_settings: near.NearSettings, clusters: Sequence[Cluster]
) -> tuple[FollowerFetchRules, NetworkTable]:
    sites = {cluster.name: cluster.site for cluster in clusters}
    rules = FollowerFetchRules(sites, near_settings.next_sites, near_settings.behind_s_max, near_settings.own_topics)
    return rules, NetworkTable(near_settings.networks)


def _topic_of(proxy_settings: ProxySettings, clusters: list[Cluster]) -> TrafficTopic | None:
    if not proxy_settings.traffic_topic:
        return None
    (cluster,) = [one for one in clusters if one.name == (proxy_settings.traffic_cluster or clusters[0].name)]
    return TrafficTopic(cluster, proxy_settings.traffic_topic, proxy_settings.traffic_keep_hours * HOUR_MS)


class _Serving:
    def __init__(self, settings: Settings, clusters: list[Cluster], store: LazyStore, part: Worker | None) -> None:
        self._settings, self._deaf, self._part = settings.of(SECTION), RepeatFilter(log), part
        self._store = store
        proxy_settings = self._settings
        addressing = build_addressing(proxy_settings, clusters)
        gate = Authenticator(proxy_settings, clusters)
        self._near = settings.of(near.SECTION)
        near_reads = FollowerFetch(*build_near_rules(self._near, clusters))
        follows, start_all = proxy_settings.follows_switches, proxy_settings.start == START_AFTER_ALL
        self._lookout = ClusterWatcher(
            clusters,
            addressing,
            store,
            follows=follows,
            start_all=start_all,
            is_own=lambda topic: near_reads.rules.is_own(topic),
        )
        self._context = ProxyContext(addressing, self._lookout.table, self._lookout.news, gate)
        self._context.quotas = ByteQuotas(proxy_settings.client_bytes_s)
        self._context.budget = RequestMemory(proxy_settings.queued_bytes_max)
        self._context.crowd = ConnectionLimits(proxy_settings.clients_max, proxy_settings.clients_of_one_address_max)
        self._totals, self._alarms = TrafficTotals(), TrafficAlarms(proxy_settings.alarms)
        self._context.traffic = TrafficTable(kept=self._alarms.place_of)
        self._context.follower_fetch = near_reads
        if proxy_settings.balancers:
            self._context.balancers = NetworkTable((one, one) for one in proxy_settings.balancers)
        self._levels = MirrorLagPoller(clusters, self._context.follower_fetch, lambda: self._context.table, store)
        self._clusters = clusters
        self._doors = Listeners(proxy_settings.address, self._context, shared=part is not None)
        name = f"proxy {proxy_settings.advertised_host}:{proxy_settings.port}"
        name = f"{name}, {part.name}" if part is not None else name
        self._follows = HomeWatcher(name, clusters, store) if follows else None
        serves = ProxyInstanceRow(uuid4().hex, name, socket.gethostname(), proxy_settings.port, wall_ms(), 0, wall_ms())
        context = self._context
        resets = ResetSync(
            context.resets, lambda way: context.in_flight_writes[way] > 0, lambda: context.changed(context.table)
        )
        memory = Path(proxy_settings.memory_file) if proxy_settings.memory_file else None
        self._live = LiveSettings(settings, self._obey)
        self._control = StoreSync(store.get, context.breakers, serves, resets, memory, self._live)
        self._telling = TrafficReporter(
            store.get,
            context.traffic,
            serves,
            every_s=proxy_settings.traffic_every_s,
            keep_hours=proxy_settings.traffic_keep_hours,
            heard=self._heard,
            topic=_topic_of(proxy_settings, clusters),
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
            self._context.heard(dict.fromkeys(self._context.addressing.clusters, -math.inf))
            self._context.quiet = self._follows.quiet
            self._follows.changed = self._led
            self._follows.start()
        serving, ending = loop.create_task(self._begin(server)), loop.create_task(self._asked_to_end.wait())
        try:
            await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and not ending.done():
                serving.result()
            ending.cancel()
            await self._drain()
        finally:
            serving.cancel()
            await self._telling.end()
            await self._control.end()
            self._lookout.stop()
            self._lookout.close()
            self._levels.close()
            if self._follows is not None:
                await loop.run_in_executor(None, self._follows.stop)
            self._context.gate.close()
            if server is not None:
                server.close()
        log.info("ended")

    async def _begin(self, server: MetricsServer | None) -> None:
        """Open the ports once clusters are known, and then those of new brokers.

        API versions are unknown until a cluster answers. Without home records, readers would go to old homes and commit
        there. Without protection levels, writes to protected topics would be acknowledged too early.
        """
        await asyncio.gather(self._lookout.first(), self._control.first())
        check_cluster_marks(
            {name: cluster.cluster_id for name, cluster in self._lookout.table.clusters.items() if cluster.has_answered}
        )
        self._store.check_version()  # a store that is only away is awaited
        tasks = (self._lookout.look(), self._control.run(), self._levels.run(), self._telling.run(), self._keep())
        looking = [asyncio.create_task(one) for one in tasks]
        try:
            while not self._may_serve():
                await self._wait_for_news(server)
            await self._doors.open(self._context.table)
            # What is loaded by now stays: collecting it would delay clients now and then.
            gc.collect()
            gc.freeze()
            await self._doors.open_first()
            first = f"{self._settings.address}:{self._settings.port}"
            log.info(f"serves clients of {', '.join(self._context.addressing.clusters)} at {first}")
            self._tell(WorkerMessage.READY)
            while True:
                await self._wait_for_news(server)
                await self._doors.open(self._context.table)
        finally:
            for one in looking:
                one.cancel()

    def _may_serve(self) -> bool:
        follows, keeper = self._follows, self._context.keeper
        has_read_homes = follows is None or follows.has_read_home_records()
        return bool(self._context.table.offers) and has_read_homes and keeper is not None and keeper.has_read_levels()

    def _obey(self) -> None:
        """Go by the settings that are in force now; connected clients too."""
        context, values = self._context, self._live.values
        proxy_settings = values.settings.of(SECTION)
        rules = context.addressing.new_topics
        rules.usual, rules.by_name = proxy_settings.new_topics, proxy_settings.new_topics_by_name
        context.quotas.bytes_s = proxy_settings.client_bytes_s
        crowd = context.crowd
        crowd.most, crowd.most_of_one = proxy_settings.clients_max, proxy_settings.clients_of_one_address_max
        self._alarms.ask(proxy_settings.alarms)
        context.gate.take_users(values.users)
        if (near_settings := values.settings.of(near.SECTION)) != self._near:
            self._near = near_settings
            context.follower_fetch.obey(*build_near_rules(near_settings, self._clusters), context.table)
            context.changed(context.table)

    def _home_of(self, topic: str) -> str | None:
        return self._context.table.route(topic)

    async def _keep(self) -> None:
        """Holds the responses of protected topics."""
        loop, name = asyncio.get_running_loop(), f"{socket.gethostname()}/{uuid4().hex[:8]}"
        keeper = GateKeeper(name, self._clusters, PROXY_CLIENT_ID, self._home_of, loop)
        self._context.keeper = keeper
        keeper.start()
        faults = RepeatFilter(log)
        try:
            while True:
                await asyncio.sleep(TICK_S)
                try:
                    keeper.tick()
                except Exception as error:  # no answer is passed on without the next ticks
                    faults.say(f"protected writes wait: {describe_error(error)}")
        finally:
            await loop.run_in_executor(None, keeper.stop)

    async def _wait_for_news(self, server: MetricsServer | None) -> None:
        """Wait at most a second, and check time limits."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LISTENERS_INTERVAL_S):
                await self._news.wait()
        self._news.clear()
        self._context.look()
        if self._follows is not None and (why := self._follows.trouble()):
            self._deaf.say(why)
        else:
            self._deaf.well("all clusters are heard again: writers go on")
        self._tell(WorkerMessage.HEARTBEAT)
        if server is not None:
            server.beat()

    def _tell(self, message: WorkerMessage, text: str = "") -> None:
        if self._part is not None:
            self._part.tell(message, text)

    def _changed(self, table: RoutingTable) -> None:
        self._context.changed(table)
        self._news.set()

    def _led(self, update: HomesUpdate) -> None:
        """Take home records, and tell switches at once which held topics have no writes in flight."""
        assert self._follows is not None
        was_deaf = self._context.heard(update.until_s)
        self._lookout.led(update)
        self._follows.at_work(self._context.at_work.some(NAMED_MAX) if self._context.table.groups_gathering else ())
        if was_deaf:
            self._context.changed(self._context.table)
        for topic in self._follows.held():
            if self._context.table.writes_paused(topic) and not self._context.in_flight_writes[topic]:
                self._follows.quiet(topic)

    async def _drain(self) -> None:
        """Answer what was read, for a limited time, then disconnect."""
        self._doors.close()
        self._context.drain()
        until_s = asyncio.get_running_loop().time() + DRAIN_TIMEOUT_S
        while self._context.guests and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(0.05)
        if self._context.guests:
            log.warning(f"{len(self._context.guests)} clients were not answered within {DRAIN_TIMEOUT_S:g} s")
        for client in list(self._context.guests):
            client.hang_up("the proxy ends")

    def _heard(self, grown: FlowDeltas, lasted_s: float) -> None:
        """Take a window of traffic."""
        self._totals.take(grown)
        for one in self._alarms.look(grown, lasted_s, steady_s()):
            log.warning(one.sentence)

    def _metrics_server(self) -> MetricsServer | None:
        """Start the metrics server. A worker's is for the supervisor, which asks all workers."""
        address, port = self._settings.metrics_address, self._settings.metrics_port
        if self._part is not None:
            address, port = "127.0.0.1", 0
        elif not port:
            return None
        collector = ProxyCollector(self._context, self._doors, self._totals, self._alarms)
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
        self._heard_s = 0.0
        self._restarts = RestartPause(RESTART_DELAY_MIN_S, RESTART_DELAY_MAX_S, RESTART_DELAY_RESET_S)

    @property
    def pid(self) -> int:
        """The process id; 0 while there is none."""
        return self._child.pid if self._child is not None else 0

    def start(self) -> None:
        """Start in a separate session, since the supervisor handles Ctrl-C."""
        command = [sys.executable, "-m", "twinshore.proxy"]
        pipe = subprocess.PIPE
        now_s = steady_s()
        self._restarts.begin(now_s)
        try:
            child = self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:  # the machine lacks resources now
            again = self._restarts.end(now_s)
            log.warning(f"process {self.number} cannot be started: {error.strerror}; it is tried again in {again:g} s")
            return
        self.starts += 1
        self._heard_s = now_s + WORKER_START_TIMEOUT_S - WORKER_STALL_TIMEOUT_S
        threading.Thread(target=self._hear, args=(child,), name=f"part {self.number}", daemon=True).start()
        assert child.stdin is not None
        with suppress(OSError):  # it has ended already
            child.stdin.write(self._task)
            child.stdin.flush()

    def look(self) -> None:
        """Kill the worker if its loop stalls, and restart one that has ended."""
        now_s = steady_s()
        if self._child is None:
            if now_s >= self._restarts.due_s:
                self.start()
        elif (code := self._child.poll()) is not None:
            self._is_gone(code, now_s)
        elif now_s > self._heard_s + WORKER_STALL_TIMEOUT_S:
            log.warning(f"process {self.number} stands still, and keeps its clients waiting: it is killed")
            self._child.kill()

    def _is_gone(self, code: int, now_s: float) -> None:
        self._let_go()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        again = self._restarts.end(now_s)
        log.warning(f"process {self.number} has ended unasked, {how}: it is started again in {again:g} s")

    def _let_go(self) -> None:
        child, self._child, self.port, self.serves = self._child, None, 0, False
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _hear(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with suppress(OSError, ValueError):  # the pipe is closed under it
            for line in child.stdout:
                if child is not self._child:
                    return
                message, text = parse_worker_message(line.decode(errors="replace"))
                self._heard_s = max(self._heard_s, steady_s())
                match message:
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
            with suppress(OSError):
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

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("twinshore_proxy_processes", "configured processes", value=len(self._workers))
        serve = sum(worker.serves for worker in self._workers)
        yield GaugeMetricFamily("twinshore_proxy_processes_running", "processes that let clients in", value=serve)
        restarts = CounterMetricFamily("twinshore_proxy_restarts", "times it was started again", labels=["process"])
        for worker in self._workers:
            restarts.add_metric([str(worker.number)], max(0, worker.starts - 1))
        yield restarts
        yield from self._of_parts()

    def _of_parts(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for worker in self._workers:
            for told in text_string_to_metric_families(_asked(worker, "metrics")[1]):
                metric = found.setdefault(told.name, Metric(told.name, told.documentation, told.type))
                for sample in told.samples:
                    metric.add_sample(sample.name, {**sample.labels, "process": str(worker.number)}, sample.value)
        yield from found.values()

    def processes(self) -> dict[str, Any]:
        """Returns each worker's state, for /health."""
        return {str(worker.number): self._stands(worker) for worker in self._workers}

    def _stands(self, worker: WorkerProcess) -> dict[str, Any]:
        code, text = _asked(worker, "health")
        told = json.loads(text) if text else {"ok": False, "says": "it does not answer"}
        return {"pid": worker.pid, "serves": worker.serves, **told, "ok": code == 200}


def describe_unhealthy_workers(processes: Mapping[str, Any]) -> str:
    """Returns why to restart the proxy, else empty. One healthy worker is enough, since others are restarted.

    Only the given states count: a second request could get other answers.
    """
    if any(one["serves"] and one["ok"] for one in processes.values()):
        return ""
    says = "; ".join(f"{number}: {one['says']}" for number, one in processes.items())
    return f"no process is well: {says}"


def _asked(worker: WorkerProcess, page: str) -> tuple[int, str]:
    if not worker.port:
        return 0, ""
    with suppress(OSError, HTTPException):
        try:
            with _BY_ITSELF.open(f"http://127.0.0.1:{worker.port}/{page}", timeout=WORKER_METRICS_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
    return 0, ""


def supervise_workers(settings: Settings, count: int) -> None:
    """Run until Ctrl-C, SIGTERM or SIGHUP. ConfigError if no worker could start."""
    proxy_settings = settings.of(SECTION)
    # Else each worker would report errors again and again.
    Authenticator(proxy_settings, select_clusters(settings)).close()
    _must_be_free(proxy_settings)
    workers = [WorkerProcess(WorkerConfig(settings, number, count)) for number in range(1, count + 1)]
    server = _server(proxy_settings, workers)
    stop = threading.Event()
    on_shutdown_signal(stop.set)
    served = 0
    try:
        while not stop.wait(SUPERVISOR_INTERVAL_S):
            for worker in workers:
                worker.look()
            if (serve := sum(worker.serves for worker in workers)) != served:
                served = serve
                log.info(
                    f"{serve} of {count} processes serve clients at {proxy_settings.address}:{proxy_settings.port}"
                )
            if server is not None:
                server.beat()
    finally:
        for worker in workers:
            worker.ask_to_end()
        for worker in workers:
            worker.end()
        if server is not None:
            server.close()
    log.info("ended")


def _must_be_free(proxy_settings: ProxySettings) -> None:
    """Check that the port is free, by a socket without SO_REUSEPORT, which would share it."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("proxy.port-not-shareable")
    kind = socket.AF_INET6 if ":" in proxy_settings.address else socket.AF_INET
    try:
        with socket.socket(kind) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((proxy_settings.address, proxy_settings.port))
    except OSError as error:
        raise bind_error("proxy", proxy_settings.address, proxy_settings.port, error) from error


def _server(proxy_settings: ProxySettings, workers: Sequence[WorkerProcess]) -> MetricsServer | None:
    if not proxy_settings.metrics_port:
        return None
    joined = WorkersCollector(workers)
    return MetricsServer(
        proxy_settings.metrics_address,
        proxy_settings.metrics_port,
        joined,
        joined.processes,
        section="proxy",
        of="processes",
        trouble=describe_unhealthy_workers,
    )
