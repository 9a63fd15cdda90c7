"""All settings of one process, how they are read, and docs/settings.md (written by `python scripts/pages.py`).

Environment variables override sections that declare it: TWINSHORE_STORE_URL for [store] url. Commas separate list
items.
"""

from __future__ import annotations

import json
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


SETTINGS_EXAMPLE = """\
[store]
url = "sqlite:///twinshore.db"

[clusters.east]
bootstrap = ["127.0.0.1:9092"]
site = "eu-1"

[clusters.west]
bootstrap = ["127.0.0.1:9192"]

[clusters.west.security]
tls = true
ca_file = "/etc/twinshore/west-ca.pem"
sasl = "SCRAM-SHA-512"
username = "twinshore"
password_env = "WEST_PASSWORD"

[links."east->west"]
topics = ["orders.*"]
exclude = ["__.*"]
topic_settings = { "min.insync.replicas" = "2" }

[mirror]
task_run_s = 60

[mirror.spark]
master = "local"
spark.driver.memory = "2g"
"""

_KINDS: dict[Any, str] = {int: "whole number", float: "number", bool: "true or false", tuple[str, ...]: "list of text"}
_KINDS[bool | None] = _KINDS[bool]


def render_settings_page() -> str:
    overridden = [one.name for one in all_sections() if one.overridden]
    tables = ", ".join(f"`{one.name}.{table}`" for one in all_sections() for table in one.live_tables)
    variables = ", ".join(f"`{environment_variable(section, '')}<NAME>`" for section in overridden)
    parts = [
        "# Settings",
        "",
        "One TOML file. A key that is not listed here is refused, with the nearest one that is; all that is wrong is",
        "said at once, before anything is touched.",
        "",
        f"```toml\n{SETTINGS_EXAMPLE}```",
        "",
        "**Secrets** never stand in the file: `*_env` names an environment variable, `*_file` a file. A file is read",
        "again at each new connection, so a secret in a file is changed without a restart. A process keeps the",
        "environment that it was started with: a new value of a variable counts after a restart of every process that",
        "reads it, Spark's workers included.",
        "",
        f"**The environment** overrides some sections: {variables}.",
        f"So `{environment_variable('store', 'url')}` stands for `[store] url`. Parts of a list are parted by commas.",
        "",
        "**Live settings** are marked so. `twinshore settings set KEY VALUE` puts a value into the store, which counts",
        "before this file, and running proxies and monitors go by it. `twinshore settings show` says what is in force,",
        f"and where it is from. Live are also the tables {tables}.",
        "A value that does not fit a process's own file is set aside there, with a line in its log.",
        "",
        "**What needs a restart**: everything else here, of each process that reads it, but for two things. Secrets,",
        "certificates and the proxy's users in files are one. The other is `[safety]`: a running mirror reads its",
        "settings file again before it deletes anything, and the stricter of both counts: `never_delete` that is set,",
        "and a lower `deletions_at_once_max`, hold at once. What is taken back there counts after a restart. While the",
        "file cannot be understood nothing is deleted. What operators say by a verb, as `twinshore link pause`, needs",
        "no restart either: see [live control](live-control.md).",
        "",
        "**The sections of links are seeds.** Which links there are stands in the store; a mirror takes these sections",
        "into it when it starts. What operators said since, as by `twinshore link set`, stays: see [links](links.md).",
        "So are those of [protection](protection.md#levels-in-the-settings): topics that have no level get theirs.",
        "",
        "**Paths** that are relative start where the process was started; only the file of a store in SQLite is",
        "relative to the folder of the settings file, so that it is one store wherever a process is started.",
    ]
    for place, section in [table for one in all_sections() for table in one.tables]:
        parts += ["", f"## `{place}`", "", (section.__doc__ or "").strip(), ""]
        parts += ["| setting | kind | default | limits | meaning |", "| --- | --- | --- | --- | --- |"]
        parts += [_line(row) for row in setting_rows(section)]
    return "\n".join(parts) + "\n"


def _line(row: SettingRow) -> str:
    kind = "text" if row.kind is str or isinstance(row.default, str) else _KINDS.get(row.kind, "table of text")
    default = "required" if row.required else f"`{'{}' if kind == 'table of text' else _toml(row.default)}`"
    low, high = row.rule.low, row.rule.high
    limits = "" if low is None or high is None else f"{low:,g} to {int(high):,}"
    live = "**Live.** " if row.rule.live else ""
    return f"| `{row.name}` | {kind} | {default} | {limits} | {live}{row.rule.meaning} |"


def _toml(value: object) -> str:
    if value is None:
        return "unset"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
