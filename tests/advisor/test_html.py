"""The page of an advice: it needs nothing beside it, and takes no name for markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

from tests.advisor.seen_kit import SOUND, group, having, place, topic, with_group
from twinshore.advisor.core.advice_report import build_advice, compare_advices, render_advice_page
from twinshore.advisor.core.model import AdvisorPolicy, BlindSpot
from twinshore.advisor.operations.advice_on_cluster import RULES

WEAK = having(topic("orders", min_insync_replicas="1"), topic("clicks", unclean_leader_election_enable="true"))


class Balance(HTMLParser):
    """Which tags are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert all(not name.startswith("on") for name, _ in attrs), "no script"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_has_every_finding_and_needs_nothing_else() -> None:
    advice = build_advice(
        replace(WEAK, unseen=(BlindSpot("settings of broker 1", "no right", "grant it"),)), AdvisorPolicy(), RULES
    )
    text = render_advice_page(advice, compare_advices(build_advice(SOUND, AdvisorPolicy(), RULES), advice))
    for one in advice.findings:
        assert escape(one.risk) in text and one.subject in text
    assert "--add-config min.insync.replicas=2" in text and "<code>--fix</code> does it" in text
    assert "settings of broker 1: no right. Grant it" in text
    assert "since the earlier look" in text and "unclean-election, topic clicks" in text
    assert not re.search(r"https?:|<script|<link|src=|@import|url\(", text)
    parser = Balance()
    parser.feed(text)
    assert parser.open == []


def test_a_finding_leads_to_its_story_on_the_same_page() -> None:
    text = render_advice_page(build_advice(WEAK, AdvisorPolicy(), RULES))
    assert set(re.findall(r'href="#([^"]+)"', text)) == {"story-unclean", "story-min-insync-1"}
    assert set(re.findall(r'<section id="([^"]+)"', text)) == {"story-unclean", "story-min-insync-1"}
    assert "broker 2 | records - | high watermark 0 | leads, in sync" in text
    assert "twinshore simulate story unclean --html unclean.html" in text
    assert "How it happens" not in render_advice_page(build_advice(SOUND, AdvisorPolicy(), RULES))


def test_a_name_is_no_markup() -> None:
    seen = with_group(group(place(1, 9), name="<script>alert(1)</script>", live=False))
    text = render_advice_page(build_advice(seen, AdvisorPolicy(), RULES))
    assert "<script" not in text and "&lt;script&gt;alert(1)" in text


def test_many_that_are_alike_are_folded() -> None:
    many = having(*(topic(f"t{number}", min_insync_replicas="1") for number in range(25)))
    assert "<summary>5 more</summary>" in render_advice_page(build_advice(many, AdvisorPolicy(), RULES))
