"""What a process of ours is not to load, also where it is installed, as it is here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOML = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
"""
LOADED = """
import runpy, sys
sys.argv = ["twinshore", *sys.argv[1:]]
try:
    runpy.run_module("twinshore.cli", run_name="__main__")
except SystemExit as ended:
    assert "kio.static.primitive" in sys.modules, "else this shows nothing"
    assert sys.modules["hypothesis"] is None
    print("ended with", ended.code)
"""


@pytest.mark.parametrize("words", [("lab", "status", "--dir", "none"), ("status",)], ids=" ".join)
def test_a_command_leaves_nothing_of_a_test_tool_where_it_is_typed(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "twinshore.toml").write_text(TOML)
    found = subprocess.run(
        [sys.executable, "-c", LOADED, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "ended with" in found.stdout, found.stderr
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".hyp")] == []
