"""The web process: pages and API over the store alone. It has no cluster's address and no secret of one."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from twinshore.config.errors import CodedError, ConfigError, RefusedError, StoreError, TwinshoreError
from twinshore.config.frozen import HEALTH_PATH
from twinshore.config.sections.serve import ServeSettings
from twinshore.config.sentences import format_age
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.server import account_pages, job_pages, pages, report_pages
from twinshore.server.accounts import Accounts, read_role
from twinshore.server.api import API, KEY_CHARS_MAX, Api, ApiCall, openapi, problem
from twinshore.server.core.access import SESSION_MS, Caller, is_csrf_right, require
from twinshore.server.core.catalogue import JSON, Role
from twinshore.server.core.oidc import CALLBACK_PATH, LOGIN_MS, LOGIN_PATH, LoginAttempt
from twinshore.server.html import Markup, tag
from twinshore.server.layout import Page, Visit, document, message_page
from twinshore.server.oidc import OidcProvider
from twinshore.server.requests import JobRequests, read_form
from twinshore.server.verbs import operation_of
from twinshore.state.platform import digest_of
from twinshore.state.store import Store
from twinshore.switch.core.config_offer import parse_bearer_token

COOKIE, LOGIN_COOKIE = "twinshore", "twinshore-login"
BODY_BYTES_MAX = 64 * 1024
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# What is shown while the store is away: the last pages, each to who was shown it.
KEPT_PAGES, CALLER_KEPT_S = 256, 600.0
# Wrong logins of one address within a minute, of as many as are kept.
LOGIN_FAILURES_MAX, LOGIN_WINDOW_S, FAILURES_KEPT = 30, 60.0, 1_000
STATUS_BY_CODE = {
    "server.no-job": 404,
    "server.no-person": 404,
    "server.no-operation": 404,
    "server.no-such-page": 404,
    "server.no-token": 401,
    "server.login-refused": 401,
    "server.login-wait": 429,
    "server.not-allowed": 403,
    "server.provider-away": 503,
    "server.provider-refused": 403,
    "server.session-ended": 403,
    "server.too-long": 413,
}


def status_of(error: TwinshoreError) -> int:
    if isinstance(error, StoreError):
        return 503
    code = error.code if isinstance(error, CodedError) else ""
    return STATUS_BY_CODE.get(code, 409 if isinstance(error, RefusedError) else 400)


@dataclass(slots=True)
class Form:
    """A form that was sent, by field."""

    fields: Mapping[str, list[str]]

    def text(self, name: str) -> str:
        return self.fields.get(name, [""])[0].strip()

    def secret(self, name: str) -> str:
        return self.fields.get(name, [""])[0]

    def kept(self, visit: Visit) -> Visit:
        """The visit of a page that shows the form again, as filled."""
        return replace(visit, query={name: "\n".join(values) for name, values in self.fields.items()})


@dataclass(frozen=True, slots=True)
class KeptPage:
    """A page as it was last shown to the caller."""

    caller: Caller
    page: Page
    shown_s: float


class Console:
    """All routes. Handlers that read the store run in threads."""

    def __init__(self, store: Store, settings: ServeSettings) -> None:
        self._store, self._settings = store, settings
        self._accounts = Accounts(store)
        self._provider = OidcProvider(settings.oidc) if settings.oidc else None
        self._requests = JobRequests(store, four_eyes=settings.four_eyes)
        self._api = Api(store, self._requests)
        self._lock = threading.Lock()
        # By the session's digest and the address, what was shown last at the end.
        self._kept: OrderedDict[tuple[str, str], KeptPage] = OrderedDict()
        # Addresses and times, the oldest first.
        self._failures: deque[tuple[str, float]] = deque(maxlen=FAILURES_KEPT)
        routes = Starlette(routes=self._routes(), exception_handlers={404: self._not_found})
        self.app = ProxyHeadersMiddleware(with_headers(routes), list(settings.behind_proxy))

    def _routes(self) -> list[BaseRoute]:
        found = {**pages.PAGES, **report_pages.PAGES}
        shown: list[BaseRoute] = [self._page(path, page) for path, page in found.items()]
        shown += [
            self._page("/links/{link}", lambda visit, link: pages.link_page(visit, link)),
            self._page("/topics/{link}/{topic}", lambda visit, link, topic: pages.topic_page(visit, link, topic)),
            self._page("/groups/{link}/{group:path}", lambda visit, link, group: pages.group_page(visit, link, group)),
            self._page("/incidents/{number}", lambda visit, number: pages.incident_page(visit, number)),
            self._page("/do", job_pages.operations_page),
            self._page("/do/{operation}", lambda visit, operation: job_pages.operation_page(visit, operation)),
            self._page("/jobs", job_pages.jobs_page),
            self._page("/jobs/{job}", lambda visit, job: job_pages.job_page(visit, job, self._requests)),
            self._page("/account", account_pages.account_page),
            self._page("/people", account_pages.people_page),
            self._page("/device", account_pages.device_page),
        ]
        shown += [
            self._form("/do/{operation}", self._ask),
            self._form("/jobs/{job}/{change}", self._change_job),
            self._form("/logout", self._log_out),
            self._form("/device", self._confirm_device),
            self._form("/account/add-token", self._add_token),
            self._form("/account/end-token", self._end_token),
            self._form("/account/password", self._change_password),
            self._form("/people/add", self._add_person),
            self._form("/people/change", self._change_person),
        ]
        shown += [
            Route("/login", self._ask_login, methods=["GET"]),
            self._open_form("/login", self._log_in),
            Route(LOGIN_PATH, self._by_provider(self._begin_provider_login)),
            Route(CALLBACK_PATH, self._by_provider(self._end_provider_login)),
            Route("/first-admin", self._ask_first_admin, methods=["GET"]),
            self._open_form("/first-admin", self._make_first_admin),
            Mount("/static", StaticFiles(packages=[("twinshore.server", "static")])),
            Route(HEALTH_PATH, self._health),
            Route(f"{API}/openapi.json", self._openapi),
            Route(f"{API}/device", self._begin_device, methods=["POST"]),
        ]
        shown += [self._api_route(method, path, work) for (method, path), work in self._api.routes().items()]
        return shown

    # -- answers

    def _respond(self, request: Request, page: Page, visit: Visit | None, banner: Markup | None = None) -> Response:
        headers = {}
        if request.headers.get("x-fragment"):
            headers["ETag"] = digest = f'"{page.digest()}"'
            if request.headers.get("if-none-match") == digest and banner is None:
                return Response(status_code=304, headers=headers)
            body = Markup(f"{banner or ''}{page.fragment()}")
            return Response(body, page.status, headers, "text/html; charset=utf-8")
        return Response(document(page, visit, banner), page.status, headers, "text/html; charset=utf-8")

    def _page(self, path: str, work: Callable[..., Page]) -> Route:
        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._show, request, work)

        return Route(path, answer, methods=["GET"])

    def _visit(self, request: Request, caller: Caller) -> Visit:
        return Visit(self._store, caller, request.url.path, dict(request.query_params), wall_ms())

    def _show(self, request: Request, work: Callable[..., Page]) -> Response:
        """Answers a page; while the store is away, what it last answered, with a word about its age."""
        try:
            caller = self._caller(request)
            if caller is None:
                if request.headers.get("x-fragment"):
                    return Response(status_code=401)
                return self._redirect(f"/login?next={quote(_place(request), safe='/')}")
            visit = self._visit(request, caller)
            page = work(visit, **request.path_params)
        except StoreError as error:
            return self._show_kept(request, error)
        except TwinshoreError as error:
            page = message_page("Not shown", error.message, error.hint, status_of(error))
        with self._lock:
            key = visit.caller.digest, _place(request)
            self._kept[key] = KeptPage(visit.caller, page, steady_s())
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_PAGES:
                self._kept.popitem(last=False)
        return self._respond(request, page, visit)

    def _show_kept(self, request: Request, error: StoreError) -> Response:
        digest, now_s = digest_of(request.cookies.get(COOKIE, "")), steady_s()
        with self._lock:
            shown = {place: kept for (of, place), kept in self._kept.items() if of == digest}
        last = next(reversed(shown.values()), None)
        away = message_page("The store does not answer", error.message, error.hint, 503)
        away.every_s = 2
        if last is None or now_s - last.shown_s > CALLER_KEPT_S:
            return self._respond(request, away, None)
        visit = self._visit(request, last.caller)
        kept = shown.get(_place(request))
        if kept is None or kept.caller != last.caller:  # another role by now
            return self._respond(request, away, visit)
        age = format_age(now_s - kept.shown_s)
        said = f"The store does not answer: this is what was known {age} ago. Nothing can be changed until it is back."
        banner = tag("p", said, class_="banner", role="alert", id="banner")
        return self._respond(request, replace(kept.page, status=200), visit, banner)

    def _redirect(self, where: str) -> Response:
        return RedirectResponse(where, 303)

    async def _not_found(self, request: Request, _error: Exception) -> Response:
        error = ConfigError("server.no-such-page")
        if request.url.path.startswith(API):
            return problem(404, error)
        return self._respond(request, message_page("Not found", error.message, status=404), None)

    # -- who calls

    def _caller(self, request: Request) -> Caller | None:
        secret = request.cookies.get(COOKIE, "")
        caller = self._accounts.by_session(secret) if secret else None
        if secret and caller is None:
            self._forget(lambda one: one.digest == digest_of(secret))
        return caller

    def _forget(self, is_gone: Callable[[Caller], bool]) -> None:
        """Callers whose logins have ended are not let in while the store is away."""
        with self._lock:
            for key in [key for key, kept in self._kept.items() if is_gone(kept.caller)]:
                del self._kept[key]

    def _check_rate(self, address: str) -> None:
        with self._lock:
            while self._failures and steady_s() - self._failures[0][1] >= LOGIN_WINDOW_S:
                self._failures.popleft()
            if sum(one == address for one, _ in self._failures) >= LOGIN_FAILURES_MAX:
                raise RefusedError("server.login-wait", seconds=int(LOGIN_WINDOW_S))

    def _note_failure(self, address: str) -> None:
        with self._lock:
            self._failures.append((address, steady_s()))

    # -- forms

    def _form(self, path: str, work: Callable[..., Response]) -> Route:
        """A form of a person who is logged in."""
        return self._open_form(path, lambda request, form: self._take(request, form, work))

    def _open_form(self, path: str, work: Callable[[Request, Form], Response]) -> Route:
        async def answer(request: Request) -> Response:
            try:
                form = await read_form_body(request)
                if not _is_same_origin(request):
                    raise RefusedError("server.session-ended")
                return await run_in_threadpool(work, request, form)
            except TwinshoreError as error:
                return self._refuse(request, None, error)

        return Route(path, answer, methods=["POST"])

    def _take(self, request: Request, form: Form, work: Callable[..., Response]) -> Response:
        visit = None
        try:
            caller = self._caller(request)
            if caller is None:
                return self._redirect("/login")
            visit = self._visit(request, caller)
            if not is_csrf_right(caller, form.text("csrf")):
                raise RefusedError("server.session-ended")
            return work(request, visit, form, **request.path_params)
        except TwinshoreError as error:
            return self._refuse(request, visit, error)

    def _refuse(self, request: Request, visit: Visit | None, error: TwinshoreError) -> Response:
        page = message_page("Refused", error.message, error.hint, status_of(error))
        return self._respond(request, page, visit)

    def _ask(self, request: Request, visit: Visit, form: Form, operation: str) -> Response:
        one = operation_of(operation)
        try:
            given = read_form(one, form.fields)
            report = report_pages.REPORTS.get(one.name) if JSON in given else None
            row = self._requests.ask(one.name, given, visit.caller)
        except ConfigError as error:
            page = job_pages.operation_page(form.kept(visit), operation, str(error))
            return self._respond(request, page, visit)
        query = urlencode({"cluster": given["cluster"]}) if report and "cluster" in given else ""
        return self._redirect(f"{report}?{query}" if report else f"/jobs/{row.id}")

    def _change_job(self, request: Request, visit: Visit, form: Form, job: str, change: str) -> Response:
        try:
            if change == "apply":
                row = self._requests.job(job, visit.caller)
                name = operation_of(row.operation).confirmation(json.loads(row.arguments))
                if form.text("typed") != name:
                    raise ConfigError("server.name-not-typed", name=name)
                self._requests.apply(job, form.text("digest"), form.text("reason"), visit.caller)
            elif change == "approve":
                self._requests.approve(job, form.text("digest"), visit.caller)
            elif change == "cancel":
                self._requests.cancel(job, visit.caller)
            elif change == "again":
                job = self._requests.again(job, visit.caller).id
            else:
                raise ConfigError("server.no-such-page")
        except StoreError:
            raise
        except TwinshoreError as error:
            if self._store.jobs.of(job) is None:
                raise
            return self._respond(request, job_pages.job_page(visit, job, self._requests, str(error)), visit)
        return self._redirect(f"/jobs/{job}")

    def _log_out(self, request: Request, visit: Visit, form: Form) -> Response:
        del form
        self._accounts.log_out(visit.caller)
        self._forget(lambda caller: caller.digest == visit.caller.digest)
        answer = self._redirect("/login")
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    def _confirm_device(self, request: Request, visit: Visit, form: Form) -> Response:
        is_done = self._accounts.confirm_device(form.text("code").upper(), visit.caller)
        said = "Done: the command line goes on by itself." if is_done else "There is no such code, or it has ended."
        return self._respond(request, account_pages.device_page(visit, said), visit)

    def _add_token(self, request: Request, visit: Visit, form: Form) -> Response:
        try:
            days = int(form.text("days")) if form.text("days").isdecimal() else 0
            fresh = self._accounts.add_token(visit.caller, form.text("name"), read_role(form.text("role")), days)
        except (ConfigError, RefusedError) as error:
            return self._respond(request, account_pages.account_page(visit, fault=str(error)), visit)
        return self._respond(request, account_pages.account_page(visit, fresh), visit)

    def _end_token(self, request: Request, visit: Visit, form: Form) -> Response:
        del request
        self._accounts.end_token(visit.caller, form.text("digest"))
        return self._redirect("/account")

    def _change_password(self, request: Request, visit: Visit, form: Form) -> Response:
        try:
            self._check_rate(_address(request))
            self._accounts.change_password(visit.caller, form.secret("old"), form.secret("new"))
        except (ConfigError, RefusedError) as error:
            self._note_failure(_address(request))
            return self._respond(request, account_pages.account_page(visit, fault=str(error)), visit)
        return self._redirect("/account")

    # -- people

    def _add_person(self, request: Request, visit: Visit, form: Form) -> Response:
        require(visit.caller, Role.ADMIN)
        try:
            role = read_role(form.text("role"))
            self._accounts.add_person(form.text("name"), form.secret("password"), role, visit.caller)
        except ConfigError as error:
            return self._respond(request, account_pages.people_page(form.kept(visit), str(error)), visit)
        return self._redirect("/people")

    def _change_person(self, request: Request, visit: Visit, form: Form) -> Response:
        del request
        require(visit.caller, Role.ADMIN)
        role = read_role(form.text("role")) if form.text("role") else None
        enabled = {"0": False, "1": True}.get(form.text("enabled"))
        password = form.secret("password") if "password" in form.fields else None
        self._accounts.change_person(form.text("name"), visit.caller, role=role, enabled=enabled, password=password)
        self._forget(lambda caller: caller.name == form.text("name"))
        return self._redirect("/people")

    # -- logins

    async def _ask_login(self, request: Request) -> Response:
        return self._respond(request, self._login_page("", _own_path(request.query_params.get("next"))), None)

    async def _ask_first_admin(self, request: Request) -> Response:
        secret = request.query_params.get("secret", "")
        if await run_in_threadpool(self._accounts.is_first_admin_link, secret):
            return self._respond(request, account_pages.first_admin_page(secret), None)
        sentence = "This link has ended, or there is an admin already."
        hint = "`twinshore serve --new-admin` prints a new one"
        return self._respond(request, message_page("The first admin", sentence, hint, 403), None)

    def _log_in(self, request: Request, form: Form) -> Response:
        address, next_ = _address(request), _own_path(form.text("next"))
        try:
            self._check_rate(address)
            secret = self._accounts.log_in(form.text("name"), form.secret("password"))
        except RefusedError as error:
            self._note_failure(address)
            page = self._login_page(str(error), next_)
            page.status = status_of(error)
            return self._respond(request, page, None)
        return self._open(request, secret, self._redirect(next_))

    def _login_page(self, fault: str, next_: str) -> Page:
        return account_pages.login_page(fault, next_, self._provider.settings.name if self._provider else "")

    def _by_provider(
        self, work: Callable[[Request, OidcProvider], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                if self._provider is None:
                    raise ConfigError("server.no-such-page")
                return await run_in_threadpool(work, request, self._provider)
            except TwinshoreError as error:
                page = self._login_page(str(error), "/")
                page.status = status_of(error)
                found = self._respond(request, page, None)
                found.delete_cookie(LOGIN_COOKIE, path=LOGIN_PATH)
                return found

        return answer

    def _begin_provider_login(self, request: Request, provider: OidcProvider) -> Response:
        self._check_rate(_address(request))
        self._note_failure(_address(request))
        attempt = self._accounts.begin_provider_login(_own_path(request.query_params.get("next")))
        answer = self._redirect(provider.login_url(attempt))
        # Lax: the provider sends the browser back from another site.
        self._set_cookie(request, answer, LOGIN_COOKIE, attempt.secret, LOGIN_MS, path=LOGIN_PATH, samesite="lax")
        return answer

    def _end_provider_login(self, request: Request, provider: OidcProvider) -> Response:
        attempt, query = LoginAttempt(request.cookies.get(LOGIN_COOKIE, "")), request.query_params
        next_ = self._accounts.end_provider_login(attempt) if attempt.is_state(query.get("state", "")) else None
        if next_ is None or "code" not in query:
            why = "it was begun in another browser, has ended, or was used"
            if "code" not in query:
                why = "the provider refused it" if "error" in query else "it gives no code"
            raise RefusedError("server.provider-refused", name=provider.settings.name, why=why)
        person = provider.person(attempt, query["code"])
        secret = self._accounts.log_in_by_provider(person, provider.settings.name)
        answer = self._open(request, secret, self._respond(request, account_pages.logged_in_page(next_), None))
        answer.delete_cookie(LOGIN_COOKIE, path=LOGIN_PATH)
        return answer

    def _make_first_admin(self, request: Request, form: Form) -> Response:
        try:
            name = form.text("name")
            secret = self._accounts.make_first_admin(form.text("secret"), name, form.secret("password"))
        except ConfigError as error:
            page = account_pages.first_admin_page(form.text("secret"), str(error), name)
            return self._respond(request, page, None)
        return self._open(request, secret, self._redirect("/"))

    def _open(self, request: Request, secret: str, answer: Response) -> Response:
        self._set_cookie(request, answer, COOKIE, secret, SESSION_MS)
        return answer

    def _set_cookie(
        self,
        request: Request,
        answer: Response,
        name: str,
        secret: str,
        lasts_ms: int,
        *,
        path: str = "/",
        samesite: Literal["lax", "strict"] = "strict",
    ) -> None:
        answer.set_cookie(
            name,
            secret,
            max_age=lasts_ms // 1000,
            path=path,
            httponly=True,
            samesite=samesite,
            secure=request.url.scheme == "https",
        )

    # -- API

    def _api_route(self, method: str, path: str, work: Callable[[ApiCall], Response]) -> Route:
        async def answer(request: Request) -> Response:
            try:
                body = await read_json_body(request) if method == "POST" else {}
                found = await run_in_threadpool(self._call, request, body, work)
            except TwinshoreError as error:
                found = problem(status_of(error), error)
            return found

        return Route(f"{API}{path}", answer, methods=[method])

    def _call(self, request: Request, body: dict[str, Any], work: Callable[[ApiCall], Response]) -> Response:
        secret = parse_bearer_token(request.headers.get("authorization", ""))
        caller = self._accounts.by_token(secret) if secret else None
        if caller is None:
            raise RefusedError("server.no-token")
        key = request.headers.get("idempotency-key", "")
        if len(key) > KEY_CHARS_MAX:
            raise ConfigError(
                "server.wrong-value", name="Idempotency-Key", why=f"has more than {KEY_CHARS_MAX} characters"
            )
        return work(ApiCall(dict(request.path_params), dict(request.query_params), body, caller, key))

    async def _begin_device(self, request: Request) -> Response:
        try:
            self._check_rate(_address(request))
            self._note_failure(_address(request))
            secret, code = await run_in_threadpool(self._accounts.begin_device)
        except TwinshoreError as error:
            return problem(status_of(error), error)
        return JSONResponse({"token": secret, "code": code, "path": "/device"})

    async def _openapi(self, _request: Request) -> Response:
        return JSONResponse(openapi())

    # -- the rest

    async def _health(self, _request: Request) -> Response:
        try:
            await run_in_threadpool(self._store.people.has_admin)
        except StoreError as error:
            return JSONResponse({"ok": False, "says": error.message}, 503)
        return JSONResponse({"ok": True, "says": "ok"})


# Any, because starlette and uvicorn have other types for the same.
def with_headers(app: ASGIApp) -> Any:
    """The application, whose answers all have the headers that keep browsers safe. Only styles and scripts are kept."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def passed(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_static = scope["path"].startswith("/static/")
                headers = MutableHeaders(scope=message)
                headers.update({**SECURITY_HEADERS, "Cache-Control": "no-cache" if is_static else "no-store"})
            await send(message)

        await app(scope, receive, passed)

    return answer


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _place(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _own_path(where: str | None) -> str:
    """Returns the path, if it is one of this site's."""
    where = where or "/"
    return where if where.startswith("/") and not where.startswith(("//", "/\\")) and where.isprintable() else "/"


def _is_same_origin(request: Request) -> bool:
    """Whether a form was sent by a page of ours, as far as the browser says."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


async def _read_body(request: Request) -> bytes:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise ConfigError("server.too-long", max=BODY_BYTES_MAX)
    except ClientDisconnect:
        raise ConfigError("server.not-json", why="it is cut off") from None
    return body


async def read_form_body(request: Request) -> Form:
    body = await _read_body(request)
    try:
        return Form(parse_qs(body.decode(), keep_blank_values=True, max_num_fields=1_000))
    except ValueError:
        raise ConfigError("server.not-json", why="no form of these fields") from None


async def read_json_body(request: Request) -> dict[str, Any]:
    body = await _read_body(request)
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
        json.dumps(found, ensure_ascii=False).encode()  # halves of characters cannot be stored
    except (ValueError, RecursionError):
        raise ConfigError("server.not-json", why="it cannot be read") from None
    if not isinstance(found, dict):
        raise ConfigError("server.not-json", why="it is no object")
    return found
