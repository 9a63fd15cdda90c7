"""All settings of one process, and how they are read: every section that is declared, in its order.

The environment has its say in the sections that declare it: TWINSHORE_STORE_URL stands for [store] url,
TWINSHORE_MIRROR_LANES for [mirror] lanes; lists are parted by commas.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from twinshore.fleet.declaring import Row, rows
from twinshore.fleet.errors import ConfigError
from twinshore.fleet.nouns import Cluster, Link
from twinshore.fleet.settings.edge import Complaints, Section, Written, declared, did_you_mean
from twinshore.fleet.settings.sections import clusters, delay, mirror, proof, safety, store
from twinshore.fleet.settings.sections import links as section_of_links
from twinshore.fleet.settings.sections.broadcasts import where_written, with_links

T = TypeVar("T")
# Kubernetes tells each pod of a Service called twinshore-mirror by such variables.
_SERVICE = re.compile(r".+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")
_BARE_LINK = re.compile(r"^\s*\[\s*links\.([\w-]+->[\w-]+)((?:\.\w+)*)\s*\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Settings:
    """All that one Twinshore process is told. `values`: what each section gave, by its name. `file`: where it was read,
    if it was. `link_sections` are the links as the text has them, which are the seeds of those in the store; `links`
    are the text's until the store was asked."""

    values: Mapping[str, Any]
    file: Path | None = None
    link_sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

    def of(self, section: Section[T]) -> T:
        """What that section gave."""
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
        """The same with another value of that section."""
        return replace(self, values={**self.values, section.name: value})

    def link(self, name: str) -> Link:
        """The link of that name; a ConfigError with the nearest one otherwise."""
        for link in self.links:
            if link.name == name:
                return link
        raise ConfigError(f"no link {name!r} in the settings{did_you_mean(name, [link.name for link in self.links])}")

    def chosen(self, names: Sequence[str]) -> list[Link]:
        """The links of these names; all of them when none is named. `east..west` is east->west, for whoever may not
        pass a ">" on."""
        return [self.link(with_arrow(name)) for name in names] if names else list(self.links)

    def only(self, names: Sequence[str]) -> Link:
        """The one link that is meant: what a word lets go on one link must not go on another unasked."""
        found = self.chosen(names)
        if len(found) != 1:
            known = ", ".join(repr(one.name) for one in found)
            raise ConfigError(f"there are {len(found)} links: {known}", hint="say with --link which one is meant")
        return found[0]

    def with_links(self, links: Sequence[Link]) -> Settings:
        """The same with the links that there are."""
        return replace(self, values={**self.values, section_of_links.SECTION.name: links})

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name; a ConfigError with the nearest one otherwise."""
        if name not in self.clusters:
            raise ConfigError(f"no cluster {name!r} in the settings{did_you_mean(name, self.clusters)}")
        return self.clusters[name]


def with_arrow(name: str) -> str:
    """A link's name, as settings have it: `east..west` is east->west."""
    return name if "->" in name else name.replace("..", "->", 1)


def load_settings(path: Path, env: Mapping[str, str]) -> Settings:
    """The settings of a TOML file, with what the environment overrides; the store's path is a full one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"settings file {path} cannot be read: {error.strerror}", hint="name another with --settings"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"settings file {path} is not UTF-8 text, at byte {error.start}") from error
    found = parse_settings(text, name=str(path), env=env)
    whole = found.having(store.SECTION, replace(found.store, url=store.beside(found.store.url, path)))
    return replace(whole, file=path.absolute())


def parse_settings(text: str, *, name: str, env: Mapping[str, str]) -> Settings:
    """The settings in `text`; `name` is what errors call it."""
    try:
        raw: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not TOML: {error}", hint=_hint_for(text)) from error
    except (RecursionError, ValueError) as error:  # the parser's own limits
        raise ConfigError(f"{name} is not TOML that can be read: {error}", hint="is it a settings file?") from error
    complaints = Complaints()
    names = [one.name for one in declared()]
    for name_of_section in raw:
        if name_of_section not in names:
            complaints.add(f"[{name_of_section}]", f"unknown{did_you_mean(name_of_section, names)}")
    written = with_environment(raw, env, complaints)
    raw = with_links(written, complaints)
    values: dict[str, Any] = {}
    for one in declared():
        values[one.name] = one.read(Written(raw.get(one.name, {}), f"[{one.name}]", values), complaints)
    if complaints.lines:
        raise ConfigError(
            _all_of(where_written(complaints.lines, written), name), hint="docs/settings.md lists every setting"
        )
    return Settings(values, link_sections=raw.get("links", {}))


def _hint_for(text: str) -> str:
    """What to do where it is no TOML: its parser does not say that the arrow in a link's name asks for quotes."""
    found = _BARE_LINK.search(text)
    if found is None:
        return "docs/settings.md has an example"
    return f'put the link\'s name in quotes: [links."{found[1]}"{found[2]}]'


def _all_of(lines: list[str], name: str) -> str:
    if len(lines) == 1:
        return f"{name}: {lines[0]}"
    return f"{name}: {len(lines)} settings are wrong\n" + "\n".join(f"  {line}" for line in lines)


def variable(section: str, name: str) -> str:
    """The environment variable that overrides a setting."""
    return f"TWINSHORE_{section}_{name}".upper()


def with_environment(raw: Mapping[str, Any], env: Mapping[str, str], complaints: Complaints) -> dict[str, Any]:
    """The settings with the environment's values laid over them."""
    merged = dict(raw)
    named_as_secrets = set(_secret_variables(raw)) | {env.get(variable("store", "password_env"), "")}
    for one in declared():
        if not one.overridden:
            continue
        section = one.name
        table = {variable(section, row.name): row for row in rows(one.keys)}
        prefix = variable(section, "")
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


def _value(row: Row, text: str) -> object:
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
