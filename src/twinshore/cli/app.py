"""The root command: gathers the verbs and turns a TwinshoreError into a sentence.

Also here: an example for each verb, shown below its options; the options that verbs share; and how a plan is shown, run
and reported. Names and messages from clusters are escaped, so they cannot break a line.
"""

from __future__ import annotations

import functools
import getpass
import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer
from typer.core import TyperCommand

from twinshore import __version__
from twinshore.config.errors import CodedError, ConfigError, TwinshoreError
from twinshore.config.sentences import escape_line
from twinshore.runtime.process import print_interrupted, raise_on_interrupt

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from twinshore.config.model import Plan, PlanStep
    from twinshore.config.settings import Settings
    from twinshore.state.store import Store

VERBS = (
    "lab",
    "mirror",
    "status",
    "link",
    "groups",
    "switch",
    "protection",
    "prove",
    "incidents",
    "migrate",
    "delay",
    "advise",
    "simulate",
    "spool",
    "push",
    "proxy",
    "settings",
)

# Exit codes that scripts may rely on. A verb with further codes lists them in its help.
EXIT_CODES = {
    0: "success; also a mirror that stopped cleanly",
    1: "negative result: sides differ, an alarm is open, an offset was refused, there are findings",
    2: "not done, or a wrong option; unknown (`prove`, `delay check`, `advise`, `proxy client-audit`, `simulate`)",
    70: "internal error; the traceback is above the last line; please report it",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}
INTERNAL_ERROR_EXIT_CODE = 70
PIPE_COLUMNS = 1000
EXIT_CODES_HELP = (
    "Exit codes: 0 success; 1 negative result; 2 not done, or unknown; 70 internal error; 130, 143 stopped by a signal."
)

app = typer.Typer(
    name="twinshore",
    help="Keeps Kafka clusters identical, offset by offset.",
    no_args_is_help=True,
    epilog=EXIT_CODES_HELP,
)


class PrintedLog(logging.Handler):
    """Prints the log lines of a command to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            typer.echo(escape_line(record.getMessage()), err=True)
        except Exception:
            self.handleError(record)


_printed_log = PrintedLog()


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Keeps Kafka clusters identical, offset by offset."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    logging.getLogger("twinshore").addHandler(_printed_log)


@functools.cache
def register_verbs() -> None:
    """Adds every verb to `app`, once."""
    for verb in VERBS:
        importlib.import_module(f"twinshore.cli.{verb}").register(app)
    # By name: the platform is built on the command line, so this package knows nothing of it.
    importlib.import_module("twinshore.server.commands").register(app)
    app.command("completion")(completion)


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Shell = typer.Argument(help="bash, zsh or fish.")) -> None:
    """Prints the completion script for this shell."""
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="twinshore", complete_var="_TWINSHORE_COMPLETE", shell=shell.value))


def find_interrupt(ended: BaseException) -> KeyboardInterrupt | None:
    """The Ctrl-C that ended the verb, with the verb's remark on what is left. A verb that handles Ctrl-C and ends in
    good order prints its own.
    """
    before = ended.__cause__ or ended.__context__
    if before is None or isinstance(before, KeyboardInterrupt):
        return before
    return find_interrupt(before)


def print_error(error: TwinshoreError, *, as_json: bool) -> None:
    """Prints the error on stderr: two lines with its code and hint, or one JSON object."""
    code, values = (error.code, error.values) if isinstance(error, CodedError) else ("", {})
    if as_json:
        told = {"error": error.message, "hint": error.hint, "code": code, "values": values}
        typer.echo(json.dumps(told, default=str), err=True)
        return
    first, newline, more = error.message.partition("\n")
    typer.echo(f"error: {first}{f' [{code}]' if code else ''}{newline}{more}", err=True)
    if error.hint:
        typer.echo(f"  try: {error.hint}", err=True)


def main() -> None:
    """Runs the `twinshore` command, after `__main__` has prepared for Ctrl-C."""

    whole = build_command()  # This takes a while too.
    raise_on_interrupt()
    try:
        words = sys.argv[1:]
        if words[:1] != ["login"] and any(word.partition("=")[0] == "--server" for word in words):
            remote = importlib.import_module("twinshore.server.remote")
            # A command too, so that a wrong option, a "no", Ctrl-C and a closed pipe end it as they end a verb.
            TyperCommand("twinshore", callback=lambda: sys.exit(remote.run_command(words))).main([])
        else:
            whole()
    except SystemExit as ended:
        if interrupt := find_interrupt(ended):
            print_interrupted(*interrupt.args)
        raise
    except TwinshoreError as error:
        print_error(error, as_json="--json" in sys.argv)
        sys.exit(2)
    except Exception:
        # Python's own exit code is 1, which scripts would take for a result.
        traceback.print_exc()
        typer.echo(
            "error: this is a mistake of Twinshore's own; docs/troubleshooting.md says how to report it", err=True
        )
        sys.exit(INTERNAL_ERROR_EXIT_CODE)


# Of each verb, without `twinshore`.
EXAMPLES: dict[str, str] = json.loads(
    resources.files(__package__).joinpath("examples.json").read_text(encoding="utf-8")
)


@functools.cache
def build_command() -> Any:
    register_verbs()
    whole = typer.main.get_command(app)
    _tell(whole, ())
    importlib.import_module("twinshore.server.commands").offer_server(whole)
    return whole


# Any, because Typer has made this library a private part and gives no public type.
def _tell(verb: Any, words: tuple[str, ...]) -> None:
    example = EXAMPLES.get(" ".join(words))
    if example:
        verb.epilog = f"Example: twinshore {example}"
    for name, inner in getattr(verb, "commands", {}).items():
        _tell(inner, (*words, name))


class _Row(Protocol):
    @property
    def id(self) -> int: ...


R = TypeVar("R", bound=_Row)


def load_cli_settings(path: Path, *, logs: bool = False) -> Settings:
    """The settings with the store's links. Waits are reported on stderr, unless the verb `logs` them."""
    from twinshore.replication.operations.link_admin import with_stored_links

    if not logs:
        from twinshore.runtime.wait_report import report_waits

        report_waits(lambda sentence: typer.echo(sentence, err=True), watched=sys.stderr.isatty())
    return with_stored_links(load_settings_file(path))


