"""The process that serves pushes until it is asked to end: the board beside the doors, in one event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from twinshore.centre.board import Board
from twinshore.centre.doors import Doors
from twinshore.fleet import ConfigError
from twinshore.fleet.settings.sections.push import PushSettings
from twinshore.service.server import not_served
from twinshore.service.signals import of_a_good_end
from twinshore.store import Store

CONNECTIONS_MAX = 20_000
BACKLOG = 1024
END_S = 3
LOCAL = ("127.0.0.1", "::1", "localhost")


class Serving(uvicorn.Server):
    """Signals are ours: a process that was asked to end does so in good order, and well."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: PushSettings, store: Store, log: Callable[[str], None]) -> None:
    """Until Ctrl-C, SIGTERM or SIGHUP. ConfigError where the address or the certificate is not to be had."""
    with _listening(settings) as door:
        asyncio.run(_serve(settings, door, store, log))


def _listening(settings: PushSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    try:
        return socket.create_server((settings.address, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise not_served("push", settings.address, settings.port, error) from error


async def _serve(settings: PushSettings, door: socket.socket, store: Store, log: Callable[[str], None]) -> None:
    board = Board(store, log)
    server = Serving(_config(settings, Doors(board, store)))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        board.stop()
        server.should_exit = True

    for number in of_a_good_end():
        with suppress(RuntimeError):  # where no signals can be heard, as in a thread of a test
            loop.add_signal_handler(number, stop)
    await board.refresh()
    looking = asyncio.create_task(board.look())
    log(f"serves {board.apps} pushes at {_address(settings, door)}")
    if not settings.certificate_file and settings.address not in LOCAL:
        log("without [push] certificate_file anybody on the way can read tokens: let a proxy speak TLS, or set one")
    try:
        await server.serve(sockets=[door])
    finally:
        board.stop()
        await looking
        log("ended")


def _address(settings: PushSettings, door: socket.socket) -> str:
    return f"{'https' if settings.certificate_file else 'http'}://{settings.address}:{door.getsockname()[1]}"


def _config(settings: PushSettings, doors: Doors) -> uvicorn.Config:
    config = uvicorn.Config(
        doors.app,
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=END_S,
        ssl_certfile=settings.certificate_file or None,
        ssl_keyfile=settings.key_file or None,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"[push] certificate_file, key_file: {error}", hint="PEM files, which this user can read"
        ) from error
    return config
