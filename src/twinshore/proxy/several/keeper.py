"""Whoever looks after the parts: starts one for each core, and again where one ends; ends them all in good order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from twinshore.fleet import ConfigError
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections.proxy import SECTION, ProxySettings
from twinshore.proxy.gate import Gate
from twinshore.proxy.serving import chosen
from twinshore.proxy.several.joined import Joined, trouble
from twinshore.proxy.several.part import Task
from twinshore.proxy.several.process import PartProcess
from twinshore.service.server import MetricsServer, not_served
from twinshore.service.signals import hear

LOOK_S: Final = 0.2


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
