"""Pages of jobs and operations: forms made from the catalogue, plans to agree to, steps while they run."""

from __future__ import annotations

import json
from collections.abc import Iterator

from twinshore.server.core.access import approval_fault, may_cancel
from twinshore.server.core.catalogue import JSON, Effect, Operation, Parameter, Role, ValueKind, label_of
from twinshore.server.core.jobs import JobPlan, has_ended
from twinshore.server.core.snapshots import BEHIND, DIFFERS, FINE, TROUBLE
from twinshore.server.core.words import hold_sentence, seconds
from twinshore.server.html import Child, Markup, button, field, link, render, table, tag
from twinshore.server.layout import (
    PAGE_SIZE,
    Page,
    Visit,
    badge,
    card,
    command,
    count_of,
    filters,
    next_page,
    path_to,
    values_table,
    when,
)
from twinshore.server.requests import JobRequests, job_command, may_see
from twinshore.server.verbs import operation_of, operations
from twinshore.state.core.platform_values import JobRow, JobState
from twinshore.state.platform import JobFilter
from twinshore.switch.core.steps import STEPS, SwitchState

LINES_SHOWN = 300
STATE_RANKS = {
    JobState.DONE: FINE,
    JobState.FAILED: TROUBLE,
    JobState.UNKNOWN: DIFFERS,
    JobState.CANCELLED: BEHIND,
}
STATE_WORDS = {
    JobState.PLANNING: "A worker plans it.",
    JobState.PLANNED: "Nothing has changed yet: read the plan, then agree to it or leave it.",
    JobState.ASKED: "It waits for the approval of another person.",
    JobState.QUEUED: "It waits for a worker.",
    JobState.RUNNING: "It runs.",
    JobState.DONE: "It is done.",
    JobState.FAILED: "It was refused, or failed; what it had done by then is in its lines.",
    JobState.CANCELLED: "It was cancelled.",
    JobState.UNKNOWN: "Its process died, and whether it was done is not known: look before you try again.",
}


# -- operations


def operations_page(visit: Visit) -> Page:
    """All that can be asked, by area."""
    areas: dict[str, list[Operation]] = {}
    for one in operations().values():
        areas.setdefault(one.name.partition(" ")[0], []).append(one)
    cards = [card(area.capitalize(), tag("ul", [_entry(one, visit) for one in found])) for area, found in areas.items()]
    lead = "Each form asks a verb of the command line. What changes something is planned first."
    return Page("Operations", lead, fixed=tag("div", cards, class_="cards"), every_s=0)


def _entry(one: Operation, visit: Visit) -> Markup:
    if not visit.caller.may(one.rule.role):
        return tag("li", one.rule.title, tag("small", f" (needs the role {one.rule.role})"))
    return tag("li", link(path_to("do", one.path), one.rule.title), tag("small", f" {one.in_form(one.summary)}"))


def operation_page(visit: Visit, path: str, fault: str = "") -> Page:
    """The form of one operation, filled with what the address gives."""
    one = operation_of(path)
    if not visit.caller.may(one.rule.role):
        sentence = f"{one.rule.title} needs the role {one.rule.role}, and you have {visit.caller.role}."
        return Page(one.rule.title, sentence, every_s=0, status=403)
    shown = [parameter for parameter in one.parameters if parameter.name != JSON]
    open_ones = [each for each in shown if each.is_required or not each.option or each.name in one.rule.first]
    folded_ones = [each for each in shown if each not in open_ones]
    first, more = ([_input(each, one, visit) for each in some] for some in (open_ones, folded_ones))
    is_open = not first or any(visit.text(each.name) for each in folded_ones)
    is_reading = one.rule.effect is Effect.READS
    label = "Show" if is_reading else "Plan" if one.plans else "Go on"
    folded = tag("details", tag("summary", "More"), more, open=is_open) if more else None
    said = tag("p", fault, class_="error", role="alert") if fault else None
    form = visit.form(path_to("do", one.path), said, first, folded, tag("p", button(label)))
    hint = None if is_reading else "Nothing changes before you have seen what would, and agreed."
    lead = render(one.in_form(one.summary), " ", hint)
    return Page(one.rule.title, lead, fixed=card("What", form), every_s=0, status=400 if fault else 200)


