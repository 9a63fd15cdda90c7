"""`python -m tests.scenarios.pumps_in_threads` is the `twinshore` command with tasks in threads of the driver.

Everything but Spark is as it is shipped. A mirror starts in a second in place of ten, and takes a tenth of the CPU for
it: for scenarios whose promise does not lie in Spark, in processes that die, or in what a task costs.
"""

from __future__ import annotations

import threading

from twinshore.cli.__main__ import main
from twinshore.cli.app import build_command
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.replication import task_pool
from twinshore.replication.task.runner import run_tasks
from twinshore.replication.task_pool import TaskEngine


class Threads:
    """Task runs run in the thread that asks for them."""

    host = "127.0.0.1"

    def ride(self, order: str, _name: str) -> str:
        return next(iter(run_tasks([order])))

    def end(self, _name: str) -> None:
        """A thread cannot be ended from outside."""

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        """Their threads end with the process."""


def begin(settings: MirrorSettings, tasks: int, stop: threading.Event) -> TaskEngine | None:
    del settings, tasks, stop
    return Threads()


def load() -> None:
    """What the command needs whatever it is asked."""
    build_command()


def run() -> None:
    """The command, as this process was called."""
    task_pool.open_engine = begin
    main()


if __name__ == "__main__":
    run()
