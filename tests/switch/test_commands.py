"""The operator's commands before and after a switch: real programs, which fail, hang, and are told what moves."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from testkit.errors import mentions
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import ConfigError
from twinshore.config.sections.switch import SECTION, SwitchSettings
from twinshore.config.settings import load_settings
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    apply_outcome,
    begin_rollback,
)
from twinshore.switch.drain import CommandSteps, find_missing_command, run_command
from twinshore.switch.operations.show import SwitchView


def script(folder: Path, text: str) -> tuple[str, ...]:
    """A program of Python, and no shell."""
    path = folder / "hook.py"
    path.write_text(text)
    return (sys.executable, str(path), "$(touch never)", "; touch never")


def at(step: SwitchStep, kind: SwitchKind = SwitchKind.PLANNED) -> SwitchState:
    return replace(record(kind), step=step, step_ms=NOW_MS)


def both(commands: CommandSteps, one: SwitchState) -> tuple[StepPending, StepOutcome]:
    """It is written down that it is run, and then it is."""
    first = commands.once(one)
    assert isinstance(first, StepPending)
    going = apply_outcome(one, first, NOW_MS)
    assert going.command
    return first, commands.once(SwitchState.from_json(going.to_json()))


def test_without_a_command_nothing_is_run() -> None:
    commands = CommandSteps(SwitchSettings())
    assert commands.once(at(SwitchStep.BEFORE)) == StepDone(at(SwitchStep.BEFORE))
    assert commands.once(at(SwitchStep.AFTER)) == StepDone(at(SwitchStep.AFTER))
    assert find_missing_command(SwitchSettings()) == ""


def test_it_is_told_what_moves_and_its_words_are_kept(tmp_path: Path) -> None:
    says = (
        "import os, sys\n"
        "told = {name: value for name, value in os.environ.items() if name[:7] == 'SWITCH_'}\n"
        "print(sys.argv[1:], sys.stdin.read().split(), told)\n"
    )
    commands = CommandSteps(SwitchSettings(before=script(tmp_path, says), after=script(tmp_path, says)))
    first, ran = both(commands, at(SwitchStep.BEFORE))
    assert "is run, for 30 s at most" in first.sentence
    assert isinstance(ran, StepDone)
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
    _, ran = both(commands, at(SwitchStep.AFTER))
    assert "'SWITCH_HOME': 'west'" in ran.sentence
    _, ran = both(commands, begin_rollback(replace(at(SwitchStep.BEFORE), command="before"), "no", NOW_MS))
    assert "'SWITCH_HOME': 'east'" in ran.sentence
    assert "'SWITCH_MOMENT': 'after'" in ran.sentence


def test_a_failure_before_turns_the_switch_back_and_one_after_is_said(tmp_path: Path) -> None:
    fails = script(tmp_path, "import sys\nprint('the gateway says no')\nsys.exit(3)")
    commands = CommandSteps(SwitchSettings(before=fails, after=fails))
    _, ran = both(commands, at(SwitchStep.BEFORE))
    assert isinstance(ran, StepFailed)
    assert "ended with 3" in ran.sentence
    assert "the gateway says no" in ran.sentence
    back = apply_outcome(replace(at(SwitchStep.BEFORE), command="before"), ran, NOW_MS)
    assert (back.state, back.step) == (SwitchStatus.ROLLING_BACK, SwitchStep.BEFORE), "`after` is run on the way back"
    _, ran = both(commands, at(SwitchStep.AFTER))
    assert isinstance(ran, StepDone)
    going = apply_outcome(at(SwitchStep.AFTER), ran, NOW_MS)
    assert going.state is SwitchStatus.RUNNING
    verdict = SwitchView(going.id, replace(going, state=SwitchStatus.DONE)).verdict()
    assert mentions(verdict, "done", "by hand", "the gateway says no")


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
    ran = run_command(command, {}, (), 5.0)
    assert "took longer than 5 s" in ran.why
    if began.exists():  # a machine that is very busy may not come so far
        pid = int(began.read_text())
        until_s = time.monotonic() + 60
        while _runs(pid) and time.monotonic() < until_s:
            time.sleep(0.05)
        assert not _runs(pid)


def test_a_follower_of_a_killed_process_says_that_it_may_run_twice(tmp_path: Path) -> None:
    command = script(tmp_path, "print('once more')")
    before = CommandSteps(SwitchSettings(before=command))
    first = before.once(at(SwitchStep.BEFORE))
    assert isinstance(first, StepPending)
    left = apply_outcome(at(SwitchStep.BEFORE), first, NOW_MS)
    ran = CommandSteps(SwitchSettings(before=command)).once(left)
    assert isinstance(ran, StepDone)
    assert "may have run" in ran.sentence
    assert "may have run" not in before.once(left).sentence


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    assert "cannot be run" in run_command((str(tmp_path / "absent"),), {}, (), 1.0).why
    assert find_missing_command(SwitchSettings(after=(str(tmp_path / "absent"),))).startswith("[switch] after: ")
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
    for kind in (SwitchKind.PLANNED, SwitchKind.FORCED, SwitchKind.GROUP):
        steps = STEPS[kind]
        assert steps.index(SwitchStep.BEFORE) < steps.index(SwitchStep.COMMIT) < steps.index(SwitchStep.AFTER)
    planned = STEPS[SwitchKind.PLANNED]
    assert planned.index(SwitchStep.BEFORE) < planned.index(SwitchStep.HOLD)
    assert planned.index(SwitchStep.AFTER) > planned.index(SwitchStep.PROMOTE)
    assert SwitchStep.BEFORE not in STEPS[SwitchKind.DRILL]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_was_never_begun_is_not_undone(tmp_path: Path) -> None:
    """Turned back right before `before`: no gateway hears of a switch that did not happen."""
    heard = tmp_path / "heard"
    program = script(tmp_path, f"open({str(heard)!r}, 'a').write('x')")
    one = begin_rollback(at(SwitchStep.BEFORE), "no", NOW_MS)
    assert CommandSteps(SwitchSettings(before=program, after=program)).once(one) == StepDone(
        one, "`before` was not run"
    )
    assert CommandSteps(SwitchSettings(after=program)).once(one) == StepDone(one, "no command is set")
    assert not heard.exists()


def test_what_ended_well_is_not_run_again_by_whoever_ends_the_switch(tmp_path: Path) -> None:
    """Without the store the switch ran `apply_outcome`; its `resume` does all steps from `give` on once more."""
    heard = tmp_path / "heard"
    commands = CommandSteps(SwitchSettings(after=script(tmp_path, f"open({str(heard)!r}, 'a').write('x')")))
    _, ran = both(commands, at(SwitchStep.AFTER))
    assert isinstance(ran, StepDone)
    again = replace(ran.state, step=SwitchStep.AFTER)
    assert CommandSteps(SwitchSettings(after=script(tmp_path, ""))).once(again) == StepDone(again)
    assert heard.read_text() == "x"
