"""/metrics for Prometheus and /health for whoever restarts processes: what the recorder knows, read when asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.fleet import ConfigError
from twinshore.mirror.recorder import Recorder

HEALTHY_S = 30.0


class MirrorCollector(Collector):
    """Reads the recorder's figures at each scrape; keeps none of its own."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        records = CounterMetricFamily("twinshore_mirror_records", "Records carried since the start.", labels=["link"])
        size = CounterMetricFamily("twinshore_mirror_bytes", "Bytes carried since the start.", labels=["link"])
        lag = GaugeMetricFamily("twinshore_mirror_lag_records", "Source end less twin end.", labels=["link", "topic"])
        rate = GaugeMetricFamily("twinshore_mirror_records_per_second", "Records carried now.", labels=["link"])
        for link, live in list(self._recorder.live.items()):
            records.add_metric([link], live.records_total)
            size.add_metric([link], live.bytes_total)
            rate.add_metric([link], live.records_per_s)
            by_topic: dict[str, int] = {}
            for named, behind in list(live.lag.items()):
                by_topic[named.topic] = by_topic.get(named.topic, 0) + behind
            for topic, behind in by_topic.items():
                lag.add_metric([link, topic], behind)
        yield from (records, size, lag, rate)


class MetricsServer:
    """Serves until closed. `beat` is called by the driver's loop; without it for half a minute /health says so."""

    def __init__(self, address: str, port: int, recorder: Recorder) -> None:
        registry = CollectorRegistry()
        registry.register(MirrorCollector(recorder))
        self._beaten_s = time.monotonic()
        try:
            self._server = ThreadingHTTPServer((address, port), _handler(registry, self._alive))
        except OSError as error:
            raise ConfigError(
                f"[mirror] metrics_address, metrics_port: {address}:{port} cannot be served: {error.strerror}",
                hint="choose a free port",
            ) from error
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def beat(self) -> None:
        self._beaten_s = time.monotonic()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _alive(self) -> bool:
        return time.monotonic() - self._beaten_s < HEALTHY_S


def _handler(registry: CollectorRegistry, alive: Callable[[], bool]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, generate_latest(registry), "text/plain; version=0.0.4; charset=utf-8")
            elif self.path == "/health":
                well = alive()
                self._answer(
                    200 if well else 503, b"ok\n" if well else b"the driver's loop stands still\n", "text/plain"
                )
            else:
                self._answer(404, b"only /metrics and /health\n", "text/plain")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not worth a line."""

    return Handler
