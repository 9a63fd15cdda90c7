"""What was proven of each partition: on three databases."""

from __future__ import annotations

from dataclasses import replace

from twinshore.store import ProofPiece, ProofRow, ProofState, Store
from twinshore.store.tables import proof_books

LINK = "east->west"
ROW = ProofRow(
    link=LINK,
    topic="orders",
    partition=3,
    way="exact",
    state=ProofState.IDENTICAL,
    from_offset=7,
    to_offset=2**40,
    target_offset=-1,
    source_end=2**40 + 5,
    records=2**40 - 7,
    digest="f" * 32,
    sentence="",
    source_topic_id="aa" * 16,
    target_topic_id="bb" * 16,
    proven_ms=1_700_000_000_000,
    pieces=(
        ProofPiece(7, 2**39, 2**39 - 7, "f" * 32, 2**45, 1_700_000_000_000),
        ProofPiece(2**39, 2**40, 2**39, "", 0, 0, 2**41),
    ),
    ledger_id=2**33,
)


def test_the_last_word_on_a_partition_stands(store: Store) -> None:
    assert store.proofs.of(LINK) == ()
    other = replace(ROW, partition=1)
    store.proofs.save([ROW, other])
    assert store.proofs.of(LINK) == (other, ROW)
    told = replace(ROW, state=ProofState.DIFFERS, sentence='{"kind": "changed value", "shown": "\x00é"}', to_offset=9)
    store.proofs.save([told])
    (_, found) = store.proofs.of(LINK)
    assert found == replace(told, sentence=told.sentence.replace("\x00", "\ufffd"))


def test_links_and_names_are_kept_apart(store: Store) -> None:
    rows = [ROW, replace(ROW, topic="Orders"), replace(ROW, link="west->east")]
    store.proofs.save(rows)
    assert store.proofs.of("west->east") == (rows[2],)
    assert set(store.proofs.of()) == set(rows)
    store.proofs.save([])
    store.forget_topic(LINK, "orders")
    assert store.proofs.of(LINK) == (rows[1],), "a topic that begins again has nothing proven"


def test_a_proof_of_an_older_version_has_no_parts(store: Store) -> None:
    store.proofs.save([ROW])
    store._database.write(lambda connection: connection.execute(proof_books.delete()))
    (found,) = store.proofs.of()
    assert found == replace(ROW, pieces=(), ledger_id=0)
    assert (found.read_ms, ROW.read_ms) == (0, 0)
    young = replace(ROW, pieces=ROW.pieces[:1], to_offset=2**39)
    assert young.read_ms == 1_700_000_000_000
    empty = replace(ROW, to_offset=7, source_end=7)
    assert empty.read_ms == ROW.proven_ms, "nothing is older than the look that found nothing"
    assert replace(ROW, to_offset=7, pieces=()).read_ms == 0, "the source has records, and none of them was proven"
