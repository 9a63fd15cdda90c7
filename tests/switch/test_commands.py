"""The operator's commands before and after a switch: real programs, which fail, hang, and are told what moves."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import ConfigError
from twinshore.config.sections.switch import SECTION, SwitchSettings
from twinshore.config.settings import load_settings
from twinshore.switch.core.steps import (
    DEEDS,
    Cannot,
    Deed,
    Done,
    Kind,
    Outcome,
    State,
    SwitchState,
    Wait,
    after,
    turn_back,
)
from twinshore.switch.drain import Commands, ran_command, why_not
from twinshore.switch.operations.show import Shown


def script(folder: Path, text: str) -> tuple[str, ...]:
    """A program of Python, and no shell."""
    path = folder / "hook.py"
    path.write_text(text)
    return (sys.executable, str(path), "$(touch never)", "; touch never")


def at(deed: Deed, kind: Kind = Kind.PLANNED) -> SwitchState:
    return replace(record(kind), deed=deed, deed_ms=NOW_MS)


def both(commands: Commands, one: SwitchState) -> tuple[Wait, Outcome]:
    """It is written down that it is run, and then it is."""
    first = commands.once(one)
    assert isinstance(first, Wait)
    going = after(one, first, NOW_MS)
    assert going.command
    return first, commands.once(SwitchState.from_json(going.to_json()))


def test_without_a_command_nothing_is_run() -> None:
    commands = Commands(SwitchSettings())
    assert commands.once(at(Deed.BEFORE)) == Done(at(Deed.BEFORE))
    assert commands.once(at(Deed.AFTER)) == Done(at(Deed.AFTER))
    assert why_not(SwitchSettings()) == ""


def test_it_is_told_what_moves_and_its_words_are_kept(tmp_path: Path) -> None:
    says = (
        "import os, sys\n"
        "told = {name: value for name, value in os.environ.items() if name[:7] == 'SWITCH_'}\n"
        "print(sys.argv[1:], sys.stdin.read().split(), told)\n"
    )
    commands = Commands(SwitchSettings(before=script(tmp_path, says), after=script(tmp_path, says)))
    first, ran = both(commands, at(Deed.BEFORE))
    assert "is run, for 30 s at most" in first.sentence
    assert isinstance(ran, Done)
    for word in (
        "$(touch never)",
        "['orders']",
        "'SWITCH_HOME': 'east'",
        "'SWITCH_TO': 'west'",
        "'SWITCH_KIND': 'planned'",
    ):
        assert word in ran.sentence
    assert "ended well" in ran.sentence
    assert not list(tmp_path.glob("never*"))
    assert not Path("never").exists()
    _, ran = both(commands, at(Deed.AFTER))
    assert "'SWITCH_HOME': 'west'" in ran.sentence
    _, ran = both(commands, turn_back(replace(at(Deed.BEFORE), command="before"), "no", NOW_MS))
    assert "'SWITCH_HOME': 'east'" in ran.sentence
    assert "'SWITCH_MOMENT': 'after'" in ran.sentence


def test_a_failure_before_turns_the_switch_back_and_one_after_is_said(tmp_path: Path) -> None:
    fails = script(tmp_path, "import sys\nprint('the gateway says no')\nsys.exit(3)")
    commands = Commands(SwitchSettings(before=fails, after=fails))
    _, ran = both(commands, at(Deed.BEFORE))
    assert isinstance(ran, Cannot)
    assert "ended with 3" in ran.sentence
    assert "the gateway says no" in ran.sentence
    back = after(replace(at(Deed.BEFORE), command="before"), ran, NOW_MS)
    assert (back.state, back.deed) == (State.TURNING_BACK, Deed.BEFORE), "`after` is run on the way back"
    _, ran = both(commands, at(Deed.AFTER))
    assert isinstance(ran, Done)
    going = after(at(Deed.AFTER), ran, NOW_MS)
    assert going.state is State.GOING
    verdict = Shown(going.id, replace(going, state=State.DONE)).verdict()
    assert verdict.startswith("done: orders is at home on west; run it by hand: ")
    assert "the gateway says no" in verdict


def test_what_takes_too_long_is_ended_with_all_that_it_began(tmp_path: Path) -> None:
    """Also a child that hears no SIGTERM. No bound is asked of how soon."""
    began = tmp_path / "child"
    text = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(began)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    command = script(tmp_path, text)
    ran = ran_command(command, {}, (), 5.0)
    assert "took longer than 5 s" in ran.why
    if began.exists():  # a machine that is very busy may not come so far
        pid = int(began.read_text())
        until_s = time.monotonic() + 60
        while _runs(pid) and time.monotonic() < until_s:
            time.sleep(0.05)
        assert not _runs(pid)


def test_a_follower_of_a_killed_process_says_that_it_may_run_twice(tmp_path: Path) -> None:
    command = script(tmp_path, "print('once more')")
    before = Commands(SwitchSettings(before=command))
    first = before.once(at(Deed.BEFORE))
    assert isinstance(first, Wait)
    left = after(at(Deed.BEFORE), first, NOW_MS)
    ran = Commands(SwitchSettings(before=command)).once(left)
    assert isinstance(ran, Done)
    assert ran.sentence.startswith("it may have run before, for a process that is no more; ")
    assert "may have run" not in before.once(left).sentence


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    assert "cannot be run" in ran_command((str(tmp_path / "absent"),), {}, (), 1.0).why
    assert why_not(SwitchSettings(after=(str(tmp_path / "absent"),))).startswith("[switch] after: ")
    path = tmp_path / "twinshore.toml"
    path.write_text(
        f'[store]\nurl = "sqlite:///{tmp_path}/s.db"\n[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n'
        '[switch]\nbefore = ["gateway", "park"]\n'
    )
    with pytest.raises(ConfigError, match="not the full path"):
        load_settings(path, {})
    path.write_text(path.read_text().replace("gateway", "/usr/bin/gateway"))
    found = load_settings(path, {}).of(SECTION)
    assert found == SwitchSettings(before=("/usr/bin/gateway", "park"))


def test_commands_stand_where_nobody_waits_for_them() -> None:
    for kind in (Kind.PLANNED, Kind.FORCED, Kind.GROUP):
        deeds = DEEDS[kind]
        assert deeds.index(Deed.BEFORE) < deeds.index(Deed.COMMIT) < deeds.index(Deed.AFTER)
    planned = DEEDS[Kind.PLANNED]
    assert planned.index(Deed.BEFORE) < planned.index(Deed.HOLD)
    assert planned.index(Deed.AFTER) > planned.index(Deed.FLIP)
    assert Deed.BEFORE not in DEEDS[Kind.DRILL]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_was_never_begun_is_not_undone(tmp_path: Path) -> None:
    """Turned back right before `before`: no gateway hears of a switch that did not happen."""
    heard = tmp_path / "heard"
    program = script(tmp_path, f"open({str(heard)!r}, 'a').write('x')")
    one = turn_back(at(Deed.BEFORE), "no", NOW_MS)
    assert Commands(SwitchSettings(before=program, after=program)).once(one) == Done(one, "`before` was not run")
    assert Commands(SwitchSettings(after=program)).once(one) == Done(one, "no command is set")
    assert not heard.exists()


def test_what_ended_well_is_not_run_again_by_whoever_ends_the_switch(tmp_path: Path) -> None:
    """Without the store the switch ran `after`; its `resume` does all deeds from `give` on once more."""
    heard = tmp_path / "heard"
    commands = Commands(SwitchSettings(after=script(tmp_path, f"open({str(heard)!r}, 'a').write('x')")))
    _, ran = both(commands, at(Deed.AFTER))
    assert isinstance(ran, Done)
    again = replace(ran.record, deed=Deed.AFTER)
    assert Commands(SwitchSettings(after=script(tmp_path, ""))).once(again) == Done(again)
    assert heard.read_text() == "x"
