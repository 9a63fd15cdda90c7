"""The process that serves pushes until it is asked to end: the board beside the doors, in one event loop. The doors
answer with an application's push to whoever has a token of it, at once or once it changes."""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from twinshore.centre.board import Board, tag_of
from twinshore.centre.offer import SHOWN, bearer
from twinshore.centre.operations.pushing import SetPush, act, plan_set
from twinshore.client.centres.pushed import digest_of, read_tag
from twinshore.fleet import ConfigError, RefusedError, StoreError
from twinshore.fleet.settings.sections.push import PushSettings
from twinshore.service.server import PROMETHEUS, not_served
from twinshore.service.signals import of_a_good_end
from twinshore.store import Store, TokenRow

WAIT_S_MAX = 60.0
BODY_BYTES_MAX = 4 << 20
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")
Handler = Callable[[Request], Awaitable[Response]]


class Doors(Collector):
    """The routes, and what they count."""

    def __init__(self, board: Board, store: Store) -> None:
        self._board, self._store = board, store
        self._answers: Counter[int] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        push = "/v1/apps/{app}/push"
        self.app = Starlette(
            routes=[
                Route(push, self._counted(self._get), methods=["GET"]),
                Route(push, self._counted(self._put), methods=["PUT"]),
                Route("/health", self._health),
                Route("/metrics", self._metrics),
            ]
        )

    def collect(self) -> Iterator[Metric]:
        answers = CounterMetricFamily("twinshore_push_answers", "answers about pushes, by code", labels=["code"])
        for code, count in sorted(self._answers.items()):
            answers.add_metric([str(code)], count)
        yield answers
        yield GaugeMetricFamily("twinshore_push_apps", "applications that have a push", value=self._board.apps)
        yield GaugeMetricFamily("twinshore_push_waiting", "clients that wait for news", value=self._board.waiting)
        told = "seconds for which the store has not been seen"
        yield GaugeMetricFamily("twinshore_push_store_age_seconds", told, value=self._board.age_s)

    def _counted(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            response = await handler(request)
            self._answers[response.status_code] += 1
            return response

        return answer

    def _asks(self, request: Request) -> TokenRow | Response:
        token = self._board.token(digest_of(bearer(request.headers.get("authorization", ""))))
        if token is None:
            return PlainTextResponse("no token that counts\n", 401, {"WWW-Authenticate": "Bearer"})
        if token.app != request.path_params["app"]:
            return PlainTextResponse("the token is for another application\n", 403)
        return token

    async def _get(self, request: Request) -> Response:
        """With `If-None-Match`, what it names is waited to change for `wait_s`."""
        token = self._asks(request)
        if isinstance(token, Response):
            return token
        seen = read_tag(request.headers.get("if-none-match", ""))
        asked = request.query_params.get("wait_s", "0")
        if not _SECONDS.fullmatch(asked):
            return PlainTextResponse("wait_s is no number of seconds\n", 400)
        wait_s = min(float(asked), WAIT_S_MAX)
        if seen and wait_s:
            await self._board.changed(token.app, seen, wait_s)
            if isinstance(refused := self._asks(request), Response):
                return refused  # it was revoked meanwhile
        if self._board.is_stale:
            return PlainTextResponse(f"{self._stale()}\n", 503)
        row = self._board.push(token.app)
        if row is None:
            return PlainTextResponse(f"nothing is pushed to {token.app}\n", 404)
        tag = tag_of(row)
        headers = {"ETag": str(tag), "Cache-Control": "no-store"}
        if tag == seen:
            return Response(None, 304, headers)
        return Response(row.text, 200, headers, "application/json")

    async def _put(self, request: Request) -> Response:
        """With `If-Match`, only what it names is replaced."""
        token = self._asks(request)
        if isinstance(token, Response):
            return token
        if not token.may_push:
            return PlainTextResponse("the token may ask, and not push\n", 403)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                return PlainTextResponse(f"a push has {BODY_BYTES_MAX:,} bytes at most\n", 413)
        try:
            expected = request.headers.get("if-match", "")
            seen = read_tag(expected)
            asked = SetPush(token.app, body.decode(), seen.digest if seen else expected)
            said = await asyncio.to_thread(self._set, asked, f"token {token.digest[:SHOWN]}")
        except UnicodeDecodeError:
            return PlainTextResponse("the push is not UTF-8\n", 400)
        except ConfigError as error:
            return PlainTextResponse(f"{error}\n", 400)
        except RefusedError as error:
            return PlainTextResponse(f"{error}\n", 412)
        except StoreError as error:
            return PlainTextResponse(f"{error}\n", 503)
        await self._board.refresh()
        return PlainTextResponse(said)

    def _set(self, asked: SetPush, by: str) -> str:
        planned = plan_set(asked, self._store)
        done = [step.sentence(done=True) for step in act(planned, self._store, by=by)]
        return "\n".join([*done, *planned.remarks, ""])

    async def _health(self, _: Request) -> Response:
        stale = self._board.is_stale
        says = self._stale() if stale else "ok"
        values = {"ok": not stale, "says": says, "apps": self._board.apps, "waiting": self._board.waiting}
        return JSONResponse(values, 503 if stale else 200)

    def _stale(self) -> str:
        return f"the store has not been seen for {self._board.age_s:.0f} s"

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=PROMETHEUS)


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
