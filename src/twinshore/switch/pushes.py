"""The pushes of applications: set and removed in the store, and served over HTTP from a cache, in one event loop.

The cache reads the store several times a second, once for all waiting clients. Requests are answered from the cache, so
a short outage of the store is not noticed; if the store hangs, only the refresh waits. Data older than half a minute is
not served: a client has its own copy, and another server may have a newer one.

Also here: tokens. A token permits to read an application's push, or to change it, and is shown once, when made.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import socket
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
from confluent_kafka import KafkaException, Producer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from twinshore.client.core.pushes import PushTag, digest_of, read_tag
from twinshore.client.sites import Site
from twinshore.config.errors import ConfigError, RefusedError, StoreError
from twinshore.config.frozen import HEALTH_PATH, METRICS_PATH, PUSH_PATH
from twinshore.config.model import Plan
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections import push
from twinshore.config.sections.push import PushSettings
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.runtime.http import PROMETHEUS, bind_error
from twinshore.runtime.process import shutdown_signals
from twinshore.state.core.values import AuditRow
from twinshore.state.opening import open_or_create
from twinshore.state.proxies import PushRow, PushTokenRow
from twinshore.state.store import Store
from twinshore.switch.core.config_offer import DIGEST_CHARS_SHOWN, check_app, check_offer, parse_bearer_token

AUDIT_KIND = "push"


@dataclass(frozen=True, slots=True)
class SetPush:
    """`expected`: digest of the push to replace; empty for any."""

    app: str
    text: str
    expected: str = ""


@dataclass(frozen=True, slots=True)
class PushStep:
    """`before`: the revision to replace; 0 for none. `text`: empty to remove the push."""

    app: str
    before: int
    text: str
    home: str = ""
    clusters: tuple[str, ...] = ()

    def sentence(self, *, done: bool) -> str:
        told = "is" if done else "would be"
        if not self.text:
            return f"{self.app}: its push, revision {self.before}, {told} taken away; clients stay as they are"
        clusters = f" {', '.join(self.clusters)}"
        return f"{self.app}: revision {self.before + 1} {told} told to its clients: home {self.home};{clusters}"


def plan_set(push: SetPush, store: Store) -> Plan[PushStep]:
    """Raises ConfigError if clients would refuse the push, RefusedError if the current push is not the expected one."""
    app = check_app(push.app)
    found = check_offer(push.text)
    for site in found.values():
        _must_make(site)
    row = store.pushes.of([app]).get(app)
    if push.expected and push.expected != (row.digest if row else ""):
        raise RefusedError("switch.push-changed", app=app)
    if row is not None and row.digest == digest_of(push.text):
        return Plan(remarks=(f"{app}: revision {row.revision} says just this already",))
    clusters = tuple(f"{name} at {','.join(site.cluster.bootstrap)}" for name, site in sorted(found.items()))
    home, before = _home(push.text), _home(row.text) if row else ""
    remarks = (
        (
            f"{app}: its home moves from {before} to {home}: topics of which no cluster says where they are at home are"
            " written there at once, without a switch",
        )
        if before not in ("", home)
        else ()
    )
    return Plan((PushStep(app, row.revision if row else 0, push.text, home, clusters),), remarks=remarks)


def _home(text: str) -> str:
    return str(json.loads(text).get("home", "")) if text else ""


def _must_make(site: Site) -> None:
    """Raises ConfigError if librdkafka refuses the settings, as every client would."""
    try:
        Producer({**site.clients, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else error
        raise ConfigError("switch.push-unusable", cluster=site.name, cause=str(why)) from error


def plan_remove(app: str, store: Store) -> Plan[PushStep]:
    """Raises ConfigError if the application has no push."""
    row = store.pushes.of([check_app(app)]).get(app)
    if row is None or not row.text:
        raise ConfigError("switch.no-push", app=app)
    return Plan((PushStep(app, row.revision, ""),))


def apply_push(plan: Plan[PushStep], store: Store, *, by: str) -> Iterator[PushStep]:
    """Raises RefusedError if the push has changed since the plan."""
    for step in plan.steps:
        now_ms, revision = wall_ms(), step.before + 1
        before, after = f"revision {step.before}" if step.before else "", f"revision {revision}" if step.text else ""
        row = AuditRow(now_ms, "", AUDIT_KIND, step.app, before, after, "done", by)
        if not store.pushes.save(PushRow(step.app, revision, digest_of(step.text), step.text, by, now_ms), row):
            raise RefusedError("switch.push-changed", app=step.app)
        yield step


def read_pushes(store: Store, app: str = "") -> list[dict[str, Any]]:
    rows = [row for row in store.pushes.of([check_app(app)] if app else None).values() if row.text]
    if app and not rows:
        raise ConfigError("switch.no-push", app=app)
    return [
        {
            "app": push_row.app,
            "revision": push_row.revision,
            "set_by": push_row.set_by,
            "changed_ms": push_row.changed_ms,
            "push": push_row.text,
        }
        for push_row in rows
    ]


log = logging.getLogger(__name__)

STORE_POLL_INTERVAL_S = 0.3
STALE_AFTER_S = 30.0


def tag_of(row: PushRow) -> PushTag:
    return PushTag(row.revision, row.digest)


async def _within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class PushCache:
    """Runs `look` until `stop`. Call all other methods in the same event loop."""

    def __init__(self, store: Store) -> None:
        self._store, self._repeat_filter = store, RepeatFilter(log)
        self._rows: dict[str, PushRow] = {}
        self._tokens: dict[str, PushTokenRow] = {}
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._stopped, self._looking = asyncio.Event(), asyncio.Lock()
        self._looked_s = steady_s()

    def push(self, app: str) -> PushRow | None:
        row = self._rows.get(app)
        return row if row is not None and row.text else None

    def token(self, digest: str) -> PushTokenRow | None:
        return self._tokens.get(digest)

    @property
    def apps(self) -> int:
        return sum(bool(row.text) for row in self._rows.values())

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def is_stale(self) -> bool:
        """Whether other servers may have newer data."""
        return self.age_s > STALE_AFTER_S

    @property
    def age_s(self) -> float:
        """Seconds since the store was last read."""
        return steady_s() - self._looked_s

    async def changed(self, app: str, tag: PushTag, within_s: float) -> None:
        """Returns once the push differs from `tag`, after `within_s`, or at the end."""
        row = self.push(app)
        if row is None or tag_of(row) != tag or self._stopped.is_set():
            return
        news = asyncio.Event()
        self._waiting[app].add(news)
        try:
            await _within(news, within_s)
        finally:
            self._waiting[app].discard(news)
            if not self._waiting[app]:
                del self._waiting[app]

    async def look(self) -> None:
        while not self._stopped.is_set():
            await self.refresh()
            await _within(self._stopped, STORE_POLL_INTERVAL_S)

    async def refresh(self) -> None:
        """Reads the store once; on an error the old data stays. Only one refresh runs at a time: an older read must not
        overwrite a newer one.
        """
        async with self._looking:
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            rows, tokens = await asyncio.to_thread(self._read, self._rows)
        except Exception as error:  # a loop that ended here would serve old data for ever
            self._repeat_filter.say(
                f"{describe_error(error)}: for {STALE_AFTER_S:g} s clients are told what was known before, and "
                "nothing then"
            )
            return
        self._repeat_filter.well()
        changed = {app for app in rows.keys() | self._rows.keys() if rows.get(app) != self._rows.get(app)}
        self._rows, self._tokens, self._looked_s = rows, tokens, steady_s()
        for app in changed:
            self._wake(app)

    def stop(self) -> None:
        self._stopped.set()
        for app in list(self._waiting):
            self._wake(app)

    def _wake(self, app: str) -> None:
        for news in self._waiting.get(app, ()):
            news.set()

    def _read(self, known: dict[str, PushRow]) -> tuple[dict[str, PushRow], dict[str, PushTokenRow]]:
        store = self._store.pushes
        revisions = store.revisions()
        same = {app: row for app, row in known.items() if revisions.get(app) == row.revision}
        news = sorted(revisions.keys() - same.keys())
        return {**same, **(store.of(news) if news else {})}, {
            push_token_row.digest: push_token_row for push_token_row in store.tokens()
        }


WAIT_S_MAX = 60.0
BODY_BYTES_MAX = 4 << 20
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")
Handler = Callable[[Request], Awaitable[Response]]


class PushRoutes(Collector):
    def __init__(self, board: PushCache, store: Store) -> None:
        self._board, self._store = board, store
        self._answers: Counter[int] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.app = Starlette(
            routes=[
                Route(PUSH_PATH, self._counted(self._get), methods=["GET"]),
                Route(PUSH_PATH, self._counted(self._put), methods=["PUT"]),
                Route(HEALTH_PATH, self._health),
                Route(METRICS_PATH, self._metrics),
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

    def _asks(self, request: Request) -> PushTokenRow | Response:
        token = self._board.token(digest_of(parse_bearer_token(request.headers.get("authorization", ""))))
        if token is None:
            return PlainTextResponse("no token that counts\n", 401, {"WWW-Authenticate": "Bearer"})
        if token.app != request.path_params["app"]:
            return PlainTextResponse("the token is for another application\n", 403)
        return token

    async def _get(self, request: Request) -> Response:
        """With `If-None-Match`, waits up to `wait_s` for another push."""
        token = self._asks(request)
        if isinstance(token, Response):
            return token
        push_tag = read_tag(request.headers.get("if-none-match", ""))
        asked = request.query_params.get("wait_s", "0")
        if not _SECONDS.fullmatch(asked):
            return PlainTextResponse("wait_s is no number of seconds\n", 400)
        wait_s = min(float(asked), WAIT_S_MAX)
        if push_tag and wait_s:
            await self._board.changed(token.app, push_tag, wait_s)
            if isinstance(refused := self._asks(request), Response):
                return refused  # revoked during the wait
        if self._board.is_stale:
            return PlainTextResponse(f"{self._stale()}\n", 503)
        row = self._board.push(token.app)
        if row is None:
            return PlainTextResponse(f"nothing is pushed to {token.app}\n", 404)
        tag = tag_of(row)
        headers = {"ETag": str(tag), "Cache-Control": "no-store"}
        if tag == push_tag:
            return Response(None, 304, headers)
        return Response(row.text, 200, headers, "application/json")

    async def _put(self, request: Request) -> Response:
        """With `If-Match`, replaces only the named push."""
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
            tag = read_tag(expected)
            push = SetPush(token.app, body.decode(), tag.digest if tag else expected)
            said = await asyncio.to_thread(self._set, push, f"token {token.digest[:DIGEST_CHARS_SHOWN]}")
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

    def _set(self, push: SetPush, by: str) -> str:
        plan = plan_set(push, self._store)
        done = [step.sentence(done=True) for step in apply_push(plan, self._store, by=by)]
        return "\n".join([*done, *plan.remarks, ""])

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
SHUTDOWN_TIMEOUT_S = 3
LOCAL_ADDRESSES = ("127.0.0.1", "::1", "localhost")


class SignalFreeServer(uvicorn.Server):
    """Leaves signals to this process, which shuts down in order and exits with success."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: Settings) -> None:
    """Serves until Ctrl-C, SIGTERM or SIGHUP. Raises ConfigError if the address or the certificate is unusable."""
    pushes = settings.of(push.SECTION)
    with open_or_create(settings) as store, _listening(pushes) as door:
        asyncio.run(_serve(pushes, door, store))


