"""Settings: TOML text and environment in, frozen values out, or one ConfigError that lists all that is wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from twinshore.fleet.errors import ConfigError
from twinshore.fleet.nouns import Cluster, Link, Secret
from twinshore.fleet.settings_delay import DelaySettings, read_delay
from twinshore.fleet.settings_edge import Complaints, did_you_mean
from twinshore.fleet.settings_env import with_environment
from twinshore.fleet.settings_proof import ProofSettings, read_proof
from twinshore.fleet.settings_safety import SafetySettings, read_safety
from twinshore.fleet.settings_sections import read_clusters, read_links, read_mirror, read_store
from twinshore.fleet.settings_table import MirrorSettings, SparkSettings
from twinshore.fleet.store_place import beside

SECTIONS = ("store", "clusters", "links", "mirror", "delay", "proof", "safety")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the store is. The URL never holds a password."""

    url: str = "sqlite:///twinshore.db"
    password: Secret = field(default_factory=Secret)


@dataclass(frozen=True, slots=True)
class Settings:
    """All that one Twinshore process is told. `file` is where it was read, if it was. `link_sections` are the links as
    the text has them, which are the seeds of those in the store. `links` are the text's until the store was asked."""

    store: StoreSettings
    clusters: Mapping[str, Cluster]
    links: Sequence[Link]
    mirror: MirrorSettings
    delay: DelaySettings = field(default_factory=DelaySettings)
    proof: ProofSettings = field(default_factory=ProofSettings)
    safety: SafetySettings = field(default_factory=SafetySettings)
    file: Path | None = None
    link_sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

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
        return replace(self, links=links)

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
    return replace(found, store=replace(found.store, url=beside(found.store.url, path)), file=path.absolute())


def parse_settings(text: str, *, name: str, env: Mapping[str, str]) -> Settings:
    """The settings in `text`; `name` is what errors call it."""
    try:
        raw: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not TOML: {error}", hint="docs/settings.md has an example") from error
    except (RecursionError, ValueError) as error:  # the parser's own limits
        raise ConfigError(f"{name} is not TOML that can be read: {error}", hint="is it a settings file?") from error
    complaints = Complaints()
    for section in raw:
        if section not in SECTIONS:
            complaints.add(f"[{section}]", f"unknown{did_you_mean(section, SECTIONS)}")
    raw = with_environment(raw, env, complaints)
    store = read_store(raw.get("store", {}), complaints)
    clusters = read_clusters(raw.get("clusters", {}), complaints)
    links = read_links(raw.get("links", {}), clusters, complaints)
    mirror = read_mirror(raw.get("mirror", {}), complaints)
    delay = read_delay(raw.get("delay", {}), complaints)
    proof = read_proof(raw.get("proof", {}), complaints)
    safety = read_safety(raw.get("safety", {}), complaints)
    if complaints.lines or store is None or mirror is None:
        raise ConfigError(_all_of(complaints.lines, name), hint="docs/settings.md lists every setting")
    url, password = store
    whole = {key: cluster for key, cluster in clusters.items() if cluster is not None}
    return Settings(
        StoreSettings(url, password), whole, links, mirror, delay, proof, safety, link_sections=raw.get("links", {})
    )


def _all_of(lines: list[str], name: str) -> str:
    if len(lines) == 1:
        return f"{name}: {lines[0]}"
    return f"{name}: {len(lines)} settings are wrong\n" + "\n".join(f"  {line}" for line in lines)


__all__ = ["MirrorSettings", "Settings", "SparkSettings", "StoreSettings", "load_settings", "parse_settings"]
