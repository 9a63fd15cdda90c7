"""Starts a platform: a web process, a worker, or both as processes that are started again when they die."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from twinshore.config.sections.serve import SECTION, ServeSettings
from twinshore.config.settings import Settings
from twinshore.runtime.http import bind_error
from twinshore.runtime.process import on_shutdown_signal
from twinshore.server.accounts import Accounts
from twinshore.server.web import Console
from twinshore.server.worker import JobWorker, KeptProcess
from twinshore.state.opening import open_or_create
from twinshore.state.store import Store
from twinshore.switch.pushes import SignalFreeServer, server_config

log = logging.getLogger(__name__)

BACKLOG, CONNECTIONS_MAX, SHUTDOWN_TIMEOUT_S = 256, 500, 3
DOOR_VARIABLE = "TWINSHORE_LISTENING_SOCKET"


def listen(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    try:
        return socket.create_server((settings.address, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise bind_error("serve", settings.address, settings.port, error) from error


def serve_web(settings: Settings) -> None:
    """Serves pages and API until a shutdown signal."""
    serving = settings.of(SECTION)
    given = os.environ.get(DOOR_VARIABLE)
    with socket.socket(fileno=int(given)) if given else listen(serving) as door, open_or_create(settings) as store:
        if not given:
            announce(serving, door.getsockname()[1], store)
        app, certificate, key = Console(store, serving).app, serving.certificate_file, serving.key_file
        config = server_config(app, certificate, key, connections_max=CONNECTIONS_MAX, proxy_headers=False)
        server = SignalFreeServer(config)

        def stop() -> None:
            server.should_exit = True

        on_shutdown_signal(stop)
        asyncio.run(server.serve([door]))


def announce(settings: ServeSettings, port: int, store: Store, *, again: bool = False) -> None:
    """Says where the pages are, and while there is no admin, or `again`, the link that makes one."""
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    place = f"{'https' if settings.certificate_file else 'http'}://{host}:{port}"
    log.info(f"pages and API at {place}/")
    if secret := Accounts(store).first_admin_secret(again=again):
        what = "an admin, or gives a person a new password," if again else "the first admin,"
        log.info(f"{place}/first-admin?secret={secret} makes {what} within 15 minutes")


def print_admin_link(settings: Settings) -> None:
    """For who has the store, where no admin can log in any more."""
    serving = settings.of(SECTION)
    with open_or_create(settings) as store:
        announce(serving, serving.port, store, again=True)


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
            announce(serving, door.getsockname()[1], store)
        children = [_role(role, settings_file, door) for role in ("--web", "--worker")]
        try:
            while not stop.wait(0.1):
                for child in children:
                    child.keep()
        finally:
            for child in children:
                _end(child.process)


def _role(role: str, settings_file: Path, door: socket.socket) -> KeptProcess[subprocess.Popen[bytes]]:
    """One role as a process."""
    command = [sys.executable, "-m", "twinshore.cli", "serve", role, "--settings", str(settings_file)]
    number = door.fileno()
    environment, passed = ({DOOR_VARIABLE: str(number)}, [number]) if role == "--web" else ({}, [])

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=os.environ | environment, pass_fds=passed)

    return KeptProcess(role[2:], start, subprocess.Popen.poll)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None or process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(2 * SHUTDOWN_TIMEOUT_S)
        return
    process.kill()
    process.wait()
