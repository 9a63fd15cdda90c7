"""An examination over real sockets, with a store: what it finds, whose doing it is, and that it changes nothing."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.fleet.incidents import POLICY_STOP
from twinshore.fleet.settings import load_settings
from twinshore.kafka.errors import Code
from twinshore.mirror.lane.marking import marker_id
from twinshore.proof.examining import Examination
from twinshore.proof.job import in_this_process
from twinshore.proof.planning import Wishes
from twinshore.proof.traces import Examined, Trace, as_values, in_words
from twinshore.store import Incident, IncidentKind, LinkIdentity, Receipt, Store, TwinRow, open_store
from twinshore.wire.batch import split_batches
from twinshore.wire.records import Record, encode_batch

COUNT, AT, OURS = 100, 40, 77
LINK = "east->west"


def log(count: int = COUNT) -> list[Record]:
    return [Record(n, n, b"k%d" % n, b"v%d" % n) for n in range(count)]


def written_by(producer_id: int, records: list[Record]) -> bytes:
    return b"".join(encode_batch([one], producer_id=producer_id, base_sequence=one.offset) for one in records)


class Rig:
    def __init__(self, source: SmallBroker, target: SmallBroker, store: Store, settings: Path) -> None:
        self.source, self.target, self.store, self.settings = source, target, store, settings

    def look(self) -> Examined:
        loaded = load_settings(self.settings, {})
        return Examination(loaded, self.store, in_this_process, Wishes(stretch_records=30), 1).look(loaded.links)

    def rewrite(self, producer_id: int, records: list[Record]) -> None:
        """The twin holds these instead, from this writer."""
        data = written_by(producer_id, records)
        self.target.log = [(bytes(view), header) for view, header in split_batches(memoryview(data))]


@contextlib.contextmanager
def rig(folder: Path, source: list[Record], *, policy: str = "delete") -> Iterator[Rig]:
    chance = random.Random(2)
    east = SmallBroker("east", batched(chance, source, COUNT, first=0, most=5))
    west = SmallBroker("west", written_by(OURS, log()))
    east.settings["cleanup.policy"] = policy
    url = f"sqlite:///{folder}/store.db"
    with east.serving() as one, west.serving() as other, open_store(url) as store:
        topic_id = (7).to_bytes(16, "big").hex()
        store.twins.save([TwinRow(LINK, TOPIC, 0, topic_id, topic_id, 0, 0, 1)])
        store.links.save_identity(LinkIdentity(LINK, OURS, 0, "east", "west"))
        text = ["[store]", f'url = "{url}"', f'[links."{LINK}"]', f"topics = ['{TOPIC}']"]
        for cluster in (one, other):
            text += [f"[clusters.{cluster.name}]", f"bootstrap = {list(cluster.bootstrap)}"]
        settings = folder / "twinshore.toml"
        settings.write_text("\n".join(text) + "\n")
        yield Rig(east, west, store, settings)


def spoilt() -> list[Record]:
    return [one._replace(value=b"else") if one.offset == AT else one for one in log()]


def test_where_all_is_well_nothing_is_found(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        found = two.look()
    assert (found.exit_code, found.findings, found.lacks, found.partitions, found.records) == (0, (), (), 1, COUNT)
    (words,) = in_words(found)
    assert words.startswith("nothing found: 1 partitions read whole, 100 records")


@pytest.mark.parametrize(
    ("writer", "trace"),
    [
        (OURS, Trace.OTHER_HISTORY),
        (marker_id(OURS), Trace.OTHER_HISTORY),
        (OURS + 1, Trace.FOREIGN_WRITE),
        (-1, Trace.FOREIGN_WRITE),
    ],
)
def test_whose_doing_a_difference_is_follows_from_who_wrote_it(tmp_path: Path, writer: int, trace: Trace) -> None:
    with rig(tmp_path, log()) as two:
        two.rewrite(writer, spoilt())
        found = two.look()
        # What is proven, or open in the ledger, is looked at all the same, and what is found is told to nobody.
        assert two.store.proofs.of() == () and two.store.ledger.rows() == () and two.store.key_looks.of() == ()
        told = Incident(LINK, TOPIC, 0, IncidentKind.TRUNCATION, AT - 5, -1, POLICY_STOP, "known")
        number = two.store.ledger.add(told, now_ms=1).id
        again = two.look()
    (one,) = found.findings
    assert (one.trace, one.from_offset, found.exit_code, one.rows) == (trace, AT, 1, ())
    assert again.findings == (replace(one, rows=(number,)),)
    assert any(f"open in the ledger: row {number}" in line for line in in_words(again))


def test_behind_a_lost_beginning_the_rest_is_looked_at(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        two.rewrite(OURS, spoilt())
        two.target.start = 10
        found = two.look()
    assert [(one.trace, one.from_offset, one.to_offset) for one in found.findings] == [
        (Trace.LOST_BEGINNING, 0, 10),
        (Trace.OTHER_HISTORY, AT, -1),
    ]
    (words, *_) = in_words(found)
    assert words.startswith("FOUND traces in 1 partitions")


def test_a_twin_that_begins_later_where_nobody_sees_anything_has_lost_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, log()[10:]) as two:
        two.rewrite(OURS, log()[10:])
        two.target.start = 10
        assert two.look().findings == ()


def test_owed_deletions_are_found_with_their_keys(tmp_path: Path) -> None:
    with rig(tmp_path, [one for one in log() if one.offset not in (3, 9)], policy="compact") as two:
        found = two.look()
    (one,) = found.findings
    assert (one.trace, one.from_offset, one.to_offset) == (Trace.DELETIONS_OWED, 3, 10)
    assert as_values(found)["findings"][0]["keys"] == [{"offset": 3, "key": "k3"}, {"offset": 9, "key": "k9"}]


def test_what_cannot_be_read_is_not_well(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        two.source.faults.extend([int(Code.TOPIC_AUTHORIZATION_FAILED)] * 30)
        found = two.look()
    assert found.exit_code == 2 and "Read on the topic" in found.lacks[0].sentence
    assert next(in_words(found)).startswith("cannot tell of all")


def test_bytes_that_fail_their_checksum_are_nobodys_writing(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        view, header = two.target.log[AT]
        two.target.log[AT] = (view[:-1] + bytes([view[-1] ^ 1]), header)
        (one,) = two.look().findings
    assert (one.trace, one.from_offset) == (Trace.DIFFERENT, AT)


def carried(two: Rig, upto: int) -> None:
    two.store.receipts.record(
        [
            Receipt(
                link=LINK,
                topic=TOPIC,
                partition=0,
                from_offset=0,
                to_offset=upto,
                records=upto,
                bytes=10,
                batches=1,
                source_end=COUNT,
                first_ms=0,
                last_ms=1,
                lag_records=0,
            )
        ]
    )


def test_an_emptied_twin_is_not_well(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        held, two.target.log = two.target.log, []
        unknown = two.look()
        carried(two, COUNT)
        found = two.look()
        two.target.log = held[:AT]
        cut = two.look()
    (lack,) = unknown.lacks
    assert unknown.exit_code == 2 and "not there: offsets 0 to 99" in lack.sentence and unknown.partitions == 0
    (lack,) = found.lacks
    assert found.exit_code == 2 and lack.sentence.endswith("though they were carried")
    assert next(in_words(found)).startswith("cannot tell of all: 0 partitions read whole")
    (lack,) = cut.lacks
    assert cut.exit_code == 2 and f"not there: offsets {AT} to 99" in lack.sentence


def test_a_twin_that_is_behind_lacks_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        two.target.log = two.target.log[:AT]
        carried(two, AT)
        found = two.look()
    assert (found.exit_code, found.lacks, found.partitions, found.records) == (0, (), 1, AT)


def test_what_the_link_does_not_carry_is_told(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        two.store.forget_topic(LINK, TOPIC)
        found = two.look()
    (lack,) = found.lacks
    assert (found.exit_code, found.partitions, lack.partition) == (
        2,
        0,
        -1,
    ) and "has never carried it" in lack.sentence


def test_nothing_that_was_looked_at_is_not_well() -> None:
    nothing = Examined((), (), 0, 0, 0, 0.1)
    assert nothing.exit_code == 2 and next(in_words(nothing)).startswith("cannot tell")


def test_what_was_not_answered_is_named(tmp_path: Path) -> None:
    with rig(tmp_path, log()) as two:
        loaded = load_settings(two.settings, {})
        stops = iter([False, False])
        stopped = Examination(
            loaded, two.store, in_this_process, Wishes(stretch_records=30), 1, lambda: next(stops, True)
        ).look(loaded.links)
    assert stopped.exit_code == 2 and stopped.partitions == 0
    assert any("stopped before all was read: offsets " in lack.sentence for lack in stopped.lacks)
