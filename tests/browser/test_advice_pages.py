"""The page of an advice in a real Chromium: a finding leads to its story there, and the page asks no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.advisor.seen_kit import having, topic
from tests.browser.chromium import NONE, Chromium, found
from twinshore.advisor.core.advice_report import build_advice, render_advice_page
from twinshore.advisor.core.model import AdvisorPolicy
from twinshore.advisor.core.settings_advice import build_loss_inputs
from twinshore.advisor.core.simulator.explore import ExplorationRequest
from twinshore.advisor.operations.advice_on_cluster import RULES
from twinshore.advisor.operations.settings_advice import render_losses, search_losses

WEAK = having(topic("orders", min_insync_replicas="1", unclean_leader_election_enable="true"))
AGAIN = pytest.mark.claim(
    "advisor", "chromium", "pages are opened in a real Chromium, and stepped by keyboard, forwards and backwards"
)


@AGAIN
def test_a_finding_leads_to_its_story(tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    file = tmp_path / "advice.html"
    file.write_text(render_advice_page(build_advice(WEAK, AdvisorPolicy(), RULES)), encoding="utf-8")
    with Chromium(program, tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        links = browser.value("[...document.querySelectorAll('article a')].map(one=>one.hash)")
        assert sorted(links) == ["#story-min-insync-1", "#story-unclean"]
        for link in links:
            browser.value(f"document.querySelector('a[href=\"{link}\"]').click()")
            # It is brought to where it is read.
            top = f"Math.abs(document.querySelector('{link}').getBoundingClientRect().top)"
            assert browser.value("location.hash") == link
            assert browser.value(f"{top} < innerHeight")
        assert browser.complaints == []
        assert {one.partition(":")[0] for one in browser.asked} == {"file"}
    print(f"told: an advice's {len(links)} findings lead to their stories on its page")


@AGAIN
def test_what_a_topic_loses_is_stepped_through(tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    losing = search_losses(build_loss_inputs(WEAK, "orders"), "east", ExplorationRequest(kinds=("crash", "slow")))
    file = tmp_path / "orders.html"
    file.write_text(render_losses(losing), encoding="utf-8")
    steps = len(next(iter(losing.answers[0].found.values())).steps)
    with Chromium(program, tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        assert browser.value("document.getElementById('at').textContent") == f"step 0 of {steps}"
        on = [("ArrowRight", number) for number in range(1, steps + 1)]
        back = [("ArrowLeft", number) for number in reversed(range(steps))]
        for key, number in [*on, *back]:
            browser.press(key)
            assert browser.value("document.getElementById('at').textContent") == f"step {number} of {steps}"
        browser.press("End")
        signs = browser.value("[...document.querySelectorAll('#drawn .sign.bad')].map(one=>one.textContent)")
        assert "record 1: acknowledged, harmed" in signs
    print(f"told: the {steps} steps by which a topic loses a record, there and back")
