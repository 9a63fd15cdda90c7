"""Programs of clients in other languages: each is built once into the user's cache, by the tool of its language."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from twinshore.lab.jars import cache_folder, make_once, print_notice
from twinshore.lab.processes import LabError

SOURCES = Path(__file__).resolve().parents[1] / "clients"
_WITHIN_S = 1800.0


class NoToolError(LabError):
    """What a client's language is built with is not on this machine."""


def program(tool: str, name: str) -> list[str]:
    """The command that starts this client's program. NoToolError without the tool; LabError where it is not built."""
    if not (found := shutil.which(tool)):
        raise NoToolError(f"no {tool} here")
    source = SOURCES / ("go" if tool == "go" else name)
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:8]
    folder = cache_folder() / "clients" / f"{source.name}-{digest}"
    make_once(folder, "clients", lambda target: _build(tool, source, target))
    return [found, str(folder / "main.js")] if tool == "node" else [str(folder / "bin" / name)]


def _build(tool: str, source: Path, target: Path) -> None:
    print_notice(f"building {source.name}'s clients (once; kept in {target.parent})")
    shutil.copytree(source, target, dirs_exist_ok=True)
    commands = {
        "go": ["go", "build", "-o", str(target / "bin") + "/", "./..."],
        "node": ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"],
        "cargo": ["cargo", "install", "--quiet", "--debug", "--path", ".", "--root", str(target)],
    }
    try:
        command = commands[tool]
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{source.name} cannot be built: {error}") from None
    if done.returncode:
        raise LabError(f"{source.name} cannot be built: {' '.join(done.stderr.split())[-500:]}")
    shutil.rmtree(target / "target", ignore_errors=True)
