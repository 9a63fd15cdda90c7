"""All settings of one process, and how they are read.

Environment variables override sections that declare it: TWINSHORE_STORE_URL for [store] url. Commas separate list
items.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from twinshore.config.declaration import SettingRow, setting_rows
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster, Link
from twinshore.config.schema import Complaints, RawSection, Section, all_sections, did_you_mean
from twinshore.config.sections import clusters, delay, mirror, proof, safety, store
from twinshore.config.sections import links as section_of_links
from twinshore.config.sections.broadcasts import expand_broadcasts, restore_places

T = TypeVar("T")
# Variables that Kubernetes sets in each pod for a Service called twinshore-mirror.
_SERVICE = re.compile(r".+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")
_BARE_LINK = re.compile(r"^\s*\[\s*links\.([\w-]+->[\w-]+)((?:\.\w+)*)\s*\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Settings:
    """`values`: each section's value by name. `file`: the settings file, if any. `link_sections`: the links as written,
    the seeds of those in the store. `links` are the file's until the store is read. `raw`: all as written, with
    what the environment says.
    """

    values: Mapping[str, Any]
    file: Path | None = None
    link_sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def of(self, section: Section[T]) -> T:
        value: T = self.values[section.name]
        return value

    @property
    def store(self) -> store.StoreSettings:
        return self.of(store.SECTION)

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        return self.of(clusters.SECTION)

    @property
    def links(self) -> Sequence[Link]:
        return self.of(section_of_links.SECTION)

    @property
    def mirror(self) -> mirror.MirrorSettings:
        return self.of(mirror.SECTION)

    @property
    def delay(self) -> delay.DelaySettings:
        return self.of(delay.SECTION)

    @property
    def proof(self) -> proof.ProofSettings:
        return self.of(proof.SECTION)

    @property
    def safety(self) -> safety.SafetySettings:
        return self.of(safety.SECTION)

    def having(self, section: Section[T], value: T) -> Settings:
        return replace(self, values={**self.values, section.name: value})

    def link(self, name: str) -> Link:
        """The link of that name. Raises ConfigError with the nearest one."""
        for link in self.links:
            if link.name == name:
                return link
        raise ConfigError("config.unknown-link", link=name, near=did_you_mean(name, [link.name for link in self.links]))

    def chosen(self, names: Sequence[str]) -> list[Link]:
        """The links of these names, or all. `east..west` also means east->west, for callers that cannot pass ">"."""
        return [self.link(parse_link_name(name)) for name in names] if names else list(self.links)

    def only(self, names: Sequence[str]) -> Link:
        """The one link meant. Raises ConfigError for several, so that an action on one link never affects another."""
        found = self.chosen(names)
        if len(found) != 1:
            names_found = ", ".join(repr(link.name) for link in found)
            raise ConfigError("config.several-links", count=len(found), links=names_found)
        return found[0]

    def with_links(self, links: Sequence[Link]) -> Settings:
        return replace(self, values={**self.values, section_of_links.SECTION.name: links})

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name. Raises ConfigError with the nearest one."""
        if name not in self.clusters:
            raise ConfigError("config.unknown-cluster", cluster=name, near=did_you_mean(name, self.clusters))
        return self.clusters[name]


def parse_link_name(name: str) -> str:
    """A link's name as in settings; `east..west` becomes east->west."""
    return name if "->" in name else name.replace("..", "->", 1)


def read_text_file(path: Path) -> str:
    """The file's text, or standard input for `-`. Raises ConfigError if unreadable."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("config.unreadable-file", path=str(path), cause=error.strerror) from error
    except UnicodeDecodeError as error:
        raise ConfigError("config.file-not-text", path=str(path), byte=error.start) from error


def load_settings(path: Path, env: Mapping[str, str]) -> Settings:
    """Reads a TOML file with environment overrides; makes the store's path absolute."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("config.unreadable-settings", path=str(path), cause=error.strerror) from error
    except UnicodeDecodeError as error:
        cause = f"it is not UTF-8 text, at byte {error.start}"
        raise ConfigError("config.unreadable-settings", path=str(path), cause=cause) from error
    found = parse_settings(text, name=str(path), env=env)
    whole = found.having(store.SECTION, replace(found.store, url=store.absolute_store_url(found.store.url, path)))
    return replace(whole, file=path.absolute())


