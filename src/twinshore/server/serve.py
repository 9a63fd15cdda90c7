"""Starts a platform: a web process, a worker, or both as processes that are started again when they die."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from twinshore.config.sections.serve import SECTION, ServeSettings
from twinshore.config.settings import Settings
from twinshore.runtime.http import bind_error
from twinshore.runtime.process import on_shutdown_signal
from twinshore.server.accounts import Accounts
from twinshore.server.web import Console
from twinshore.server.worker import JobWorker
from twinshore.state.opening import open_or_create
from twinshore.state.store import Store
from twinshore.switch.pushes import SignalFreeServer, server_config

log = logging.getLogger(__name__)

BACKLOG, CONNECTIONS_MAX, SHUTDOWN_TIMEOUT_S = 256, 500, 3
RESTART_PAUSE_S, RESTART_PAUSE_S_MAX = 0.2, 5.0
DOOR_VARIABLE = "TWINSHORE_LISTENING_SOCKET"


def listen(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    try:
        return socket.create_server((settings.address, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise bind_error("serve", settings.address, settings.port, error) from error


def address_of(settings: ServeSettings, door: socket.socket) -> str:
    scheme = "https" if settings.certificate_file else "http"
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{scheme}://{host}:{door.getsockname()[1]}"


def serve_web(settings: Settings) -> None:
    """Serves pages and API until a shutdown signal."""
    serving = settings.of(SECTION)
    given = os.environ.get(DOOR_VARIABLE)
    with socket.socket(fileno=int(given)) if given else listen(serving) as door, open_or_create(settings) as store:
        if not given:
            announce(serving, door, store)
        app, certificate, key = Console(store, serving).app, serving.certificate_file, serving.key_file
        config = server_config(app, certificate, key, connections_max=CONNECTIONS_MAX, proxy_headers=False)
        server = SignalFreeServer(config)

        def stop() -> None:
            server.should_exit = True

        on_shutdown_signal(stop)
        asyncio.run(server.serve([door]))


def announce(settings: ServeSettings, door: socket.socket, store: Store) -> None:
    """Says where the pages are, and while there is no admin, the link that makes the first one."""
    place = address_of(settings, door)
    log.info(f"pages and API at {place}/")
    if secret := Accounts(store).first_admin_secret():
        log.info(
            f"no person can log in yet: {place}/first-admin?secret={secret} makes the first admin, within 15 minutes"
        )


def serve_worker(settings_file: Path) -> None:
    """Takes jobs until a shutdown signal."""
    stop = threading.Event()
    on_shutdown_signal(stop.set)
    JobWorker(settings_file, stop).run()
    logging.shutdown()
    os._exit(0)  # an orderly exit would wait for the jobs' processes, which go on by themselves


def serve_both(settings_file: Path, settings: Settings) -> None:
    """Runs a web process and a worker, and starts one again that dies. The web process inherits the listening socket:
    no connection is refused between.
    """
    stop = threading.Event()
    on_shutdown_signal(stop.set)
    serving = settings.of(SECTION)
    with listen(serving) as door:
        door.set_inheritable(True)
        with open_or_create(settings) as store:
            announce(serving, door, store)
        children = [Child(role, settings_file, door) for role in ("--web", "--worker")]
        try:
            while not stop.wait(0.1):
                for child in children:
                    child.keep()
        finally:
            for child in children:
                child.end()


class Child:
    """One role as a process."""

    def __init__(self, role: str, settings_file: Path, door: socket.socket) -> None:
        self._role, self._settings, self._door = role, settings_file, door
        self._due_s, self._pause_s = 0.0, RESTART_PAUSE_S
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0

    def keep(self) -> None:
        """Starts the process if it does not run; one that dies at once, later each time."""
        now_s = time.monotonic()
        if self._process is not None and self._process.poll() is None:
            if now_s - self._started_s > RESTART_PAUSE_S_MAX:
                self._pause_s = RESTART_PAUSE_S
            return
        if self._process is not None:
            log.warning(f"the {self._role[2:]} process ended with exit code {self._process.returncode}")
            self._process = None
            self._due_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, RESTART_PAUSE_S_MAX)
        if now_s >= self._due_s:
            self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "twinshore.cli", "serve", self._role, "--settings", str(self._settings)]
        number = self._door.fileno()
        environment = {**os.environ, DOOR_VARIABLE: str(number)} if self._role == "--web" else {**os.environ}
        self._started_s = time.monotonic()
        self._process = subprocess.Popen(command, env=environment, pass_fds=[number] if self._role == "--web" else [])

    def end(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2 * SHUTDOWN_TIMEOUT_S)
            return
        self._process.kill()
        self._process.wait()
