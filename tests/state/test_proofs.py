"""What was proven of each partition: on three databases."""

from __future__ import annotations

from dataclasses import replace

from twinshore.state.core.values import ProofRow, ProofState
from twinshore.state.store import Store

LINK = "east->west"
ROW = ProofRow(
    link=LINK,
    topic="orders",
    partition=3,
    mode="exact",
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
    last_incident_id=2**33,
    bytes_read=2**45,
    reread_offset=2**39,
    reread_target=2**41,
    reread_end=2**40,
    reread_ms=1_700_000_000_000,
)


def saved(row: ProofRow) -> ProofRow:
    return replace(row, revision=row.revision + 1)


def test_a_row_is_saved_only_by_whoever_has_read_what_stands(store: Store) -> None:
    assert store.proofs.of(LINK) == ()
    other = replace(ROW, partition=1)
    assert store.proofs.save([ROW, other]) == ()
    assert store.proofs.of(LINK) == (saved(other), saved(ROW))
    told = replace(ROW, state=ProofState.DIFFERS, sentence='{"kind": "changed value", "shown": "\x00é"}', to_offset=9)
    assert store.proofs.save([told, saved(other)]) == (told,), "it rests on no row, and there is one"
    assert store.proofs.of(LINK) == (saved(saved(other)), saved(ROW))
    assert store.proofs.save([saved(told)]) == ()
    (_, found) = store.proofs.of(LINK)
    assert found == replace(told, sentence=told.sentence.replace("\x00", "\ufffd"), revision=2)
    assert store.proofs.save([saved(ROW)]) == (saved(ROW),), "another has changed the row meanwhile"
    store.forget_topic(LINK, "orders")
    assert store.proofs.save([found]) == (found,) and store.proofs.of() == (), "what was forgotten does not come back"


def test_links_and_names_are_kept_apart(store: Store) -> None:
    rows = [ROW, replace(ROW, topic="Orders"), replace(ROW, link="west->east")]
    store.proofs.save(rows)
    assert store.proofs.of("west->east") == (saved(rows[2]),)
    assert set(store.proofs.of()) == {saved(row) for row in rows}
    store.proofs.save([])
    store.forget_topic(LINK, "orders")
    assert store.proofs.of(LINK) == (saved(rows[1]),), "a topic that begins again has nothing proven"


def test_nothing_is_older_than_the_look_that_found_nothing() -> None:
    assert (ROW.read_ms, replace(ROW, oldest_ms=7).read_ms) == (0, 7)
    empty = replace(ROW, to_offset=7, source_end=7)
    assert empty.read_ms == ROW.proven_ms
    assert replace(ROW, to_offset=7, oldest_ms=7).read_ms == 0, "the source has records, and none of them was proven"
