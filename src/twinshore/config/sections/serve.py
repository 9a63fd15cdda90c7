"""The section `serve`: where `twinshore serve` serves its pages and API, and who must approve."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, network_error, read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The platform's pages and API; see docs/platform.md."""

    address: str = setting(
        "127.0.0.1", "address to listen on; another than this machine's own needs TLS, or `behind_proxy`"
    )
    port: int = setting(9190, "port to listen on; 0: a free one, which the log names", low=0, high=65535)
    certificate_file: str = setting("", "PEM file with the server's certificate and chain; it enables TLS")
    key_file: str = setting("", "PEM file with the certificate's key")
    behind_proxy: tuple[str, ...] = setting(
        (), 'networks of proxies that add TLS, as in `["10.0.0.0/8"]`; only their forwarded addresses are believed'
    )
    four_eyes: bool = setting(False, "whether another person must approve what deletes something or may lose records")


def read_serve(raw: RawSection, complaints: Complaints) -> ServeSettings:
    found = read_section(ServeSettings, raw.raw, raw.place, complaints) or ServeSettings()
    if bool(found.certificate_file) != bool(found.key_file):
        complaints.add(raw.place, "certificate_file and key_file: one needs the other")
    for network in found.behind_proxy:
        if why := network_error(network):
            complaints.add(raw.place, f"behind_proxy: {why}")
    if not (_is_own(found.address) or found.certificate_file or found.behind_proxy):
        complaints.add(
            raw.place,
            f"address: {found.address} is not of this machine alone, and passwords would be sent in the clear;"
            " set certificate_file and key_file, or behind_proxy",
        )
    return found


def _is_own(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


SECTION = Section("serve", 82, (("[serve]", ServeSettings),), read_serve, overridden=True)
