"""Quotas and SCRAM users: what follows, what is left alone, what can only be said."""

from __future__ import annotations

import pytest

from testkit.errors import mentions
from twinshore.kafka.protocol.access_control import QuotaEntity, ScramUser
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import QuotaChange, UserPlan, plan_quotas, plan_users

ANNA = QuotaEntity((("user", "anna"),))
RATE = "producer_byte_rate"


@pytest.mark.parametrize(
    ("source", "target", "written", "expected"),
    [
        (5.0, None, None, QuotaChange(ANNA, RATE, None, 5.0)),
        (5.0, 5.0, None, None),
        (5.0, 4.0, 4.0, QuotaChange(ANNA, RATE, 4.0, 5.0)),
        (5.0, 4.0, None, None),
        (5.0, 4.0, 3.0, None),
        (None, 4.0, 4.0, QuotaChange(ANNA, RATE, 4.0, None)),
        (None, 4.0, 3.0, None),
        (None, 4.0, None, None),
        (None, None, 4.0, None),
    ],
)
def test_only_what_we_wrote_is_changed_or_taken_back(
    source: float | None, target: float | None, written: float | None, expected: QuotaChange | None
) -> None:
    def side(value: float | None) -> dict[QuotaEntity, dict[str, float]]:
        return {} if value is None else {ANNA: {RATE: value}}

    known = {} if written is None else {(ANNA, RATE): written}
    plan = plan_quotas(side(source), side(target), known, "mirror")
    assert plan.changes == (() if expected is None else (expected,))
    assert bool(plan.forget) is (source is None and written is not None and target != written)
    assert bool(plan.remarks) is (source is not None and target not in (None, source) and written != target)


def test_quotas_of_addresses_and_of_the_mirror_itself_stay_where_they_are() -> None:
    here = {
        QuotaEntity((("ip", "10.0.0.1"),)): {"connection_creation_rate": 3.0},
        QuotaEntity((("client-id", ""), ("user", "mirror"))): {RATE: 1.0},
        QuotaEntity((("user", ""),)): {RATE: 9.0},
    }
    plan = plan_quotas(here, {}, {}, "mirror")
    assert [str(one.as_change()) for one in plan.changes] == ["quota producer_byte_rate of user (default): 9"]
    assert len(plan_quotas(here, {}, {}, "").changes) == 2


def test_a_quota_survives_its_way_through_the_store() -> None:
    key = (QuotaEntity((("client-id", ""), ("user", 'a"b'))), RATE)
    assert decisions.quota_from_text(decisions.quota_to_text(key)) == key


def test_users_are_made_where_their_secret_is_known_and_named_where_it_is_not() -> None:
    source = [ScramUser(name, "SCRAM-SHA-256", 8192) for name in ("anna", "bert", "mirror", "carl")]
    target = [ScramUser("carl", "SCRAM-SHA-256", 4096), ScramUser("anna", "SCRAM-SHA-512", 4096)]
    plan = plan_users(source, target, {"anna", "zoe"}, "mirror", ())
    assert plan.make == (source[0],), "of a mechanism that the target lacks; others' iterations are theirs"
    assert [str(one) for one in plan.changes()] == ["scram user anna: SCRAM-SHA-256 with 8192 iterations"]
    assert [(one.subject, mentions(one.sentence, "SCRAM-SHA-256")) for one in plan.remarks] == [
        ("bert", True),
        ("zoe", False),
    ]


def test_a_user_whom_the_target_had_and_has_no_more_is_not_made_again() -> None:
    anna, other = ScramUser("anna", "SCRAM-SHA-256", 8192), ScramUser("anna", "SCRAM-SHA-512", 8192)
    plan = plan_users([anna, other], [anna], {"anna"}, "mirror", ())
    assert (plan.make, plan.seen) == ((other,), (("anna", "SCRAM-SHA-256"),))
    seen = {("anna", "SCRAM-SHA-256"), ("anna", "SCRAM-SHA-512")}
    assert plan_users([anna, other], [anna, other], {"anna"}, "mirror", seen) == UserPlan((), ())
    revoked = plan_users([anna, other], [other], {"anna"}, "mirror", seen)
    assert (revoked.make, revoked.seen, revoked.forget) == ((), (), ())
    (remark,) = revoked.remarks
    assert mentions(str(remark), "removed", "SCRAM-SHA-256")
    # Whom the source made anew after it had none is another one.
    gone = plan_users([], [], {"anna"}, "mirror", seen)
    assert set(gone.forget) == seen


def test_a_user_survives_the_way_through_the_store() -> None:
    key = ('a"b', "SCRAM-SHA-256")
    assert decisions.user_from_text(decisions.user_to_text(key)) == key
