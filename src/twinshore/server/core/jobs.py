"""The life of a job: pure transitions of its row."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from twinshore.state.core.platform_values import ENDED, JobRow, JobState

PLAN_TTL_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job would change. `shown`, `steps`, `remarks`: for people. `decisions`: what is agreed to, by plan.
    `refusal`: why nothing can be done; empty: it can.
    """

    shown: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    decisions: tuple[tuple[str, ...], ...] = ()
    refusal: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.decisions).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobPlan:
        raw = json.loads(text)
        names = ("shown", "steps", "remarks")
        decisions = tuple(map(tuple, raw["decisions"]))
        return cls(**{name: tuple(raw[name]) for name in names}, decisions=decisions, refusal=raw["refusal"])

    def joined(self, other: JobPlan) -> JobPlan:
        """A verb may act on several plans, one after the other."""
        return JobPlan(
            self.shown + other.shown,
            self.steps + other.steps,
            self.remarks + other.remarks,
            self.decisions + other.decisions,
            self.refusal or other.refusal,
        )


def planned(job: JobRow, plan: JobPlan, now_ms: int) -> JobRow:
    """The worker knows what the job would change. One that nothing is left of, or that is refused, has ended."""
    kept = replace(job, plan=plan.to_json(), digest=plan.digest, updated_ms=now_ms, worker="")
    if plan.refusal:
        return replace(kept, state=JobState.FAILED, sentence=plan.refusal, exit_code=2)
    if not plan.steps and not plan.decisions:
        return replace(kept, state=JobState.DONE, sentence="there is nothing to change", exit_code=0)
    return replace(kept, state=JobState.PLANNED)


def apply_fault(job: JobRow, digest: str, now_ms: int) -> str:
    """Returns why the planned job cannot be applied; empty: it can."""
    if job.state is not JobState.PLANNED:
        return f"is {job.state}, not planned"
    if job.digest != digest:
        return "has another plan by now"
    return age_fault(job, now_ms)


def age_fault(job: JobRow, now_ms: int) -> str:
    """Returns why nothing comes of the plan any more, which is planned, asked or queued; empty: it can."""
    return (
        "was planned or agreed to more than an hour ago" if job.digest and now_ms - job.updated_ms > PLAN_TTL_MS else ""
    )


def applied(job: JobRow, reason: str, now_ms: int, *, asks_approval: bool) -> JobRow:
    state = JobState.ASKED if asks_approval else JobState.QUEUED
    return replace(job, state=state, reason=reason, updated_ms=now_ms)


def approved(job: JobRow, by: str, now_ms: int) -> JobRow:
    return replace(job, state=JobState.QUEUED, approved_by=by, updated_ms=now_ms)


def cancelled(job: JobRow, by: str, now_ms: int) -> JobRow:
    """One that runs is asked to stop; it goes back as far as it can, and ends by itself."""
    asked = replace(job, cancelled_by=by, updated_ms=now_ms)
    if job.state is JobState.RUNNING:
        return asked
    return replace(asked, state=JobState.CANCELLED, sentence=f"cancelled by {by} before it began")


def taken(job: JobRow, worker: str, now_ms: int) -> JobRow:
    state = job.state if job.state is JobState.PLANNING else JobState.RUNNING
    return replace(job, state=state, worker=worker, updated_ms=now_ms)


def ended(job: JobRow, exit_code: int, sentence: str, now_ms: int) -> JobRow:
    """Exit code 1 is an answer, such as a switch that rolled back; above, the verb did nothing or is not sure."""
    if job.cancelled_by and exit_code:
        state = JobState.CANCELLED
    else:
        state = JobState.DONE if exit_code in (0, 1) else JobState.FAILED
    return replace(job, state=state, exit_code=exit_code, sentence=sentence, updated_ms=now_ms, worker="")


def orphaned(job: JobRow, now_ms: int) -> JobRow:
    """The job's process is gone, and the verb cannot go on by itself: it is never done twice."""
    sentence = f"its process on {job.worker} ended; what it had done by then is in its lines and in the audit"
    return replace(job, state=JobState.UNKNOWN, sentence=sentence, updated_ms=now_ms, worker="")


def plan_change(before: JobPlan, now: JobPlan, *, whole: bool) -> str:
    """Returns how the decisions differ, each plan compared whole; empty: they do not. `whole`: no more plans come."""
    old, new = before.decisions if whole else before.decisions[: len(now.decisions)], now.decisions
    gone, more = ([one for plan in plans for one in plan] for plans in (old, new))
    said = [f"no longer {one}" for one in gone if one not in more]
    said += [f"now also {one}" for one in more if one not in gone]
    return "" if old == new else "; ".join(said) or "the order"


def slots(job: JobRow, slots_max: int) -> int:
    """Returns how many jobs a worker may have beside it: what reads or plans leaves slots to what was agreed to."""
    if job.digest:
        return slots_max
    return slots_max * 3 // 4 if job.state is JobState.PLANNING else slots_max // 2


def has_ended(job: JobRow) -> bool:
    return job.state in ENDED


def is_held(job: JobRow, mine: JobRow) -> bool:
    """Whether the job is still as the process took it, by the row `mine`."""
    return (job.worker, job.state) == (mine.worker, mine.state)