def _input(one: Parameter, operation: Operation, visit: Visit) -> Markup:
    label, help_, given = label_of(one.name), operation.in_form(one.help), visit.text(one.name)
    if one.kind is ValueKind.FLAG:
        checked = given in ("1", "true", "on") if given else bool(one.default)
        box = tag("input", type="checkbox", name=one.name, value="on", checked=checked)
        return tag("p", tag("label", box, f" {label}"), tag("small", f" {help_}"), class_="field")
    if one.is_many:
        place = f"field-{one.name}"
        area = tag("textarea", given, id=place, name=one.name, rows=2, required=one.is_required)
        hint = tag("small", f"{help_} One in each line.")
        return tag("p", tag("label", label, for_=place), area, hint, class_="field")
    kind = "text" if one.kind is ValueKind.TEXT else "number"
    step = {"step": "any"} if one.kind is ValueKind.NUMBER else {}
    default = "" if one.default is None else str(one.default)
    value = given or default
    return field(label, one.name, help_=help_, type=kind, value=value, required=one.is_required, **step)


# -- jobs


def jobs_page(visit: Visit) -> Page:
    """Jobs, the newest first."""
    state, by = visit.text("state"), visit.text("by")
    states = [JobState(state)] if state in set(JobState) else []
    found = visit.store.jobs.page(JobFilter(states, by, visit.text("before")), limit=PAGE_SIZE)
    seen = [row for row in found if may_see(visit.caller, row)]
    rows = [_job_cells(row) for row in seen]
    asked = visit.store.jobs.page(JobFilter([JobState.ASKED]), limit=PAGE_SIZE)
    waiting = [row for row in asked if may_see(visit.caller, row)]
    lead = f"{count_of(waiting)} wait for an approval." if waiting else "No job waits for an approval."
    options = [tag("option", one, value=one, selected=one == state) for one in JobState]
    choice = tag("select", tag("option", "all", value=""), options, name="state", id="state")
    label = tag("label", "State", for_="state")
    narrowed = filters(visit, label, choice, field("By", "by", value=by))
    shown = table(["Job", "Command", "State", "Asked by", "When", "Says"], rows, none="no job", caption="Jobs")
    more = next_page(visit, "before", found[-1].id, len(found)) if found else None
    return Page("Jobs", lead, shown, render(narrowed, more))


def _job_cells(row: JobRow) -> list[Child]:
    known = operations().get(row.operation)
    rank = STATE_RANKS.get(row.state, BEHIND)
    where = link(path_to("jobs", row.id), known.rule.title if known else row.operation)
    asked = tag("code", job_command(row).removeprefix("twinshore ")[:200])
    return [where, asked, badge(rank, row.state), row.requested_by, when(row.created_ms), row.sentence[:200]]


def job_page(visit: Visit, job: str, requests: JobRequests, fault: str = "") -> Page:
    """One job: what it would do, what it does, how it ended."""
    row = requests.job(job, visit.caller)
    one = operation_of(row.operation)
    lines = visit.store.jobs.tail(row.id, LINES_SHOWN)
    switch = _switch_of(visit, row)
    live = render(
        values_table(_facts(row)),
        card("Steps", _switch_steps(switch, visit.now_ms)) if switch else None,
        card("Lines", tag("pre", "\n".join(line.text for line in lines), class_="lines")) if lines else None,
        _plan(row) if row.plan and not has_ended(row) else None,
    )
    said = tag("p", fault, class_="error", role="alert") if fault else None
    fixed = render(said, list(_actions(visit, row, one)), command(job_command(row)))
    lead = render(badge(STATE_RANKS.get(row.state, BEHIND), row.state), " ", STATE_WORDS[row.state])
    page = Page(one.rule.title, lead, live, tag("div", fixed, id="actions", data_state=row.state))
    page.every_s = 0 if has_ended(row) else 1
    page.status = 409 if fault else 200
    return page