@contextmanager
def server_log(settings: Settings) -> Iterator[None]:
    """Within the block, log lines are a server's: they go to standard output, as [log] says."""
    from twinshore.config.sections.log import SECTION
    from twinshore.runtime.logging import write_log

    logging.getLogger("twinshore").removeHandler(_printed_log)
    with write_log(settings.of(SECTION)):
        yield


def load_settings_file(path: Path) -> Settings:
    """The settings of the file alone, for a verb that reads the store's links itself."""
    from twinshore.config.settings import load_settings

    return load_settings(path, os.environ)


@contextmanager
def existing_store(path: Path, none: str = "state.no-store") -> Iterator[tuple[Settings, Store]]:
    """The settings with the store's links, and the store. Raises ConfigError without one, with the code `none`."""
    from twinshore.state.opening import open_existing

    settings = load_cli_settings(path)
    with open_existing(settings, none) as store:
        yield settings, store


@contextmanager
def any_store(path: Path, *, creates: bool = False, links: bool = False) -> Iterator[tuple[Settings, Store]]:
    """The settings of the file, with `links` those of the store too, and the store. `creates` makes a missing one; else
    an empty temporary one takes its place.
    """
    from twinshore.state.opening import open_to_change

    settings = load_cli_settings(path) if links else load_settings_file(path)
    with open_to_change(settings, dry_run=not creates) as store:
        yield settings, store


def print_page(
    rows: Sequence[R],
    words: Callable[[R], str],
    values: Callable[[R], object],
    *,
    last: int,
    none: str,
    as_json: bool,
) -> None:
    """Prints the newest `last` rows as JSON, or one per line and how to see older ones."""
    if as_json:
        typer.echo(json.dumps([values(row) for row in rows[:last]], indent=2))
        return
    print_lines(map(words, rows[:last]))
    if not rows:
        typer.echo(none)
    elif len(rows) > last:
        typer.echo(f"older ones: --before {rows[last - 1].id}")


def print_result(
    values: object, lines: Iterable[str], *, as_json: bool, none: str = "", indent: int | None = None
) -> None:
    """Prints the values as JSON, or the lines, or `none` if there are no lines."""
    if as_json:
        typer.echo(json.dumps(values, indent=indent))
        return
    print_lines(list(lines) or ([none] if none else []))


def write_text_file(path: Path, text: str, *, replaces: bool = True) -> None:
    """Raises ConfigError if the file cannot be written; unless it `replaces` one, also if there is one."""
    try:
        with path.open("w" if replaces else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as error:
        raise ConfigError("cli.output-exists", path=str(path)) from error
    except OSError as error:
        raise ConfigError("cli.unwritable-file", path=str(path), cause=error.strerror) from error


@dataclass(slots=True)
class VerbCaller:
    """Who runs this process's verbs, where it is not a terminal's user. `on_plan`: is given each plan before the verb
    acts on it; may raise. `begun`: as of `SwitchCaller`.
    """

    name: str = ""
    on_plan: Callable[[Plan[Any]], None] = lambda _: None
    begun: Callable[[str], None] = lambda _: None


verb_caller = VerbCaller()


def get_operator_name() -> str:
    """The operator's name for the audit: the user of this terminal."""
    if verb_caller.name:
        return verb_caller.name
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown user"


S = TypeVar("S", bound="PlanStep")


def print_plan(plan: Plan[S], *, steps: bool) -> None:
    """Prints the plan, with its steps if asked for. Raises the plan's refusal."""
    print_lines(plan.shown)
    print_lines(f"  {step.sentence(done=False)}" for step in (plan.steps if steps else ()))
    print_lines(plan.remarks)
    verb_caller.on_plan(plan)
    if plan.refusal:
        raise plan.refusal


def run_steps(plan: Plan[S], doing: Iterable[S], *, dry_run: bool) -> list[S]:
    """Prints the plan and each step once done, and returns the steps. A dry run does not start `doing`.

    Raises the plan's refusal at the end.
    """
    print_lines(plan.shown)
    verb_caller.on_plan(plan)
    steps = []
    for step in plan.steps if dry_run else doing:
        print_lines([step.sentence(done=not dry_run)])  # At once: what is done is known even if the rest fails.
        steps.append(step)
    print_lines(plan.remarks)
    if plan.refusal:
        raise plan.refusal
    return steps


def confirm_and_run(plan: Plan[S], doing: Iterable[S], *, yes: bool, dry_run: bool) -> None:
    """Prints the plan, asks for confirmation unless `yes`, then starts `doing` and prints each step once done."""
    print_plan(plan, steps=True)
    if dry_run or not plan.steps:
        return
    if not yes:
        typer.confirm("Go on?", abort=True)
    print_lines(step.sentence(done=True) for step in doing)


def build_table(names: Iterable[str], numbers: Iterable[str], *, folds: bool = False) -> Table:
    """A table without borders: columns of names on the left, which fold or stay whole, and of numbers on the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in names:
        table.add_column(column, overflow="fold" if folds else "ellipsis", no_wrap=not folds)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def open_console() -> Console:
    """Standard output. A pipe has no width, and its reader wants whole lines."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(escape_line(line))
