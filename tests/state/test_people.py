"""People of an identity provider, and what is said of alarms: on three databases."""

from __future__ import annotations

from dataclasses import replace

from twinshore.state.core.platform_values import PersonRow, SessionRow
from twinshore.state.core.values import NO_MARKS, AlarmRow, AuditRow
from twinshore.state.store import Store

GRACE = PersonRow(name="grace", role="operator", password="", made_by="the company", made_ms=1, identity="a" * 64)
TOLD = [AuditRow(1, "", "person", "grace", "", "operator", "done", "the company")]


def test_a_person_is_known_by_identity_and_never_by_name(store: Store) -> None:
    local = replace(GRACE, password="hash", identity=None)
    store.people.save(local)
    store.people.save(replace(local, name="hopper"))
    assert store.people.add_by_identity(GRACE, TOLD) is None, "another person has the name"
    assert store.people.of("grace") == local and store.audit.rows() == ()
    second = replace(GRACE, name="grace 2")
    assert store.people.add_by_identity(second, TOLD) == second
    assert store.people.add_by_identity(replace(GRACE, name="grace 3", role="admin"), TOLD) == second, "known already"
    assert store.people.by_identity("a" * 64) == second and store.people.by_identity("b" * 64) is None
    assert (len(store.people.all()), len(store.audit.rows())) == (3, 1)


def test_a_role_is_given_to_the_person_that_was_seen(store: Store) -> None:
    store.people.add_by_identity(GRACE, [])
    assert not store.people.change(GRACE, {"role": "viewer"}, TOLD), "no admin would be left"
    assert store.people.change(GRACE, {"role": "viewer"}, TOLD, keeps_admin=False)
    assert not store.people.change(GRACE, {"role": "admin"}, TOLD)
    found = store.people.of("grace")
    assert found is not None and (found.role, len(store.audit.rows())) == ("viewer", 1), "changed since"
    store.people.log_in(SessionRow(digest="d", person="grace", role="viewer", csrf="c", made_ms=1, ends_ms=9), 1)
    store.people.end_logins("grace", TOLD)
    assert store.people.session("d", 2) == (None, None)
    store.people.save(replace(found, disabled_ms=5))
    assert not store.people.change(found, {"role": "admin"}, TOLD)
    assert store.people.of("grace") == replace(found, disabled_ms=5)


def test_marks_of_an_alarm_end_with_the_alarm(store: Store) -> None:
    row = store.delay.raise_alarm(AlarmRow("east->west", "stopped", "orders", "", "orders is stopped", 5))
    marks = {**NO_MARKS, "acknowledged_by": "ada", "reason": "x" * 1_000, "silent_until_ms": 9}
    assert store.delay.mark_alarm(row.id, marks, TOLD[0])
    assert store.delay.alarms() == (replace(row, **marks),)
    assert store.delay.clear_alarm(row.id, 7)
    assert store.delay.alarms() == (replace(row, cleared_ms=7),)
    assert not store.delay.mark_alarm(row.id, marks, TOLD[0]) and len(store.audit.rows()) == 1