def _facts(row: JobRow) -> Iterator[tuple[str, Child]]:
    arguments = json.loads(row.arguments)
    yield "Asked by", render(row.requested_by, ", ", when(row.created_ms))
    for name, value in arguments.items():
        if value not in ("", [], None, False) and name != JSON:
            shown = ", ".join(value) if isinstance(value, list) else "yes" if value is True else str(value)
            yield label_of(name), shown
    if row.reason:
        yield "Reason", row.reason
    if row.approved_by:
        yield "Approved by", row.approved_by
    if row.cancelled_by:
        yield "Cancelled by", row.cancelled_by
    if row.worker:
        yield "Worker", row.worker
    if has_ended(row):
        yield "Ended", when(row.updated_ms)
        yield "Says", row.sentence or "nothing more"
        if row.exit_code is not None:
            yield "Exit code", str(row.exit_code)


def _plan(row: JobRow) -> Markup:
    plan = JobPlan.from_json(row.plan)
    shown = [tag("p", line) for line in plan.shown]
    steps = tag("ol", [tag("li", step) for step in plan.steps]) if plan.steps else None
    remarks = [tag("p", line, class_="remark") for line in plan.remarks]
    return card("Plan", shown, steps, remarks)


def _actions(visit: Visit, row: JobRow, one: Operation) -> Iterator[Child]:
    """What the visitor may do with the job now."""
    place = path_to("jobs", row.id)
    digest = tag("input", type="hidden", name="digest", value=row.digest)
    if row.state is JobState.PLANNED and visit.caller.may(one.rule.role):
        arguments = json.loads(row.arguments)
        name = one.confirmation(arguments)
        danger = one.effect(arguments) is Effect.DESTROYS
        typed = field(f"Type {name} to agree", "typed", required=True, autocomplete="off", spellcheck="false")
        reason = field("Reason, for the audit", "reason")
        agree = button(f"{one.rule.title} now", danger=danger)
        yield card("Agree", visit.form(f"{place}/apply", digest, typed, reason, tag("p", agree)))
    if row.state is JobState.ASKED:
        fault = approval_fault(visit.caller, row)
        if fault:
            yield card("Approve", tag("p", f"It {fault}."))
        else:
            yield card("Approve", visit.form(f"{place}/approve", digest, tag("p", button("Approve", danger=True))))
    if not has_ended(row) and may_cancel(visit.caller, row):
        hint = "It goes back as far as it can." if row.state is JobState.RUNNING else "Nothing has begun yet."
        yield card("Cancel", visit.form(f"{place}/cancel", tag("p", hint), tag("p", button("Cancel the job"))))
    if has_ended(row) and visit.caller.may(one.rule.role):
        yield card("Again", visit.form(f"{place}/again", tag("p", button("Ask for the same again"))))


def _switch_of(visit: Visit, row: JobRow) -> SwitchState | None:
    found = visit.store.switches.of(row.subject) if row.subject else None
    return SwitchState.from_json(found.switch_state) if found else None


def _switch_steps(state: SwitchState, now_ms: int) -> Markup:
    """The steps of a switch, with the pause of its writers so far."""
    steps = list(STEPS[state.kind])
    reached = steps.index(state.step) if state.step in steps else 0
    items = []
    for number, step in enumerate(steps):
        is_done = number < reached or state.ended
        mark = "done" if is_done else "now" if number == reached else "later"
        items.append(tag("li", step.words, class_=f"step {mark}", aria_current="step" if mark == "now" else None))
    held = None
    if state.holds_writers:
        held = tag("p", hold_sentence(state, now_ms), class_="hold", role="status")
    elif state.held_s:
        held = tag("p", f"Writers waited {seconds(state.held_s)}.")
    waits = tag("p", f"It waits: {state.waits}") if state.waits and not state.ended else None
    history = [tag("li", when(entry.at_ms), f" {entry.sentence}") for entry in state.history]
    return render(tag("ol", items, class_="steps"), held, waits, tag("ol", history, class_="history"))


def roles_up_to(role: Role) -> list[Role]:
    return [one for one in Role if role.covers(one)]
