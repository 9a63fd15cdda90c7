"""What speaks against deleting a twin: operators' words, what it holds, how many would go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.config.model import Link, LinkControl
from twinshore.replication.sync.core.lifecycle import (
    ALL_TOPICS,
    Approval,
    TwinRange,
    approval_from_json,
    describe_ranges,
    explain_too_many,
    explain_unsafe,
    find_objection,
    find_unreplicated,
)

LINK = Link("east", "west", exclude=("tmp.*",))


@pytest.mark.parametrize(
    ("link", "never", "kept", "troubles", "why"),
    [
        (LINK, "[safety] never_delete is set", (), (), "[safety] never_delete is set"),
        (LINK, "", ("orders",), (), "an operator said `twinshore mirror keep`"),
        (LINK, "", (ALL_TOPICS,), (), "an operator said `twinshore mirror keep`"),
        (LINK, "", (), ("?",), "an operator's override of the link is invalid, or clashes with another link"),
        (replace(LINK, control=LinkControl(paused=True)), "", (), (), "the link is paused"),
        (replace(LINK, control=LinkControl(paused_topics=("ord.*",))), "", (), (), "the topic is paused"),
        (replace(LINK, exclude=("orders",)), "", (), (), "the link's filters do not admit the topic"),
        (replace(LINK, topics=("bills",)), "", (), (), "the link's filters do not admit the topic"),
        (replace(LINK, control=LinkControl(paused_topics=("bills",))), "", ("bills",), (), ""),
    ],
)
def test_who_is_asked_before_a_twin_goes(
    link: Link, never: str, kept: tuple[str, ...], troubles: tuple[str, ...], why: str
) -> None:
    assert find_objection(link, "orders", never=never, kept=kept, troubles=troubles) == why


@pytest.mark.parametrize(
    ("waiting", "lost", "known", "asked"),
    [
        (1, 1, 1, False),
        (0, 9, 9, False),
        (2, 2, 2, True),
        (1, 2, 2, True),
        (2, 2, 3, False),
        (5, 5, 9, False),
        (6, 6, 90, True),
    ],
)
def test_so_many_at_once_need_a_word(waiting: int, lost: int, known: int, asked: bool) -> None:
    assert bool(explain_too_many(waiting, lost, known, 5)) is asked


def test_what_the_link_did_not_carry() -> None:
    spans = [
        TwinRange(0, 0, 10, 10, 10),
        TwinRange(1, 5, 30, 10, 10),
        TwinRange(2, 40, 40, 0, 0),
        TwinRange(3, 7, 9, 0, 0),
    ]
    assert find_unreplicated(spans) == [(1, 10, 29), (3, 7, 8)]
    assert find_unreplicated(spans, {1: 20, 3: 9}) == [(1, 20, 29)]
    assert explain_unsafe("a", spans).startswith("a-1 holds offsets 10 to 29")
    assert explain_unsafe("a", [spans[0], spans[2]]) == "", "an empty log holds nothing, wherever it begins"


def test_ranges_of_many_partitions_are_cut_short() -> None:
    many = [TwinRange(number, 0, 5, 5, 5) for number in range(30)]
    assert describe_ranges("a", many).endswith("a-19 0 to 4 and 10 partitions more")
    assert describe_ranges("a", []) == "its twin holds nothing"


def test_a_word_survives_its_way_through_the_store() -> None:
    word = Approval(7, "aa", ((0, 10), (3, 4)))
    assert approval_from_json(word.to_json(), 7) == word
    for damaged in ("", "[]", "{}", '{"source_id": "a", "ends": [[1]]}', '{"source_id": "a", "ends": 3}'):
        assert approval_from_json(damaged, 7) is None
