"""The REST API: what pages show and do, for programs. Callers send a token; errors are problem+json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from starlette.responses import JSONResponse, Response

from twinshore import __version__
from twinshore.config.errors import CodedError, ConfigError, RefusedError, TwinshoreError
from twinshore.server.accounts import Accounts
from twinshore.server.core.access import Caller
from twinshore.server.core.catalogue import Operation, Parameter, ValueKind
from twinshore.server.core.jobs import JobPlan
from twinshore.server.requests import JobRequests, job_command, may_see
from twinshore.server.verbs import operations
from twinshore.state.core.platform_values import JobRow, JobState, SnapshotKind, SnapshotRow
from twinshore.state.platform import JobFilter, SnapshotFilter, digest_of
from twinshore.state.store import Store

API = "/api/v1"
LIMIT_MAX, KEY_CHARS_MAX = 100, 200
PROBLEM = "application/problem+json"
KINDS = {"links": SnapshotKind.LINK, "topics": SnapshotKind.TOPIC, "groups": SnapshotKind.GROUP}


def problem(status: int, error: TwinshoreError, **more: object) -> JSONResponse:
    """An error as RFC 9457 says, with its code and values."""
    code, values = (error.code, error.values) if isinstance(error, CodedError) else ("", {})
    body = {
        "type": f"https://twinshore.invalid/errors#{code}" if code else "about:blank",
        "title": error.message,
        "status": status,
        "detail": error.hint,
        "code": code,
        "values": {name: str(value) for name, value in values.items()},
        **more,
    }
    return JSONResponse(body, status, media_type=PROBLEM)


def job_values(row: JobRow) -> dict[str, Any]:
    values = asdict(row)
    del values["key"], values["revision"]
    values["arguments"] = json.loads(row.arguments)
    values["plan"] = json.loads(row.plan) if row.plan else None
    values["command"] = job_command(row)
    return values


def operation_values(one: Operation) -> dict[str, Any]:
    rule = {"role": str(one.rule.role), "effect": str(one.rule.effect), "title": one.rule.title}
    return {"name": one.name, "path": one.path, "summary": one.summary, "arguments": one.schema(), **rule}


def snapshot_values(row: SnapshotRow) -> dict[str, Any]:
    shown = {"subject": row.subject, "link": row.link, "state": row.state, "rank": row.rank, "as_of_ms": row.at_ms}
    return {**shown, "lag_records": None if row.lag < 0 else row.lag, "value": json.loads(row.value)}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request. `key`: the caller's, so that the request sent again does nothing twice."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    caller: Caller
    key: str = ""


class Api:
    """Each method answers one route, for a caller that is known."""

    def __init__(self, store: Store, requests: JobRequests) -> None:
        self._store, self._requests = store, requests

    def routes(self) -> Mapping[tuple[str, str], Callable[[ApiCall], Response]]:
        return {
            ("GET", "/operations"): self.operations,
            ("POST", "/operations/{operation}"): self.ask,
            ("GET", "/overview"): self.overview,
            ("GET", "/snapshots/{kind}"): self.snapshots,
            ("GET", "/jobs"): self.jobs,
            ("GET", "/jobs/{job}"): self.job,
            ("GET", "/jobs/{job}/lines"): self.lines,
            ("POST", "/jobs/{job}/apply"): self.apply,
            ("POST", "/jobs/{job}/approve"): self.approve,
            ("POST", "/jobs/{job}/cancel"): self.cancel,
            ("GET", "/me"): self.me,
            ("DELETE", "/me"): self.log_out,
        }

    def operations(self, _: ApiCall) -> Response:
        return JSONResponse([operation_values(one) for one in operations().values()])

    def me(self, call: ApiCall) -> Response:
        return JSONResponse({"name": call.caller.name, "role": str(call.caller.role), "by": call.caller.by})

    def log_out(self, call: ApiCall) -> Response:
        Accounts(self._store).end_token(call.caller, call.caller.digest)
        return JSONResponse({})

    def ask(self, call: ApiCall) -> Response:
        row = self._requests.ask(call.path["operation"], call.body, call.caller, call.key)
        return JSONResponse(job_values(row), 202, {"Location": f"{API}/jobs/{row.id}"})

    def overview(self, _: ApiCall) -> Response:
        row = self._store.snapshots.of(SnapshotKind.OVERVIEW, "all")
        return JSONResponse(snapshot_values(row) if row else None)

    def snapshots(self, call: ApiCall) -> Response:
        query = call.query
        kind = KINDS.get(call.path["kind"])
        if kind is None:
            raise ConfigError("server.no-such-page")
        after = None
        if (given := query.get("after")) is not None:
            parts = given.split(",")
            try:
                after = int(parts[0]), int(parts[1]), parts[2]
            except (IndexError, ValueError):
                raise ConfigError("server.wrong-value", name="after", why="is not of a page before") from None
        wanted = SnapshotFilter(kind, query.get("link", ""), query.get("state", ""), query.get("search", ""), after)
        found, limit = [*self._store.snapshots.page(wanted, limit=_limit(query))], _limit(query)
        last = found[-1] if len(found) == limit else None
        onward = f"{last.rank},{last.lag},{digest_of(last.subject)}" if last else None
        return JSONResponse({"items": [snapshot_values(row) for row in found], "after": onward})

    def jobs(self, call: ApiCall) -> Response:
        query = call.query
        state = query.get("state")
        if state is not None and state not in set(JobState):
            raise ConfigError("server.wrong-value", name="state", why=f"must be one of {', '.join(JobState)}")
        wanted = JobFilter([JobState(state)] if state else [], query.get("by", ""), query.get("before", ""))
        found = self._store.jobs.page(wanted, limit=_limit(query))
        seen = [row for row in found if may_see(call.caller, row)]
        return JSONResponse({"items": [job_values(row) for row in seen], "before": found[-1].id if found else None})

    def job(self, call: ApiCall) -> Response:
        return JSONResponse(job_values(self._requests.job(call.path["job"], call.caller)))

    def lines(self, call: ApiCall) -> Response:
        """Lines after a number, and the job's state as read before them: a job that has ended prints no more."""
        row = self._requests.job(call.path["job"], call.caller)
        after = call.query.get("after", "-1")
        if not after.lstrip("-").isdecimal():
            raise ConfigError("server.wrong-value", name="after", why="must be a number")
        found = self._store.jobs.lines(row.id, int(after))
        lines = [{"number": line.number, "at_ms": line.at_ms, "text": line.text} for line in found]
        return JSONResponse({"lines": lines, "state": row.state, "exit_code": row.exit_code})

    def apply(self, call: ApiCall) -> Response:
        digest, reason = _texts(call.body, "digest", "reason")
        return self._changed(call, lambda job: self._requests.apply(job, digest, reason, call.caller))

    def approve(self, call: ApiCall) -> Response:
        (digest,) = _texts(call.body, "digest")
        return self._changed(call, lambda job: self._requests.approve(job, digest, call.caller))

    def cancel(self, call: ApiCall) -> Response:
        return self._changed(call, lambda job: self._requests.cancel(job, call.caller))

    def _changed(self, call: ApiCall, change: Callable[[str], JobRow]) -> Response:
        job = call.path["job"]
        try:
            return JSONResponse(job_values(change(job)), 202)
        except RefusedError as error:
            if error.code != "server.job-not-planned":
                raise
            row = self._requests.job(job, call.caller)
            plan = asdict(JobPlan.from_json(row.plan)) if row.plan else None
            return problem(409, error, plan=plan, digest=row.digest)


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "50")
    if not text.isdecimal() or not 1 <= int(text) <= LIMIT_MAX:
        raise ConfigError("server.wrong-value", name="limit", why=f"must be between 1 and {LIMIT_MAX}")
    return int(text)


