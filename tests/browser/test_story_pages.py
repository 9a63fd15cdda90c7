"""The page of stories in a real Chromium: stepped by keyboard, forwards and backwards, and drawn as the model says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import NONE, Chromium, found
from twinshore.advisor.core.simulator.explore import find_story, render_stories
from twinshore.advisor.core.simulator.search import STORIES, play_story

SHOWN = (
    "()=>({at:document.getElementById('at').textContent,says:document.getElementById('says').textContent,"
    "hash:location.hash,logs:[...document.querySelectorAll('#drawn .row .log')].map(log=>"
    "[...log.querySelectorAll('.cell')].filter(cell=>!(cell.classList.contains('gone')&&!cell.title))"
    ".map(cell=>Number(cell.textContent))),stories:[...document.querySelectorAll('section.play')]"
    ".filter(one=>!one.hidden).map(one=>one.id),ends:[...document.querySelectorAll('.close')]"
    ".some(one=>!one.hidden&&!one.closest('section').hidden)})"
)


@pytest.mark.claim(
    "advisor", "chromium", "pages are opened in a real Chromium, and stepped by keyboard, forwards and backwards"
)
def test_each_story_is_stepped_by_keyboard_there_and_back(tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    file = tmp_path / "stories.html"
    file.write_text(render_stories(STORIES), encoding="utf-8")
    pressed = 0
    with Chromium(program, tmp_path / "profile") as browser:
        for story in STORIES:
            browser.open(f"{file.as_uri()}#{story.name}")
            steps = play_story(story)
            logs = [[[one.record for one in replica.log] for replica in step.after.replicas] for step in steps]
            for number, expected in enumerate(logs, 1):
                browser.press("ArrowRight")
                shown = browser.value(f"({SHOWN})()")
                assert shown["at"] == f"step {number} of {len(steps)}"
                assert shown["logs"] == expected, (story.name, number)
                assert (shown["stories"], shown["hash"]) == ([story.name], f"#{story.name}/{number}")
                assert shown["ends"] is (number == len(steps)), "the end is told at the end"
            browser.press("ArrowRight")
            assert browser.value(f"({SHOWN})()")["at"] == f"step {len(steps)} of {len(steps)}", "it stays at the end"
            for expected in reversed(logs[:-1]):
                browser.press("ArrowLeft")
                assert browser.value(f"({SHOWN})()")["logs"] == expected
            browser.press("End")
            assert browser.value(f"({SHOWN})()")["logs"] == logs[-1]
            browser.press("Home")
            assert browser.value(f"({SHOWN})()")["at"] == f"step 0 of {len(steps)}"
            pressed += 2 * len(steps) + 2
        assert browser.complaints == []
        assert {one.partition(":")[0] for one in browser.asked} == {"file"}, "it asks no network"
        version = browser.call("Browser.getVersion")["product"]
    print(f"told: {len(STORIES)} stories in {version}, {pressed} keys pressed, and each log drawn as the model has it")


def test_a_step_has_an_address_and_a_sentence_is_clicked(tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    file = tmp_path / "unclean.html"
    file.write_text(render_stories([find_story("unclean")]), encoding="utf-8")
    with Chromium(program, tmp_path / "profile") as browser:
        browser.open(f"{file.as_uri()}#unclean/5")
        shown = browser.value(f"({SHOWN})()")
        assert (shown["at"], shown["logs"]) == ("step 5 of 8", [[1], []])
        browser.value("document.querySelectorAll('ol.steps li')[7].click()")
        shown = browser.value(f"({SHOWN})()")
        assert (shown["at"], shown["logs"], shown["ends"]) == ("step 8 of 8", [[], []], True)
        browser.value("document.querySelector('button[data-go=back]').click()")
        assert browser.value("document.getElementById('at').textContent") == "step 7 of 8"
        browser.picture(tmp_path / "unclean.png")
        assert (tmp_path / "unclean.png").stat().st_size > 10_000
