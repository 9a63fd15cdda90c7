"""Networks by addresses: which of them holds a client, the narrowest first. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Networks:
    """`named`: networks as text, each with what it stands for."""

    def __init__(self, named: Iterable[tuple[str, str]]) -> None:
        self._tables: dict[int, dict[int, dict[int, str]]] = {4: {}, 6: {}}  # version, length of the prefix, prefix
        for text, name in named:
            one = ipaddress.ip_network(text)
            table = self._tables[one.version].setdefault(one.prefixlen, {})
            table[int(one.network_address) >> one.max_prefixlen - one.prefixlen] = name
        for version, tables in self._tables.items():
            self._tables[version] = dict(sorted(tables.items(), reverse=True))

    def of(self, address: str) -> str | None:
        """What the narrowest network that holds the address stands for; None where none does."""
        found = parsed(address)
        if found is None:
            return None
        number = int(found)
        for length, table in self._tables[found.version].items():
            if (name := table.get(number >> found.max_prefixlen - length)) is not None:
                return name
        return None


def parsed(address: str) -> _Address | None:
    """None where it is no address. One of IPv4 that a socket of IPv6 writes as its own is IPv4's."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found