def _listening(settings: PushSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    try:
        return socket.create_server((settings.address, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise bind_error("push", settings.address, settings.port, error) from error


async def _serve(settings: PushSettings, door: socket.socket, store: Store) -> None:
    board = PushCache(store)
    app, certificate, key = PushRoutes(board, store).app, settings.certificate_file, settings.key_file
    server = SignalFreeServer(server_config(app, certificate, key, connections_max=CONNECTIONS_MAX))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        board.stop()
        server.should_exit = True

    for number in shutdown_signals():
        with suppress(RuntimeError):  # no signal handlers in a thread, as in tests
            loop.add_signal_handler(number, stop)
    await board.refresh()
    looking = asyncio.create_task(board.look())
    log.info(f"serves {board.apps} pushes at {_address(settings, door)}")
    if not settings.certificate_file and settings.address not in LOCAL_ADDRESSES:
        log.warning(
            "without [push] certificate_file anybody on the way can read tokens: let a proxy speak TLS, or set one"
        )
    try:
        await server.serve(sockets=[door])
    finally:
        board.stop()
        await looking
        log.info("ended")


def _address(settings: PushSettings, door: socket.socket) -> str:
    return f"{'https' if settings.certificate_file else 'http'}://{settings.address}:{door.getsockname()[1]}"


def server_config(
    app: Any, certificate_file: str, key_file: str, *, connections_max: int, proxy_headers: bool = True
) -> uvicorn.Config:
    """How a server of ours serves the application. Raises ConfigError for a certificate that cannot be used."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=proxy_headers,
        limit_concurrency=connections_max,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        ssl_certfile=certificate_file or None,
        ssl_keyfile=key_file or None,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise ConfigError("switch.bad-certificate", cause=str(error)) from error
    return config


TOKEN_AUDIT_KIND = "push token"
TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class NewToken:
    """`may_push`: may change the push, besides reading."""

    app: str
    may_push: bool = False


def make_token(new_token: NewToken, store: Store, *, by: str) -> str:
    """Returns the token, which is never shown again."""
    app, token, now_ms = check_app(new_token.app), secrets.token_urlsafe(TOKEN_BYTES), wall_ms()
    row = PushTokenRow(digest_of(token), app, new_token.may_push, by, now_ms)
    audit_row = AuditRow(
        now_ms, "", TOKEN_AUDIT_KIND, app, "", f"{row.digest[:DIGEST_CHARS_SHOWN]}, {_may(row)}", "made", by
    )
    store.pushes.add_token(row, audit_row)
    return token


@dataclass(frozen=True, slots=True)
class RevokeStep:
    row: PushTokenRow

    def sentence(self, *, done: bool) -> str:
        name = f"{self.row.digest[:DIGEST_CHARS_SHOWN]} of {self.row.app}"
        return f"{name} {'counts' if done else 'would count'} no more"


def plan_revoke(beginning: str, store: Store) -> Plan[RevokeStep]:
    """Plans to revoke the token whose digest begins so. Raises ConfigError if there is none, or more than one."""
    found = [row for row in store.pushes.tokens() if beginning and row.digest.startswith(beginning)]
    if len(found) != 1:
        raise ConfigError("switch.not-one-token", count=len(found), beginning=beginning)
    return Plan((RevokeStep(found[0]),))


def revoke(plan: Plan[RevokeStep], store: Store, *, by: str) -> Iterator[RevokeStep]:
    """Revokes the token; servers refuse the token within a second."""
    for step in plan.steps:
        what = f"{step.row.digest[:DIGEST_CHARS_SHOWN]}, {_may(step.row)}"
        told = AuditRow(wall_ms(), "", TOKEN_AUDIT_KIND, step.row.app, what, "", "revoked", by)
        store.pushes.revoke(step.row.digest, told)
        yield step


def read_tokens(store: Store) -> list[dict[str, Any]]:
    return [
        {
            "app": row.app,
            "token": row.digest[:DIGEST_CHARS_SHOWN],
            "may": _may(row),
            "made_by": row.made_by,
            "made_ms": row.made_ms,
        }
        for row in store.pushes.tokens()
    ]


def _may(row: PushTokenRow) -> str:
    return "may push" if row.may_push else "may ask"
