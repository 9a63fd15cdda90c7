"""Set-up on machines that lack something: one sentence, exit code 1, nothing made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import prepare

ROOT = Path(__file__).resolve().parent.parent
JAVA_17 = """echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2; echo 'openjdk version "17.0.15" 2025-04-15' >&2"""
OLD_PYTHON = "case $2 in *print*) echo 3.9;; *) exit 1;; esac"
PYTHON_WITHOUT_VENV = "case $2 in *print*) echo 3.12;; *ensurepip*) exit 1;; esac"


class Machine:
    """A machine whose PATH holds only what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.checkout = folder / "checkout"
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "setup.sh", self.checkout / "scripts")
        for tool in ("sh", "sed", "head", "dirname"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)

    def has(self, name: str, script: str) -> None:
        """Puts a command on the PATH."""
        path = self.bin / name
        path.write_text(f"#!{self.bin}/sh\n{script}\n")
        path.chmod(0o755)

    def set_up(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """What a user sees of `make setup`."""
        return subprocess.run(
            [str(self.bin / "sh"), str(self.checkout / "scripts" / "setup.sh")],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def assert_refused(machine: Machine, result: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert result.returncode == 1
    assert re.search(sentence, result.stderr)
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not (machine.checkout / ".venv").exists()


def test_no_java(machine: Machine) -> None:
    assert_refused(machine, machine.set_up(), "Java 17 or newer is needed, and 'java' is not here")


@pytest.mark.parametrize(("version", "said"), [("1.8.0_402", "8"), ("11.0.22", "11"), ("16", "16")])
def test_old_java(machine: Machine, version: str, said: str) -> None:
    machine.has("java", f"echo 'java version \"{version}\"' >&2")
    assert_refused(machine, machine.set_up(), f"Java 17 or newer is needed, and 'java' is {said};")


def test_a_java_that_does_not_start(machine: Machine) -> None:
    machine.has("java", "echo 'no runtime present' >&2; exit 1")
    assert_refused(machine, machine.set_up(), "'java -version' fails")


def test_java_home_that_points_nowhere(machine: Machine) -> None:
    machine.has("java", JAVA_17)
    assert_refused(machine, machine.set_up(JAVA_HOME="/nowhere"), "'/nowhere/bin/java' is not here; .*JAVA_HOME")


def test_no_python(machine: Machine) -> None:
    machine.has("java", JAVA_17)
    assert_refused(machine, machine.set_up(), "Python 3.11 or newer is needed, and no python3 is here")


def test_old_python(machine: Machine) -> None:
    machine.has("java", JAVA_17)
    machine.has("python3", OLD_PYTHON)
    assert_refused(machine, machine.set_up(), "Python 3.11 or newer is needed, and only 3.9 is here")


def test_python_without_its_venv_module(machine: Machine) -> None:
    machine.has("java", JAVA_17)
    machine.has("python3", PYTHON_WITHOUT_VENV)
    assert_refused(machine, machine.set_up(), r"Python 3.12 has no venv module; .*apt install python3.12-venv")


def test_the_first_python_that_works_is_taken(machine: Machine) -> None:
    machine.has("java", JAVA_17)
    machine.has("python3.11", "echo 'python3.11: command not found' >&2; exit 127")
    machine.has("python3.12", PYTHON_WITHOUT_VENV)
    machine.has("python3", f'exec {sys.executable} "$@"')
    (machine.checkout / "scripts" / "prepare.py").write_text("import sys; print('reached', sys.flags.isolated)")
    result = machine.set_up()
    assert (result.returncode, result.stdout) == (0, "reached 1\n"), result.stderr


def test_the_build_tools_are_taken_from_the_lock_with_their_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    tools = prepare.entries(lock, prepare.BUILD_TOOLS)
    names = re.findall(r"^([a-z-]+)==", tools, re.MULTILINE)
    assert sorted(names) == sorted(prepare.BUILD_TOOLS)
    assert tools.count("--hash=sha256:") >= len(names)
    assert all(line in lock.splitlines() for line in tools.splitlines())


def test_another_lock_or_another_place_is_not_ready(tmp_path: Path) -> None:
    root = tmp_path / "here"
    (root / "scripts").mkdir(parents=True)
    for name in ("requirements.lock", "pyproject.toml", "scripts/prepare.py"):
        shutil.copy(ROOT / name, root / name)
    assert not prepare.ready(root)
    (root / ".venv").mkdir()
    subprocess.run([sys.executable, "-I", "-m", "venv", str(root / ".venv")], check=True)
    (root / ".venv" / "twinshore.stamp").write_text(prepare.stamp(root))
    assert prepare.ready(root)
    moved = root.rename(tmp_path / "there")
    assert not prepare.ready(moved)
    root = moved.rename(tmp_path / "here")
    (root / "requirements.lock").write_text("another==1.0\n")
    assert not prepare.ready(root)


def test_a_failed_step_shows_the_end_of_what_it_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "print('\\n'.join(f'line {n}' for n in range(40))); raise SystemExit(3)"]
    assert prepare.run(command, tmp_path / "log") == 3
    shown = capsys.readouterr().err
    assert "line 39" in shown
    assert "line 3\n" not in shown


def test_a_long_step_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "SAY_EVERY_S", 0.2)
    command = [sys.executable, "-c", "import time; print('fetching spark', flush=True); time.sleep(1)"]
    assert prepare.run(command, tmp_path / "log") == 0
    assert "fetching spark" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "far"),
    [
        (
            ["Collecting numba==1", "Collecting pyspark==4", "Downloading pyspark (430 MB)"],
            "fetching 2 of 76, Downloading",
        ),
        (
            ["Building wheel for pyspark (pyproject.toml): started"],
            "all fetched, building pyspark, which comes as source",
        ),
        (["Collecting numba==1", "Installing collected packages: numba, pyspark"], "all fetched, 40 of 76 installed"),
    ],
)
def test_the_longest_step_says_how_far_it_is(tmp_path: Path, lines: list[str], far: str) -> None:
    (tmp_path / "log").write_text("\n".join(lines))
    assert prepare.how_far(tmp_path / "log", 76, there=40).startswith(far)


def test_what_is_installed_is_counted_where_pip_puts_it() -> None:
    assert prepare.installed(ROOT) >= len(prepare.BUILD_TOOLS)
    assert prepare.installed(ROOT / "docs") == 0


def test_a_user_s_own_python_habits_do_not_reach_the_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    command = [sys.executable, "-c", "import os; print(sorted({'PIP_USER', 'PYTHONPATH', 'PATH'} & set(os.environ)))"]
    prepare.run(command, tmp_path / "log")
    assert (tmp_path / "log").read_text() == "['PATH']\n"


@pytest.mark.long
def test_two_set_ups_at_once_wait_for_each_other(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    for name in ("pyproject.toml", "scripts/prepare.py"):
        shutil.copy(ROOT / name, root / name)
    # A lock that holds nothing makes each one fail at its first step, after it has had the folder to itself.
    (root / "requirements.lock").write_text("")
    command = [sys.executable, "-I", str(root / "scripts" / "prepare.py")]
    environment = {**os.environ, "PIP_NO_INDEX": "1"}
    started_s = time.monotonic()
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=280)[0] for process in both]
    assert time.monotonic() - started_s < 280
    assert all("setting up, once" in text for text in said), said
    assert [("virtual environment\n" in text) for text in said].count(True) == 1, said