def parse_settings(text: str, *, name: str, env: Mapping[str, str]) -> Settings:
    """The settings in `text`; errors call them `name`."""
    try:
        raw: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also the parser's own limits
        raise ConfigError("config.not-toml", path=name, cause=str(error), hint=_hint_for(text)) from error
    complaints = Complaints()
    names = [section.name for section in all_sections()]
    for name_of_section in raw:
        if name_of_section not in names:
            complaints.add(f"[{name_of_section}]", f"unknown{did_you_mean(name_of_section, names)}")
    written = apply_environment(raw, env, complaints)
    raw = expand_broadcasts(written, complaints)
    values: dict[str, Any] = {}
    for section in all_sections():
        raw_section = RawSection(raw.get(section.name, {}), f"[{section.name}]", values)
        values[section.name] = section.read(raw_section, complaints)
    if complaints.lines:
        raise ConfigError("config.invalid-settings", faults=_all_of(restore_places(complaints.lines, written), name))
    return Settings(values, link_sections=raw.get("links", {}), raw=raw)


def _hint_for(text: str) -> str:
    """The remedy for invalid TOML. The TOML parser does not say that a link's name needs quotes."""
    found = _BARE_LINK.search(text)
    if found is None:
        return "docs/settings.md has an example"
    return f'put the link\'s name in quotes: [links."{found[1]}"{found[2]}]'


def _all_of(lines: list[str], name: str) -> str:
    if len(lines) == 1:
        return f"{name}: {lines[0]}"
    return f"{name}: {len(lines)} settings are wrong\n" + "\n".join(f"  {line}" for line in lines)


def environment_variable(section: str, name: str) -> str:
    return f"TWINSHORE_{section}_{name}".upper()


def apply_environment(raw: Mapping[str, Any], env: Mapping[str, str], complaints: Complaints) -> dict[str, Any]:
    merged = dict(raw)
    named_as_secrets = set(_secret_variables(raw)) | {env.get(environment_variable("store", "password_env"), "")}
    for one in all_sections():
        if not one.overridden:
            continue
        section = one.name
        table = {environment_variable(section, row.name): row for row in setting_rows(one.keys)}
        prefix = environment_variable(section, "")
        for key in sorted(env):
            if not key.startswith(prefix) or key in named_as_secrets or _is_of_a_service(key, env[key], table):
                continue
            if key not in table:
                complaints.add("environment", f"{key}: unknown{did_you_mean(key, table)}")
                continue
            row = table[key]
            try:
                value = _value(row, env[key])
            except ValueError:
                complaints.add("environment", f"{key}: {env[key]!r} does not fit a setting of this kind")
                continue
            before = merged.get(section, {})
            if isinstance(before, Mapping):
                merged[section] = {**before, row.name: value}
    return merged


def _is_of_a_service(key: str, value: str, names: Collection[str]) -> bool:
    if key.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(value):
        return True
    return key not in names and _SERVICE.fullmatch(key) is not None


def _value(row: SettingRow, text: str) -> object:
    if row.kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if row.kind in (int, float):
        return row.kind(text)
    if row.kind is str:
        return text
    return [part.strip() for part in text.split(",") if part.strip()]


def _secret_variables(raw: object) -> Iterator[str]:
    if not isinstance(raw, Mapping):
        return
    for key, value in raw.items():
        if isinstance(value, str) and key.endswith("_env"):
            yield value
        else:
            yield from _secret_variables(value)
