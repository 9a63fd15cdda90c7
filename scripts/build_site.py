"""Builds the docs as a site in build/site, with the locked mkdocs in an environment of its own. Broken links end it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS, LOCK = ROOT / ".cache" / "site", ROOT / "requirements-site.lock"


def main() -> int:
    stamp, lock = TOOLS / "stamp", LOCK.read_text("utf-8")
    if not stamp.is_file() or stamp.read_text("utf-8") != lock:
        print("setting up, once: the tools that build the site", flush=True)
        venv.create(TOOLS, clear=True, with_pip=True)
        pip = [str(TOOLS / "bin" / "python"), "-I", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--require-hashes", "-r", str(LOCK)], check=True)
        stamp.write_text(lock, "utf-8")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [TOOLS / "bin" / "mkdocs", "build", "--strict", "--quiet"], cwd=ROOT, env=environment, check=False
    )
    if built.returncode == 0:
        print("build/site/index.html")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
