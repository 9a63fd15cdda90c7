"""Whether a consumer commits by itself, and what a place is worth once its topic has changed homes."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from twinshore.client.core.delivered import consumer_mode, translate_offsets
from twinshore.routing.core.home_records import HomeRecord


def line(term: int, *points: int) -> HomeRecord:
    return HomeRecord(topic="orders", home="west", cluster_id="id", term=term, points=points)


@pytest.mark.parametrize("word", ["false", "False", "FALSE", "f", "F", "0", 0, False])
def test_it_commits_nothing_by_itself_by_any_word_that_librdkafka_takes_for_no(word: object) -> None:
    settings = {"group.id": "billing", "enable.auto.commit": word}
    Consumer(settings).close()  # It takes the word.
    assert not consumer_mode(settings).commits


@pytest.mark.parametrize("settings", [{}, *({"enable.auto.commit": word} for word in ("true", "T", "1", 1, True))])
def test_it_commits_by_itself_otherwise(settings: dict[str, object]) -> None:
    assert consumer_mode(settings).commits


def test_a_commit_without_offsets_takes_what_was_handed_out_unless_the_application_says_no() -> None:
    assert consumer_mode({}).stores
    assert not consumer_mode({"enable.auto.offset.store": "false"}).stores


@pytest.mark.parametrize("known", [None, line(1), line(2, 5)])
def test_in_its_own_term_a_place_is_what_it_was(known: HomeRecord | None) -> None:
    assert translate_offsets({0: 7}, 2, 2, known) == {0: 7}


def test_after_one_change_it_lies_no_further_than_where_the_homes_part() -> None:
    assert translate_offsets({0: 7, 1: 7, 2: 0}, 1, 2, line(2, 5, 9, 9)) == {0: 5, 1: 7, 2: 0}


def test_of_a_partition_that_was_not_there_when_it_changed_homes_nobody_knows() -> None:
    assert translate_offsets({0: 7, 1: 7}, 1, 2, line(2, 9)) == {0: 7}


@pytest.mark.parametrize(
    ("was", "now", "known"),
    [(1, 3, line(3, 9)), (1, 2, None), (1, 2, line(3, 9)), (3, 2, line(2, 9)), (1, 0, line(2, 9))],
    ids=["changed twice", "nothing heard", "changed again", "of a later term", "between two homes"],
)
def test_where_nobody_knows_nothing_is_said(was: int, now: int, known: HomeRecord | None) -> None:
    assert translate_offsets({0: 7}, was, now, known) == {}
