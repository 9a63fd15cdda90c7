"""Shapes that keys of several sections have: expressions, numbers by expression, dotted names, secrets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from twinshore.fleet.nouns import Secret
from twinshore.fleet.settings.edge import Complaints

# Names of topics, where `*` stands for any characters.
TOPICS = re.compile(r"[A-Za-z0-9._*-]+")
Numbers = tuple[tuple[str, int], ...]


def why_not_pattern(pattern: str) -> str:
    """What is wrong with a regular expression; empty when nothing is."""
    try:
        re.compile(pattern)
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        return f"{pattern!r} is not a regular expression: {error.msg}{where}"
    return ""


def check_pattern(pattern: str, name: str, place: str, complaints: Complaints) -> None:
    """Complains of an expression under the key `name` that is none."""
    reason = why_not_pattern(pattern)
    if reason:
        complaints.add(place, f"{name}: {reason}")


def read_numbers(table: object, name: str, low: int, high: int, place: str, complaints: Complaints) -> Numbers:
    """Pairs of expression and whole number, as written: the first that matches counts."""
    if not isinstance(table, Mapping):
        complaints.add(place, f'{name}: must be a table like {{ "orders.*" = 1000 }}, not {table!r}')
        return ()
    found = []
    for pattern, number in table.items():
        check_pattern(pattern, name, place, complaints)
        if isinstance(number, bool) or not isinstance(number, int):
            complaints.add(place, f"{name}: {pattern!r}: must be a whole number, not {number!r}; quote names with dots")
        elif not low <= number <= high:
            complaints.add(place, f"{name}: {pattern!r}: is {number}, must be {low} to {high:,}")
        else:
            found.append((pattern, number))
    return tuple(found)


def flat(table: Mapping[str, object], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Pairs of dotted names and text: TOML makes tables of names that hold dots and stand without quotes."""
    pairs: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs.extend(flat(value, f"{prefix}{key}."))
        elif isinstance(value, bool):
            pairs.append((prefix + key, "true" if value else "false"))
        else:
            pairs.append((prefix + key, str(value)))
    return tuple(sorted(pairs))


def read_secret(env: str, file: str, name: str, place: str, complaints: Complaints) -> Secret:
    """The secret `name`, of which one key says where it is kept, or none."""
    if env and file:
        complaints.add(place, f"{name}_env and {name}_file: one or the other")
    return Secret(env=env, file=file)


def why_not_network(text: str) -> str:
    """Why it is no network; empty where it is one."""
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        return f"{text!r} is no network like 10.1.0.0/16: {error}"
    return ""
