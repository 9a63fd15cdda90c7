"""The life of a job, and what somebody agrees to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from twinshore.config.errors import RefusedError
from twinshore.config.model import Plan
from twinshore.kafka.clock import wall_ms
from twinshore.server import job_process
from twinshore.server.core.access import Caller
from twinshore.server.core.catalogue import Role
from twinshore.server.core.jobs import (
    PLAN_TTL_MS,
    JobPlan,
    applied,
    apply_fault,
    cancelled,
    ended,
    orphaned,
    plan_change,
    planned,
    slots,
    taken,
)
from twinshore.server.job_process import JobPrinter, to_job_plan
from twinshore.server.requests import OPEN_MAX, JobRequests
from twinshore.server.worker import JobWorker
from twinshore.state.core.platform_values import JobRow, JobState
from twinshore.state.store import Store, open_store

JOB = JobRow(
    id="j",
    operation="link pause",
    arguments="{}",
    state=JobState.PLANNING,
    requested_by="ada",
    created_ms=0,
    updated_ms=0,
    worker="w",
)
PLAN = JobPlan(("shown",), ("step",), (), (("deletes orders",),))


def test_a_plan_is_agreed_to_by_its_digest_and_for_an_hour() -> None:
    job = planned(JOB, PLAN, 1_000)
    assert (job.state, job.worker, job.digest) == (JobState.PLANNED, "", PLAN.digest)
    assert apply_fault(job, PLAN.digest, 1_000) == ""
    assert apply_fault(job, "another", 1_000) == "has another plan by now"
    assert apply_fault(job, PLAN.digest, 1_001 + PLAN_TTL_MS) == "was planned or agreed to more than an hour ago"
    assert apply_fault(replace(job, state=JobState.RUNNING), PLAN.digest, 1_000) == "is running, not planned"
    assert JobPlan.from_json(job.plan) == PLAN


def test_nothing_to_do_and_refused_plans_end_the_job() -> None:
    assert planned(JOB, JobPlan(), 1).state is JobState.DONE
    refused = planned(JOB, replace(PLAN, refusal="no"), 1)
    assert (refused.state, refused.sentence, refused.exit_code) == (JobState.FAILED, "no", 2)


def test_a_job_that_waits_is_cancelled_at_once_one_that_runs_is_asked_to_stop() -> None:
    assert cancelled(replace(JOB, state=JobState.PLANNED), "bob", 1).state is JobState.CANCELLED
    running = cancelled(replace(JOB, state=JobState.RUNNING), "bob", 1)
    assert (running.state, running.cancelled_by) == (JobState.RUNNING, "bob")
    assert ended(running, 130, "", 2).state is JobState.CANCELLED
    assert ended(running, 0, "", 2).state is JobState.DONE, "it was done before it heard"


def test_how_jobs_end() -> None:
    running = replace(JOB, state=JobState.RUNNING)
    assert [ended(running, code, "", 2).state for code in (0, 1, 2, 70)] == [
        JobState.DONE,
        JobState.DONE,
        JobState.FAILED,
        JobState.FAILED,
    ]
    assert orphaned(running, 2).state is JobState.UNKNOWN


def test_states_on_the_way() -> None:
    assert taken(JOB, "v", 1).state is JobState.PLANNING
    assert taken(replace(JOB, state=JobState.QUEUED), "v", 1).state is JobState.RUNNING
    assert applied(JOB, "why", 1, asks_approval=True).state is JobState.ASKED
    assert applied(JOB, "why", 1, asks_approval=False).state is JobState.QUEUED


@dataclass(frozen=True, slots=True)
class Deletes:
    topic: str
    records: int

    def sentence(self, *, done: bool) -> str:
        return f"{'deletes' if done else 'would delete'} {self.topic}, {self.records:,} records from offset 17 on"


def test_decisions_are_what_is_changed_not_what_was_observed() -> None:
    before = to_job_plan(Plan((Deletes("orders-1", 1_200),)))
    more = to_job_plan(Plan((Deletes("orders-1", 99_000),)))
    other = to_job_plan(Plan((Deletes("orders-2", 1_200),)))
    assert before.digest == more.digest
    assert before.digest != other.digest
    change = plan_change(before, other, whole=True)
    assert [one.split(":")[0] for one in change.split("; ")] == ["no longer topic orders-1", "now also topic orders-2"]


def test_each_plan_is_compared_whole_and_none_is_left_out() -> None:
    agreed = JobPlan(decisions=(("a", "b", "c"), ("d",)))

    def differs(*now: tuple[str, ...], whole: bool = False) -> bool:
        return plan_change(agreed, JobPlan(decisions=now), whole=whole) != ""

    assert differs(("a", "b"))
    assert differs(("a", "b", "c", "d"))
    assert differs(("c", "b", "a"))
    assert not differs(("a", "b", "c"))
    assert differs(("a", "b", "c"), whole=True)
    assert not differs(*agreed.decisions, whole=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        yield store


def test_what_reads_neither_hides_nor_starves_what_changes(store: Store) -> None:
    requests = JobRequests(store, four_eyes=False)
    for viewer in (Caller(name, Role.VIEWER, "test") for name in ("eve", "mallory")):
        for _ in range(OPEN_MAX):
            requests.ask("delay check", {}, viewer)
        with pytest.raises(RefusedError) as refused:
            requests.ask("delay check", {}, viewer)
        assert refused.value.code == "server.too-many-jobs"
    switch = requests.ask("switch run", {"topics": ["a"], "to": "west"}, Caller("ada", Role.OPERATOR, "test"))
    store.jobs.add(replace(JOB, id="held", state=JobState.RUNNING))
    store.jobs.add(replace(JOB, id="agreed", state=JobState.QUEUED, digest="d", worker=""))
    held, agreed, asked, *reading = store.jobs.for_workers()
    assert (held.id, agreed.id, asked.id) == ("held", "agreed", switch.id)
    assert slots(agreed, 8) > slots(asked, 8) > slots(reading[0], 8) > 0


def test_what_was_agreed_to_more_than_an_hour_ago_is_neither_approved_nor_done(store: Store, tmp_path: Path) -> None:
    requests, eve = JobRequests(store, four_eyes=True), Caller("eve", Role.APPROVER, "test")
    asked, queued = (
        store.jobs.add(
            replace(JOB, id=state, state=state, digest="d", worker="", updated_ms=wall_ms() - PLAN_TTL_MS - 1)
        )
        for state in (JobState.ASKED, JobState.QUEUED)
    )
    with pytest.raises(RefusedError) as refused:
        requests.approve(asked.id, "d", eve)
    assert refused.value.code == "server.approval-refused"
    worker = JobWorker(tmp_path, threading.Event())
    worker._snapshots.keep = lambda: None  # type: ignore[method-assign]
    worker._turn(store)
    row = store.jobs.of(queued.id)
    assert row and (row.state, row.exit_code) == (JobState.FAILED, 2)


def test_lines_that_are_not_kept_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_process, "JOB_LINES_MAX", 2)
    printer = JobPrinter(store, store.jobs.add(replace(JOB, state=JobState.RUNNING)))
    printer.start()
    printer.write("a\nb\nc\nd\ne")
    printer.close()
    *kept, last = [line.text for line in store.jobs.lines("j")]
    assert (kept, last.split()[0], printer.said) == (["a", "b"], "3", "e")
