"""HTTP: /metrics for Prometheus, /health for supervisors."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from twinshore.config.errors import ConfigError
from twinshore.config.frozen import HEALTH_PATH, METRICS_PATH
from twinshore.runtime.scheduler import supervise, thread_failures

HEALTH_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 32
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
LinksStatus = Callable[[], dict[str, Any]]
HealthCheck = Callable[[dict[str, Any]], str]


class AddressInUseError(ConfigError):
    """Another process uses the address, for now."""


def bind_error(section: str, address: str, port: int, error: OSError, settings: str = "address, port") -> ConfigError:
    kind = AddressInUseError if error.errno == errno.EADDRINUSE else ConfigError
    place, cause = f"{address}:{port}", error.strerror or str(error)
    return kind("runtime.cannot-listen", section=section, settings=settings, address=place, cause=cause)


class MetricsServer:
    """Serves until closed. The process's loop calls `beat`. /health fails half a minute after the last beat, and after
    a thread died.

    `links`: returns the status of what `of` names, for /health. `section`: the settings section of the address.
    `trouble`: returns other trouble, given that status.
    """

    def __init__(
        self,
        address: str,
        port: int,
        collector: Collector,
        links: LinksStatus,
        *,
        section: str = "mirror",
        of: str = "links",
        trouble: HealthCheck = lambda _: "",
    ) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        self._beaten_s, self._else = time.monotonic(), trouble
        try:
            self._server = _HttpServer((address, port), _handler(registry, self._trouble, of, links))
        except OSError as error:
            raise bind_error(section, address, port, error, "metrics_address, metrics_port") from error
        self.port: int = self._server.server_address[1]
        supervise(self._server.serve_forever, "metrics")

    def beat(self) -> None:
        self._beaten_s = time.monotonic()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _trouble(self, stand: dict[str, Any]) -> str:
        """Returns why this process should be restarted; empty if healthy."""
        if time.monotonic() - self._beaten_s >= HEALTH_TIMEOUT_S:
            return "the driver's loop stands still"
        return thread_failures.says() or self._else(stand)


class _HttpServer(ThreadingHTTPServer):
    """Limits the connections: a new one ends the oldest, so idle clients keep no other out."""

    # Those who come at once: by default five, and each one more waits a second until it is taken for lost.
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self._guests: dict[Any, None] = {}
        self._counting = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._counting:
            self._guests[request] = None
            oldest = next(iter(self._guests)) if len(self._guests) > CONNECTIONS_MAX else None
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
            with self._counting:
                self._guests.pop(oldest, None)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._counting:
            self._guests.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that left before the answer."""


def _handler(
    registry: CollectorRegistry, trouble: HealthCheck, of: str, links: LinksStatus
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == METRICS_PATH:
                self._answer(200, generate_latest(registry), PROMETHEUS)
            elif path == HEALTH_PATH:
                stand = links()
                why = trouble(stand)
                body = json.dumps({"ok": not why, "says": why or "ok", of: stand}) + "\n"
                self._answer(503 if why else 200, body.encode(), JSON)
            else:
                self._answer(404, b"only /metrics and /health\n", TEXT)

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not logged."""

    return Handler
