"""A command line that asks a platform: the same verbs, run by its workers. Tokens are kept by server, for this user."""

from __future__ import annotations

import json
import os
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from twinshore.cli.app import build_command
from twinshore.client.discovery.http import is_unencrypted, parse_server_url
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sentences import escape_line
from twinshore.kafka.oauth import NoRedirects
from twinshore.server.api import API
from twinshore.server.core.access import DEVICE_MS
from twinshore.server.core.catalogue import LEFT_OUT, RULES, Operation
from twinshore.server.core.jobs import JobPlan
from twinshore.server.verbs import operation_of
from twinshore.state.core.platform_values import ENDED, JobState

POLL_S, TIMEOUT_S = 0.3, 30.0
FAILED_EXIT_CODE = 2
# As `print_error` begins.
ERROR_BEGINS = "error: ", '{"error": '


def token_file() -> Path:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "twinshore"
    return folder / "tokens.json"


def read_tokens() -> dict[str, str]:
    try:
        found = json.loads(token_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep_token(server: str, token: str) -> None:
    """An empty one is forgotten."""
    file = token_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = {**read_tokens(), server: token}
    fresh = file.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as opened:
        json.dump({name: one for name, one in kept.items() if one}, opened)
    fresh.replace(file)


class Platform:
    """A platform's API, with this token, or the one that is kept for this user."""

    def __init__(self, server: str, token: str = "") -> None:
        self.server = parse_server_url(server, "--server")
        if is_unencrypted(server):
            raise ConfigError("server.remote-unencrypted", url=server)
        self._token = token or read_tokens().get(self.server, "")

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> Any:
        """Returns the answer. Raises RefusedError for what the platform refuses, ConfigError if it is silent."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.server}{API}{path}", data, headers, method=method)
        try:
            # The token goes nowhere else than to the server that was named.
            https = urllib.request.HTTPSHandler(context=ssl.create_default_context())
            with urllib.request.build_opener(NoRedirects, https).open(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from error
        except (OSError, ValueError) as error:
            raise ConfigError("server.remote-failed", url=self.server, cause=str(error)) from error

    def _refused(self, error: urllib.error.HTTPError) -> RefusedError:
        try:
            found = json.load(error)
        except ValueError:
            found = {}
        hint = f"`twinshore login --server {self.server}`" if error.code == 401 else found.get("detail") or ""
        title = found.get("title") or f"HTTP {error.code}"
        return RefusedError("server.remote-refused", hint=hint, url=self.server, cause=title)


def log_in(server: str) -> None:
    """Shows a code, waits until a person has confirmed it, and keeps the token."""
    begun = Platform(server).ask("POST", "/device")
    platform, until_s = Platform(server, begun["token"]), time.monotonic() + DEVICE_MS / 1000
    typer.echo(f"open {platform.server}{begun['path']} and confirm the code {begun['code']}")
    while time.monotonic() < until_s:
        try:
            found = platform.ask("GET", "/me")
        except RefusedError:
            time.sleep(2 * POLL_S)
            continue
        keep_token(platform.server, begun["token"])
        typer.echo(escape_line(f"logged in as {found['name']}, {found['role']}"))
        return
    raise RefusedError("server.login-refused")


def log_out(server: str) -> None:
    """Ends the token on the platform, and forgets it here."""
    platform = Platform(server)
    platform.ask("DELETE", "/me")
    keep_token(platform.server, "")
    typer.echo("logged out")


# -- verbs


def split_server(words: Sequence[str]) -> tuple[str, list[str]]:
    """Takes `--server URL` out of a command line; empty without it."""
    kept, server, taken = [], "", False
    place = words.index("--") if "--" in words else len(words)
    for at, word in enumerate(words):
        if taken:
            server, taken = word, False
        elif at < place and word == "--server":
            taken = True
        elif at < place and word.startswith("--server="):
            server = word.partition("=")[2]
        else:
            kept.append(word)
    return server, kept


def run_command(words: Sequence[str]) -> int:
    """Runs a command line that names a platform. Returns its exit code."""
    server, words = split_server(words)
    options = [word.partition("=")[0] for word in words]
    if "--settings" in options:
        raise ConfigError("server.remote-and-settings")
    name = _verb_of(words)
    if name in LEFT_OUT:
        raise ConfigError("server.verb-left-out", verb=name, why=LEFT_OUT[name])
    operation = operation_of(name)
    given = read_arguments(operation, words[len(name.split()) :])
    platform = Platform(server)
    is_yes, is_dry_run = given.pop("yes", False), given.pop("dry_run", False)
    job = platform.ask("POST", f"/operations/{operation.path}", given, secrets.token_hex(16))
    where = f"/jobs/{job['id']}"
    try:
        while job["state"] == JobState.PLANNING:
            time.sleep(POLL_S)
            job = platform.ask("GET", where)
        if job["state"] == JobState.PLANNED:
            _agree(platform, where, job, asks=operation.asks and not is_yes, is_dry_run=bool(is_dry_run))
        return _follow(platform, where)
    except KeyboardInterrupt:
        typer.echo(f"\njob {job['id']} goes on; {platform.server}{where} shows it and can cancel it", err=True)
        return 130


def _verb_of(words: Sequence[str]) -> str:
    """Returns the verb's name: as many words as the command line knows."""
    for count in (3, 2, 1):
        name = " ".join(words[:count])
        if name in RULES or name in LEFT_OUT:
            return name
    raise ConfigError("server.no-operation", name=" ".join(words[:2]))


# Any, because Typer has made this library a private part and gives no public type.
def read_arguments(operation: Operation, words: Sequence[str]) -> dict[str, Any]:
    """Reads the words as the verb does, and returns what differs from its defaults."""
    command: Any = build_command()
    for word in operation.name.split():
        command = command.commands[word]
    context = command.make_context(f"twinshore {operation.name}", [*words])
    given = {name: value for name, value in context.params.items() if value not in (None, (), [])}
    known = {one.name: one for one in operation.parameters}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in known:
            shown = [str(one) if isinstance(one, Path) else one for one in value] if known[name].is_many else value
            if shown != known[name].default:
                found[name] = shown
        elif name in ("yes", "dry_run"):
            found |= {name: True} if value else {}
        elif name != "settings" and value:
            raise ConfigError("server.unknown-value", operation=operation.name, name=name, known=", ".join(known))
    return found


def _agree(platform: Platform, where: str, job: dict[str, Any], *, asks: bool, is_dry_run: bool) -> None:
    """Shows the plan and applies it. After a "no" or a dry run the job is cancelled."""
    plan = JobPlan(**job["plan"])
    for line in (*plan.shown, *(f"  {step}" for step in plan.steps), *plan.remarks):
        typer.echo(escape_line(line))
    try:
        if is_dry_run:
            raise typer.Exit
        if asks:
            typer.confirm("Go on?", abort=True)
    except (typer.Abort, typer.Exit):
        platform.ask("POST", f"{where}/cancel", {})
        raise
    applied = platform.ask("POST", f"{where}/apply", {"digest": job["digest"], "reason": ""})
    if applied["state"] == JobState.ASKED:
        typer.echo("it waits for the approval of another person", err=True)


def _follow(platform: Platform, where: str) -> int:
    """Prints what the job prints, to its end. Returns its exit code."""
    number, said, is_error = -1, "", False
    while True:
        found = platform.ask("GET", f"{where}/lines?after={number}")
        for line in found["lines"]:
            number, said = line["number"], line["text"] or said
            is_error = is_error or said.startswith(ERROR_BEGINS)
            typer.echo(line["text"], err=is_error)
        if found["state"] in ENDED and not found["lines"]:
            job = platform.ask("GET", where)
            if job["exit_code"] not in (0, 1) and not is_error and escape_line(job["sentence"]) != said:
                typer.echo(escape_line(f"error: {job['sentence'] or job['state']}"), err=True)
            return FAILED_EXIT_CODE if job["exit_code"] is None else int(job["exit_code"])
        if not found["lines"]:
            time.sleep(POLL_S)
