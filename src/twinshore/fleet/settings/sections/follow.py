"""The section `follow` of a link: what follows it besides records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from twinshore.fleet.nouns import Deleted, Follow, Recreated, Secret
from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, did_you_mean, read_section
from twinshore.fleet.settings.section import Section, Written
from twinshore.fleet.settings.shapes import check_pattern

Word = TypeVar("Word", bound=StrEnum)
PRINCIPAL = re.compile(r"[A-Za-z]+:.+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowSection:
    """What follows a link besides records."""

    every_s: float = setting(5.0, "how often both clusters are compared", low=0.5, high=3600)
    settings_exclude: tuple[str, ...] = setting(
        (), "topic settings that do not follow: regular expressions that match the whole name"
    )
    acls: bool = setting(True, "ACLs of mirrored topics follow, where both clusters have an authorizer")
    group_acls: bool = setting(False, "ACLs of consumer groups follow too, of those that the link admits, by name")
    wide_group_acls: bool = setting(
        False, "with `group_acls`: rules for many groups (prefixed or `*`) too, also over groups of the target's own"
    )
    principal: str = setting(
        "",
        "the mirror's user as the target sees it, like `User:mirror`; empty: by its SASL username. No ACL that"
        " shuts it out is written",
    )
    deleted: str = setting("keep", "a twin whose source topic is deleted: `keep`, `archive` or `delete` it")
    recreated: str = setting(
        "stop", "a twin whose source topic was deleted and made again: `stop`, or delete the twin and `begin again`"
    )
    delete_after_s: float = setting(
        3600.0, "how long a twin is kept before one of these two policies deletes it", low=0, high=31536000
    )
    quotas: bool = setting(False, "client quotas of users and client ids follow")
    scram_users: bool = setting(False, "SCRAM users follow as far as they can; see docs/topics-follow.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSection:
    """A SCRAM user of the source that the target shall have too: its password cannot be read from a cluster."""

    password_env: str = setting("", "environment variable that holds the user's password")
    password_file: str = setting("", "file that holds the user's password")


def read_follow(written: Written, complaints: Complaints) -> Follow:
    """What follows the link; complaints are added, and the defaults returned, where something is wrong."""
    place = written.place
    rest, inner = written.parted("users")
    section = read_section(FollowSection, rest, place, complaints)
    users = _users(inner["users"], f"{place[:-1]}.users", complaints)
    if section is None:
        return Follow()
    for pattern in section.settings_exclude:
        check_pattern(pattern, "settings_exclude", place, complaints)
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


SECTION = Section(
    "follow",
    32,
    (
        ('[links."SOURCE->TARGET".follow]', FollowSection),
        ('[links."SOURCE->TARGET".follow.users.NAME]', UserSection),
    ),
    read_follow,
    inside="links",
)
