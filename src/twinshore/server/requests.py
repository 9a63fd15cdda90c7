"""What pages and API do with jobs: ask, apply, approve, cancel. Rights are checked here, for both."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.kafka.clock import wall_ms
from twinshore.server.core.access import Caller, approval_fault, may_cancel, needs_approval, require
from twinshore.server.core.catalogue import Effect, Operation, Role, command_line
from twinshore.server.core.jobs import JobPlan, age_fault, applied, apply_fault, approved, cancelled, has_ended, planned
from twinshore.server.verbs import operation_of, operations
from twinshore.state.core.platform_values import FOR_WORKERS, JobRow, JobState
from twinshore.state.core.values import AuditRow
from twinshore.state.platform import JobFilter, digest_of
from twinshore.state.store import Store

# Of one person, that workers have yet to do.
OPEN_MAX = 50


class JobRequests:
    """`four_eyes`: whether another person must approve what destroys something."""

    def __init__(self, store: Store, *, four_eyes: bool) -> None:
        self._store, self._four_eyes = store, four_eyes

    def ask(self, path: str, arguments: Mapping[str, Any], caller: Caller, key: str = "") -> JobRow:
        """Makes a job: one that reads runs at once, one that changes something is planned first. `key`: the same
        request sent again makes no second job.
        """
        operation = operation_of(path)
        require(caller, operation.rule.role)
        line = command_line(operation.words(arguments))  # refuses what the verb does not take
        is_reading = operation.effect(arguments) is Effect.READS
        open_jobs = JobFilter(FOR_WORKERS, caller.name)
        if len(self._store.jobs.page(open_jobs, limit=OPEN_MAX)) == OPEN_MAX:
            raise RefusedError("server.too-many-jobs", max=OPEN_MAX)
        now_ms = wall_ms()
        row = JobRow(
            id=f"{now_ms:011x}{secrets.token_hex(4)}",
            operation=operation.name,
            arguments=json.dumps(dict(arguments), sort_keys=True),
            state=JobState.QUEUED if is_reading or not operation.plans else JobState.PLANNING,
            requested_by=caller.name,
            created_ms=now_ms,
            updated_ms=now_ms,
            key=digest_of(f"{caller.name}\n{key}") if key else None,
        )
        if not is_reading and not operation.plans:
            # It says nothing beforehand: what is agreed to is the command itself.
            row = planned(row, JobPlan((line,), decisions=((line,),)), now_ms)
        found = self._store.jobs.add(row)
        if (found.operation, found.arguments) != (row.operation, row.arguments):
            raise RefusedError("server.key-used", job=found.id)
        return found

    def apply(self, job: str, digest: str, reason: str, caller: Caller) -> JobRow:
        """Agrees to the plan of this digest."""
        row = self.job(job, caller)
        operation, now_ms = operation_of(row.operation), wall_ms()
        require(caller, operation.rule.role)
        if fault := apply_fault(row, digest, now_ms):
            raise RefusedError("server.job-not-planned", job=job, why=fault)
        asks = needs_approval(operation.effect(json.loads(row.arguments)), four_eyes=self._four_eyes)
        # Who applies it requests it: an approver is another person.
        mine = replace(row, requested_by=caller.name)
        return self._swap(row, applied(mine, reason[:1000], now_ms, asks_approval=asks), caller, "applied")

    def approve(self, job: str, digest: str, caller: Caller) -> JobRow:
        row, now_ms = self.job(job, caller), wall_ms()
        fault = approval_fault(caller, row) or ("has another plan by now" if row.digest != digest else "")
        if fault := fault or age_fault(row, now_ms):
            raise RefusedError("server.approval-refused", job=job, why=fault)
        return self._swap(row, approved(row, caller.name, now_ms), caller, "approved")

    def cancel(self, job: str, caller: Caller) -> JobRow:
        row = self.job(job, caller)
        why = "has ended" if has_ended(row) else "" if may_cancel(caller, row) else "is another person's"
        if why:
            raise RefusedError("server.cancel-refused", job=job, why=why)
        return self._swap(row, cancelled(row, caller.name, wall_ms()), caller, "cancelled")

    def again(self, job: str, caller: Caller) -> JobRow:
        """Asks for the same once more."""
        row = self.job(job, caller)
        return self.ask(row.operation, json.loads(row.arguments), caller)

    def job(self, job: str, caller: Caller) -> JobRow:
        """Returns the job, if the caller may see it: lines of a verb show what its role may see."""
        row = self._store.jobs.of(job)
        if row is None:
            raise ConfigError("server.no-job", job=job)
        if not may_see(caller, row):
            require(caller, operation_of(row.operation).rule.role)
        return row

    def _swap(self, row: JobRow, now: JobRow, caller: Caller, outcome: str) -> JobRow:
        told = AuditRow(
            wall_ms(), "", "job", row.id, job_command(row), now.reason, outcome, f"{caller.name}, by {caller.by}"
        )
        saved = self._store.jobs.swap(row, now, [told])
        if saved is None:
            raise RefusedError("server.job-changed", job=row.id)
        return saved


def may_see(caller: Caller, row: JobRow) -> bool:
    known = operations().get(row.operation)
    return caller.name == row.requested_by or caller.may(known.rule.role if known else Role.ADMIN)


def job_command(row: JobRow) -> str:
    """Returns the job's command line; of a verb or option that this version lacks, its name alone."""
    try:
        return command_line(operation_of(row.operation).words(json.loads(row.arguments)))
    except ConfigError:
        return row.operation


def read_form(operation: Operation, form: Mapping[str, list[str]]) -> dict[str, Any]:
    """Returns the arguments that a form gives. Raises ConfigError for a number that is none."""
    found: dict[str, Any] = {}
    readers: dict[str, Callable[[str], Any]] = {"integer": int, "number": float, "text": str}
    for parameter in operation.parameters:
        texts = [text for text in form.get(parameter.name, []) if text.strip()]
        if parameter.kind == "flag":
            if bool(texts) != bool(parameter.default):  # one that is as by default is not given
                found[parameter.name] = bool(texts)
            continue
        if parameter.is_many:
            texts = [word for text in texts for word in text.split("\n") if word.strip()]
        try:
            values = [readers[parameter.kind](text.strip()) for text in texts]
        except ValueError:
            raise ConfigError("server.wrong-value", name=parameter.name, why="must be a number") from None
        if values:
            found[parameter.name] = values if parameter.is_many else values[0]
    return found
