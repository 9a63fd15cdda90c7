"""`python -m twinshore.cli` is the `twinshore` command."""

from __future__ import annotations

from twinshore.runtime.process import disable_hypothesis, exit_on_interrupt


def main() -> None:
    """The entry point. Handles Ctrl-C before any large import."""
    exit_on_interrupt()
    disable_hypothesis()
    from twinshore.cli.app import main as begin

    begin()


if __name__ == "__main__":
    main()
