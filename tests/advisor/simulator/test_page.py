"""The page of a play: it needs nothing beside it, has every sentence without a script, and takes no name for markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser

from twinshore.advisor.core.simulator.explore import ExplorationRequest, find_story, render_stories, run_exploration
from twinshore.advisor.core.simulator.explore import render_exploration as page_of_explored
from twinshore.advisor.core.simulator.playback import build_story_playback, describe_step, render_playbacks
from twinshore.advisor.core.simulator.search import STORIES, play_story


class Tags(HTMLParser):
    """Which tags are open, and which were ever."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.known: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert all(not name.startswith("on") for name, _ in attrs)
        self.known.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    return tags


def test_it_has_every_sentence_and_needs_nothing_else() -> None:
    text = render_stories(STORIES)
    tags = parsed(text)
    ids = [attrs.get("id") for tag, attrs in tags.known if tag == "section"]
    assert ids == [story.name for story in STORIES]
    for story in STORIES:
        assert all(f"{escape(describe_step(story.config, step))}</li>" in text for step in play_story(story))
        assert escape(story.moral) in text
    assert not re.search(r"https?:|<link|src=|@import|url\(", text)
    assert [tag for tag, _ in tags.known].count("script") == 2


def test_its_values_are_the_states_before_and_after_each_step() -> None:
    story = find_story("acks-1")
    text = render_stories([story])
    (found,) = re.findall(r'<script type="application/json" id="plays">(.*?)</script>', text)
    (values,) = json.loads(found)
    steps = play_story(story)
    assert len(values["states"]) == len(steps) + 1 == len(values["says"]) + 1
    assert values["faults"] == [step.move.is_fault for step in steps]
    last = values["states"][-1]
    assert (last["harm"], last["sent"], last["brokers"][0]["log"]) == ([1], ["acknowledged"], [])
    assert [one["takes_itself_for_leader"] for one in values["states"][0]["brokers"]] == [True, False, False]
    assert "<nav>" not in text and "<nav>" in render_stories(STORIES)


def test_a_schedule_that_was_found_is_a_page_too() -> None:
    text = page_of_explored(run_exploration(ExplorationRequest(records=1, min_insync=2, kinds=("slow", "power"))))
    told = unescape(text)
    assert "LOST by 2 faults in" in told and "TWICE: by no schedule within 2 faults" in told
    assert '<section class=play id="lost">' in text and "Left out: crash, cut, answer, reader, rest, retention." in told
    none = page_of_explored(run_exploration(ExplorationRequest(records=1, faults_max=0)))
    assert 'id="stage"' not in none and "LOST: by no schedule" in none
    parsed(none)


def test_a_name_is_no_markup() -> None:
    one = replace(build_story_playback(find_story("acks-1")), title="</script><script>alert(1)</script>")
    text = render_playbacks("<b>", [one], ["<i>"])
    assert "<script>alert" not in text and "<b>" not in text and "<i>" not in text
    parsed(text)
