"""Sets of topic names against Python's own matching, on random names and on the examples that are found."""

from __future__ import annotations

import random
import re

import pytest

from twinshore.replication.core.filters import (
    ALL_NAMES,
    NameSet,
    UnsupportedPatternError,
    complement_of,
    derivative_of,
    find_example,
    have_disjoint_prefixes,
    intersection_of,
    is_nullable,
    names_matching,
    prefixes_of,
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


def holds(term: NameSet, name: str) -> bool:
    for character in name:
        term = derivative_of(term, character)
    return is_nullable(term)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_set_holds_the_names_that_the_expression_matches_whole(pattern: str) -> None:
    seed = 7
    chance = random.Random(seed)
    names = {"".join(chance.choice("abcABC.1_") for _ in range(chance.randrange(1, 6))) for _ in range(600)}
    names |= {"orders", "orders-2", "east.orders", "__x", "abcd", "abc"}
    term = names_matching(pattern)
    wrong = [name for name in sorted(names) if holds(term, name) != bool(re.fullmatch(pattern, name))]
    assert wrong == [], f"seed {seed}"


@pytest.mark.parametrize("one", PATTERNS)
@pytest.mark.parametrize("other", PATTERNS)
def test_an_example_of_two_sets_is_matched_by_both(one: str, other: str) -> None:
    found = find_example(intersection_of(names_matching(one), names_matching(other)))
    assert found is None or (re.fullmatch(one, found) and re.fullmatch(other, found))
    short = [a + b for a in "abc." for b in ("", *"abc.1")]
    if found is None:
        assert not [name for name in short if re.fullmatch(one, name) and re.fullmatch(other, name)]


@pytest.mark.parametrize("one", PATTERNS)
@pytest.mark.parametrize("other", PATTERNS)
def test_sets_that_a_quick_look_tells_apart_have_no_name_in_common(one: str, other: str) -> None:
    sets = [names_matching(one), names_matching(other)]
    if have_disjoint_prefixes(*sets):
        assert find_example(intersection_of(*sets)) is None
    found = find_example(intersection_of(*sets))
    assert found is None or all(any(found.startswith(word) for word in prefixes_of(term)) for term in sets)


def test_a_quick_look_tells_beginnings_apart() -> None:
    assert prefixes_of(names_matching(r"(east|west)\.o.*")) == {"east.o", "west.o"}
    assert have_disjoint_prefixes(
        names_matching(r"east\..*"), intersection_of(names_matching(r"west\..*"), complement_of(names_matching(".*x")))
    )
    assert not have_disjoint_prefixes(names_matching("orders"), names_matching("orders-2.*"))
    assert not have_disjoint_prefixes(names_matching("[^a]b?"), names_matching("b"))
    assert have_disjoint_prefixes(names_matching("a"), intersection_of(names_matching("b"), names_matching("c")))


def test_exclusions_are_part_of_a_set() -> None:
    assert (
        find_example(intersection_of(names_matching("orders.*"), complement_of(names_matching("orders.+")))) == "orders"
    )
    assert find_example(intersection_of(names_matching("orders"), complement_of(names_matching("ord.*")))) is None
    assert find_example(intersection_of(ALL_NAMES, complement_of(names_matching(".*")))) is None
    assert find_example(names_matching("[Z]{3}")) == "ZZZ"


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?<=a)b", "(a(?=b))*", r"\bab", "a{400}"])
def test_what_no_set_of_names_can_say_is_said_to_be_strange(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        names_matching(pattern)
