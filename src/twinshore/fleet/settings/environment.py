"""The environment's say: TWINSHORE_STORE_URL stands for [store] url, TWINSHORE_MIRROR_LANES for [mirror] lanes.

The rule holds for the sections that declare it; lists are parted by commas.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from twinshore.fleet.settings.declaring import Row, rows
from twinshore.fleet.settings.edge import Complaints, did_you_mean
from twinshore.fleet.settings.sections import declared

# Kubernetes tells each pod of a Service called twinshore-mirror by such variables.
_SERVICE = re.compile(r".+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")


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
