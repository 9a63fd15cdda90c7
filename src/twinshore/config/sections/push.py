"""The section `push`: where `twinshore push serve` serves client configurations."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Where `twinshore push serve` serves configurations to the client library; see docs/push.md."""

    address: str = setting("127.0.0.1", "address to listen on; `0.0.0.0` for all")
    port: int = setting(9193, "port to listen on; 0: a free one, which the log names", low=0, high=65535)
    certificate_file: str = setting("", "PEM file with the server's certificate and chain; it enables TLS")
    key_file: str = setting("", "PEM file with the certificate's key")


def read_push(raw: RawSection, complaints: Complaints) -> PushSettings:
    found = read_section(PushSettings, raw.raw, raw.place, complaints) or PushSettings()
    if bool(found.certificate_file) != bool(found.key_file):
        complaints.add(raw.place, "certificate_file and key_file: one needs the other")
    return found


SECTION = Section("push", 80, (("[push]", PushSettings),), read_push, overridden=True)
