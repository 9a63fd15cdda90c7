"""A difference that was found stays known, also where all is proven again, until a proof has gone past it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import SmallBroker
from tests.proof.test_proving import AT, COUNT, log, rig, spoilt
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import split_batches
from twinshore.proof.core.report import describe_report, exit_code


@pytest.mark.parametrize("most", [5, 1_000])
def test_what_a_twin_has_lost_of_its_beginning_is_told_and_the_rest_is_compared_also_again(
    tmp_path: Path, most: int
) -> None:
    """Records are deleted in the midst of a batch too; a broker goes on to hand such a batch out whole."""
    with rig(tmp_path, log(), log(), most) as two:
        assert exit_code(two.round()) == 0
        two.target.start = AT
        for again in (False, True, False, True):
            report = two.round(again=again)
            (one,) = report.partitions
            assert (exit_code(report), one.troubles) == (1, ()), "\n".join(describe_report(report))
            row = one.row
            assert (row.state, row.from_offset, row.to_offset, row.records) == ("differs", AT, COUNT, COUNT - AT)
            assert one.compared == (COUNT - AT if again else 0), "what was proven of the rest stands"
            assert "DIFFERS at offset 0: missing record: " in "\n".join(describe_report(report))
            (opened,) = two.store.incidents.rows(open_only=True)
            assert opened.incident.from_offset == 0
        spoil(two.target, AT + 20)
        report = two.round(again=True)
        (row,) = (one.row for one in report.partitions)
        assert (exit_code(report), row.state, row.from_offset, row.to_offset) == (1, "differs", AT, AT + 20)
        assert f"at offset {AT + 20} both sides part too" in row.sentence
        two.source.start = AT
        assert exit_code(two.round()) == 1
        two.target.log = two.source.log
        assert exit_code(two.round()) == 0
        (row,) = two.store.proofs.of()
        assert (row.state, row.from_offset, row.to_offset, row.records) == ("identical", AT, COUNT, COUNT - AT)
        assert two.store.incidents.rows(open_only=True) == ()


def spoil(broker: SmallBroker, offset: int) -> None:
    """One record is another from now on."""
    others = [one._replace(value=b"else") if one.offset == offset else one for one in log()]
    whole = batched(random.Random(1), others, COUNT, first=0)
    broker.log = [(bytes(view), header) for view, header in split_batches(memoryview(whole))]


def test_a_difference_that_was_not_gone_past_is_known_still_after_all_was_proven_again(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round()
        whole = two.target.log
        two.target.log = [one for one in whole if one[1].last_offset < AT]
        for again in (False, True, True, False):
            report = two.round(again=again)
            assert exit_code(report) == 1, "\n".join(describe_report(report))
            assert len(two.store.incidents.rows(open_only=True)) == 1
        two.target.log = whole
        assert exit_code(two.round(again=True)) == 0
        assert two.store.incidents.rows(open_only=True) == ()


def test_trouble_below_a_known_difference_does_not_make_it_unknown(tmp_path: Path) -> None:
    with rig(tmp_path, log(), spoilt()) as two:
        assert exit_code(two.round()) == 1
        two.target.faults.append(int(Code.topic_authorization_failed))
        report = two.round(again=True)
        assert exit_code(report) == 1 and report.partitions[0].troubles, "\n".join(describe_report(report))
        assert exit_code(two.round()) == 1
        (opened,) = two.store.incidents.rows(open_only=True)
        assert opened.incident.from_offset == AT
