"""What verbs share: where the settings are, which links are meant, and who asks."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from twinshore.fleet import ConfigError
from twinshore.fleet.sentences import one_line

if TYPE_CHECKING:
    from twinshore.fleet.settings import Settings


class _Row(Protocol):
    """Of a list that is shown by pages."""

    @property
    def id(self) -> int: ...


R = TypeVar("R", bound=_Row)

SETTINGS = typer.Option(Path("twinshore.toml"), "--settings", help="Settings file.")
LINKS = typer.Option([], "--link", help="Only this link; may be given several times.")
JSON = typer.Option(False, "--json", help="Print JSON for programs.")


def load(path: Path, *, logs: bool = False) -> Settings:
    """The settings as every verb reads them, with the links that there are by the store. A verb that `logs` says itself
    whom it waits for."""
    from twinshore.fleet.settings import load_settings
    from twinshore.links.operations.look import with_links

    if not logs:
        from twinshore.service.waits import tell_waits

        tell_waits(lambda sentence: typer.echo(sentence, err=True), watched=sys.stderr.isatty())
    return with_links(load_settings(path, os.environ), lambda sentence: typer.echo(sentence, err=True))


def load_alone(path: Path) -> Settings:
    """The settings as they are in the file, for a verb that asks the store itself."""
    from twinshore.fleet.settings import load_settings

    return load_settings(path, os.environ)


def say_page(rows: Sequence[R], words: Callable[[R], str], *, last: int, none: str) -> None:
    """The newest rows, a line each, so many at `last`. Where there are more, it says how older ones are asked for."""
    for row in rows[:last]:
        typer.echo(one_line(words(row)))
    if not rows:
        typer.echo(none)
    elif len(rows) > last:
        typer.echo(f"older ones: --before {rows[last - 1].id}")


def tell(values: object, lines: Iterable[str], *, as_json: bool, none: str = "", indent: int | None = None) -> None:
    """The values as JSON for programs; or the lines for people, and `none` where there is no line."""
    if as_json:
        typer.echo(json.dumps(values, indent=indent))
        return
    for line in list(lines) or ([none] if none else []):
        typer.echo(one_line(line))


def read(path: Path) -> str:
    """What the file holds, or standard input where it is `-`; ConfigError where that cannot be read."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text, at byte {error.start}") from error


def write(path: Path, text: str) -> None:
    """ConfigError where the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def who() -> str:
    """Who says so, for the audit: whoever sits at this terminal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody without a name"