def _texts(body: Mapping[str, Any], *names: str) -> list[str]:
    """Returns the values of these names, of which the first must be there."""
    if names[0] not in body:
        raise ConfigError("server.missing-value", operation="the request", name=names[0])
    found = [word for name in names for word in Parameter(name, ValueKind.TEXT, "").read(body.get(name, ""))]
    if unknown := body.keys() - set(names):
        raise ConfigError("server.not-json", why=f"unknown: {', '.join(sorted(unknown))}")
    return found


def openapi() -> dict[str, Any]:
    """The description of the API: its fixed routes, and one of each operation of the catalogue."""
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath("openapi.json").read_text("utf-8"))
    found["info"]["version"] = __version__
    answers = {status: {"$ref": f"#/components/responses/{status}"} for status in found["components"]["responses"]}
    for way in found["paths"].values():
        for method, one in way.items():
            ok = {"200": {"description": one["summary"], "content": {"application/json": {"schema": {}}}}}
            faults = {status: answer for status, answer in answers.items() if status != "202"}
            one["responses"] = answers if method == "post" else {**ok, **faults}
    key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": KEY_CHARS_MAX}}
    for one in operations().values():
        schema = one.schema()
        found["paths"][f"{API}/operations/{one.path}"] = {
            "post": {
                "operationId": one.path,
                "summary": one.rule.title,
                "description": f"{one.summary} Needs the role {one.rule.role}; {one.rule.effect}.",
                "tags": [one.name.partition(" ")[0]],
                "parameters": [key],
                "requestBody": {
                    "required": bool(schema["required"]),
                    "content": {"application/json": {"schema": schema}},
                },
                "responses": answers,
            }
        }
    return found
