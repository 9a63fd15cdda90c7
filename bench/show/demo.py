"""`python -m bench.show.demo`: plays `twinshore demo` and keeps what it said, from which README's picture is drawn."""

from __future__ import annotations

import subprocess
import sys

from bench.kit.pictures import RECORDED_DEMO


def main() -> int:
    """What the demo says goes to the screen, and into docs/evidence/demo.txt once it has ended well."""
    said: list[str] = []
    command = [sys.executable, "-m", "twinshore.cli", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            print(line, end="", flush=True)
            said.append(line)
    if demo.returncode == 0:
        RECORDED_DEMO.write_text("".join(said), encoding="utf-8")
    return demo.returncode


if __name__ == "__main__":
    sys.exit(main())
