"""The environment's say: TWINSHORE_STORE_URL stands for [store] url, TWINSHORE_MIRROR_LANES for [mirror] lanes.

The rule holds for the sections that have one fixed place: store, mirror, delay and proof; lists are parted by commas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twinshore.fleet.settings_delay import DelaySection
from twinshore.fleet.settings_edge import Complaints, did_you_mean
from twinshore.fleet.settings_proof import ProofSettings
from twinshore.fleet.settings_table import MirrorSettings, Row, StoreSection, rows

OVERRIDABLE = {"store": StoreSection, "mirror": MirrorSettings, "delay": DelaySection, "proof": ProofSettings}


def variable(section: str, name: str) -> str:
    """The environment variable that overrides a setting."""
    return f"TWINSHORE_{section}_{name}".upper()


def with_environment(raw: Mapping[str, Any], env: Mapping[str, str], complaints: Complaints) -> dict[str, Any]:
    """The settings with the environment's values laid over them."""
    merged = dict(raw)
    named_as_secrets = set(_secret_variables(raw)) | {env.get(variable("store", "password_env"), "")}
    for section, kind in OVERRIDABLE.items():
        table = {variable(section, row.name): row for row in rows(kind)}
        prefix = variable(section, "")
        for key in sorted(env):
            if not key.startswith(prefix) or key in named_as_secrets:
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
