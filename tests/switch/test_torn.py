"""Which groups a forced switch may tear, and how far."""

from __future__ import annotations

from pathlib import Path

from testkit.errors import mentions
from twinshore.switch.core.takeover import InconsistentGroup, assess_group, describe_torn_transactions

TOPICS = ("orders", "totals", "counter-counts-changelog", "counter-by-key-repartition")
RULES = (("counter", ("{group}-.*", "totals")),)
PLACES = {("orders", 0): 40, ("orders", 1): 50, ("counter-by-key-repartition", 0): 7, ("other", 0): 1}
SPANS = {
    ("orders", 0): (0, 45),
    ("orders", 1): (0, 50),
    ("counter-by-key-repartition", 0): (5, 9),
    ("other", 0): (0, 100),
}


def found(group: str, rules: tuple[tuple[str, tuple[str, ...]], ...] = RULES) -> InconsistentGroup | None:
    return assess_group(group, rules, TOPICS, PLACES, SPANS)


def test_where_outputs_name_all_it_reads_some_again() -> None:
    one = found("counter")
    assert one == InconsistentGroup("counter", frozenset(TOPICS) - {"orders"}, frozenset(), 7)
    assert one.sentence() == (
        "group counter may be torn: it reads up to 7 offsets again, and counter-by-key-repartition,"
        " counter-counts-changelog, totals may hold already what it wrote of these, and of unreplicated records"
    )


def test_internal_topics_that_no_outputs_name_are_known_by_their_names() -> None:
    one = found("counter", (("counter", ("totals",)),))
    assert one is not None
    assert one.named == {"totals"}
    assert one.unnamed == {"counter-counts-changelog", "counter-by-key-repartition"}


def test_who_only_reads_is_not_torn() -> None:
    assert found("readers") is None
    assert found("count") is None, "an application with a longer name is another one"
    assert assess_group("counter", RULES, TOPICS, {("other", 0): 1}, SPANS) is None, "it reads nothing that moves"


def test_a_place_beyond_the_end_reads_nothing_again() -> None:
    one = assess_group("counter", RULES, TOPICS, {("orders", 0): 60}, {("orders", 0): (0, 45)})
    assert one is not None
    assert one.again == 0


def test_where_no_place_has_crossed_the_whole_partition_counts() -> None:
    places = {("orders", 0): 40, ("other", 0): 1}
    one = assess_group("counter", RULES, TOPICS, places, {**SPANS, ("orders", 2): (7, 7)})
    assert one is not None
    assert one.again == 5 + 50 + 4, "of what is there: the log's own beginning counts"
    assert one.placeless == ("counter-by-key-repartition-0", "orders-1"), "in an empty one nothing can be read again"
    assert mentions(one.sentence(), "counter-by-key-repartition-0, orders-1", "auto.offset.reset")
    readers = assess_group("readers", (("readers", ("totals",)),), TOPICS, places, SPANS)
    assert readers is not None
    assert readers.placeless == ("orders-1",), "what another application wrote for itself nobody else reads"


def test_of_transactions_the_preview_and_the_page_say_the_same() -> None:
    """The mirror copies below the last stable offset: what is open has not crossed at all."""
    said = describe_torn_transactions("west")
    page = (Path(__file__).parents[2] / "docs" / "switch.md").read_text(encoding="utf-8")
    tears = " ".join(page.partition("## What a forced switch can tear")[2].partition("\n## ")[0].split())
    for same in (
        "a transaction that was open",
        "was committed",
        "replicated in part",
        "is torn: its replicated records stay",
    ):
        assert same in said
    for same in (
        "transaction that was still open is not torn",
        "It is torn: its replicated records stay",
        "no record at",
    ):
        assert same in tears
