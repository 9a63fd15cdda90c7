"""Sets of topic names against Python's own matching, on random names and on the examples that are found."""

from __future__ import annotations

import random
import re

import pytest

from twinshore.replication.core.filters import (
    EVERYTHING,
    StrangeError,
    Term,
    apart,
    beginnings,
    blank,
    both,
    derived,
    example,
    names_of,
    without,
)

PATTERNS = [
    "orders",
    "orders.*",
    r"east\..*",
    "(?!__).*",
    "a|b|ab",
    "(a|b)*c",
    "[a-c]{2,4}",
    "[^a]b?",
    r"\w+\.\d+",
    "^abc$",
    "(?i)AbC.*",
    "a(?=b).*c",
    "(ab(?!c)|a).*",
    "(a|ab)(c|bcd)",
    "((a*)b)*",
    ".",
    r"\D\.b",
]


def holds(term: Term, name: str) -> bool:
    for character in name:
        term = derived(term, character)
    return blank(term)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_set_holds_the_names_that_the_expression_matches_whole(pattern: str) -> None:
    seed = 7
    chance = random.Random(seed)
    names = {"".join(chance.choice("abcABC.1_") for _ in range(chance.randrange(1, 6))) for _ in range(600)}
    names |= {"orders", "orders-2", "east.orders", "__x", "abcd", "abc"}
    term = names_of(pattern)
    wrong = [name for name in sorted(names) if holds(term, name) != bool(re.fullmatch(pattern, name))]
    assert wrong == [], f"seed {seed}"


@pytest.mark.parametrize("one", PATTERNS)
@pytest.mark.parametrize("other", PATTERNS)
def test_an_example_of_two_sets_is_matched_by_both(one: str, other: str) -> None:
    found = example(both(names_of(one), names_of(other)))
    assert found is None or (re.fullmatch(one, found) and re.fullmatch(other, found))
    short = [a + b for a in "abc." for b in ("", *"abc.1")]
    if found is None:
        assert not [name for name in short if re.fullmatch(one, name) and re.fullmatch(other, name)]


@pytest.mark.parametrize("one", PATTERNS)
@pytest.mark.parametrize("other", PATTERNS)
def test_sets_that_a_quick_look_tells_apart_have_no_name_in_common(one: str, other: str) -> None:
    sets = [names_of(one), names_of(other)]
    if apart(*sets):
        assert example(both(*sets)) is None
    found = example(both(*sets))
    assert found is None or all(any(found.startswith(word) for word in beginnings(term)) for term in sets)


def test_a_quick_look_tells_beginnings_apart() -> None:
    assert beginnings(names_of(r"(east|west)\.o.*")) == {"east.o", "west.o"}
    assert apart(names_of(r"east\..*"), both(names_of(r"west\..*"), without(names_of(".*x"))))
    assert not apart(names_of("orders"), names_of("orders-2.*"))
    assert not apart(names_of("[^a]b?"), names_of("b"))
    assert apart(names_of("a"), both(names_of("b"), names_of("c")))


def test_exclusions_are_part_of_a_set() -> None:
    assert example(both(names_of("orders.*"), without(names_of("orders.+")))) == "orders"
    assert example(both(names_of("orders"), without(names_of("ord.*")))) is None
    assert example(both(EVERYTHING, without(names_of(".*")))) is None
    assert example(names_of("[Z]{3}")) == "ZZZ"


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?<=a)b", "(a(?=b))*", r"\bab", "a{400}"])
def test_what_no_set_of_names_can_say_is_said_to_be_strange(pattern: str) -> None:
    with pytest.raises(StrangeError):
        names_of(pattern)
