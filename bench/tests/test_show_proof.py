"""The claims about proofs: each has its trial, and what is hidden for them differs in one thing only."""

from __future__ import annotations

import pytest

from bench.measure.proof import SPOILT, Found, Speed, Spoil, spoilt
from bench.show.proof import claims
from testkit.loader import lz4
from twinshore.kafka.protocol.record_batch import Record, check_crc, decode_batch, split_batches
from twinshore.proof.core.compare import first_difference
from twinshore.proof.core.model import DifferenceKind


def records(data: bytes) -> list[Record]:
    ((view, header),) = split_batches(memoryview(data))
    check_crc(view, header)
    return [record._replace(offset=place) for place, record in enumerate(decode_batch(view, header))]


@pytest.mark.parametrize(("kind", "spoil"), SPOILT, ids=[kind for kind, _ in SPOILT])
def test_what_is_hidden_is_of_its_kind(kind: DifferenceKind, spoil: Spoil) -> None:
    batch = lz4().batches[0]
    found = first_difference(records(batch.data), records(spoilt(batch, spoil)))
    assert found is not None
    assert (found.kind, found.offset) == (kind, 7)


def test_claims_fall_short_when_something_is_missed_or_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Speed("records", 10, 4.9, 40.0, 3.0, 1.0, 2.0)
    monkeypatch.setattr("bench.show.proof.run_speed", lambda *_: [slow, Speed("others", 10, 5.0, 40.0, 3.0, 1.0, 2.0)])
    monkeypatch.setattr("bench.show.proof.run_find", lambda *_: Found(10, ("a", "b"), ("b at 7",), 1.0))
    by_name = {claim.name: claim for claim in claims(1)}
    assert not by_name["proof-speed-lz4"].run(False).passed
    assert by_name["proof-speed-plain"].run(False).passed
    found = by_name["proof-finds"].run(False)
    assert not found.passed and "b at 7" in found.figure
