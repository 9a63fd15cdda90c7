"""What the sections `follow` of a link mean together, and which of their words are known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from twinshore.fleet.nouns import Deleted, Follow, Recreated, Secret
from twinshore.fleet.settings_edge import Complaints, did_you_mean, read_section
from twinshore.fleet.settings_table import FollowSection, UserSection

Word = TypeVar("Word", bound=StrEnum)
PRINCIPAL = re.compile(r"[A-Za-z]+:.+")


def read_follow(raw: object, place: str, complaints: Complaints) -> Follow:
    """What follows the link; complaints are added, and the defaults returned, where something is wrong."""
    rest = dict(raw) if isinstance(raw, Mapping) else raw
    users_raw = rest.pop("users", {}) if isinstance(rest, dict) else {}
    section = read_section(FollowSection, rest, place, complaints)
    users = _users(users_raw, f"{place[:-1]}.users", complaints)
    if section is None:
        return Follow()
    for pattern in section.settings_exclude:
        try:
            re.compile(pattern)
        except re.error as error:
            complaints.add(place, f"settings_exclude: {pattern!r} is not a regular expression: {error.msg}")
    if section.principal and not PRINCIPAL.fullmatch(section.principal):
        complaints.add(place, f"principal: {section.principal!r} is not one; did you mean User:{section.principal}?")
    return Follow(
        every_s=section.every_s,
        settings_exclude=section.settings_exclude,
        acls=section.acls,
        group_acls=section.group_acls,
        wide_group_acls=section.wide_group_acls,
        principal=section.principal,
        deleted=_word(Deleted, section.deleted, "deleted", place, complaints) or Deleted.KEEP,
        recreated=_word(Recreated, section.recreated, "recreated", place, complaints) or Recreated.STOP,
        delete_after_s=section.delete_after_s,
        quotas=section.quotas,
        scram_users=section.scram_users or bool(users),
        users=users,
    )


def _word(kind: type[Word], text: str, name: str, place: str, complaints: Complaints) -> Word | None:
    try:
        return kind(text)
    except ValueError:
        known = [one.value for one in kind]
        complaints.add(place, f"{name}: no policy {text!r}{did_you_mean(text, known)}")
        return None


def _users(raw: object, place: str, complaints: Complaints) -> tuple[tuple[str, Secret], ...]:
    if not isinstance(raw, Mapping):
        complaints.add(f"{place}]", "must hold one section per user")
        return ()
    found: list[tuple[str, Secret]] = []
    for name, user in raw.items():
        here = f"{place}.{name}]"
        section = read_section(UserSection, user, here, complaints)
        if section is None:
            continue
        if bool(section.password_env) == bool(section.password_file):
            complaints.add(here, "needs either password_env or password_file")
        found.append((name, Secret(env=section.password_env, file=section.password_file)))
    return tuple(sorted(found, key=lambda pair: pair[0]))
