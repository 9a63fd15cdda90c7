"""The section `near`: the site of a proxy client, by its address, and where the client reads mirrored topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from twinshore.config.declaration import live_setting
from twinshore.config.schema import (
    TOPIC_WILDCARD,
    Complaints,
    RawSection,
    Section,
    did_you_mean,
    network_error,
    read_section,
)

_NETWORKS, _NEXT = "networks", "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSettings:
    """Where clients of the proxy read mirrored topics: at their own site, while the twin there is fresh; see
    docs/proxy.md. Besides, two tables. `[near.networks]`, from a network to a site: of several that hold a client's
    address the narrowest counts. `[near.next]`, from a site to a list of sites, where clients read if their own has no
    fresh twin. A cluster's site is in its own section.
    """

    behind_s_max: float = live_setting(
        5.0,
        "maximum lag of a twin that serves readers; beyond it readers move home, and return below half of it",
        low=1,
        high=600,
    )
    own_topics: tuple[str, ...] = live_setting(
        (),
        "topics that belong to each site separately; `*` stands for any characters. Clients write and read them"
        " at their own site, if no link replicates them",
    )
    networks: tuple[tuple[str, str], ...] = ()
    next_sites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_near(raw: RawSection, complaints: Complaints) -> NearSettings:
    rest, tables = raw.parted(_NETWORKS, _NEXT)
    found = read_section(NearSettings, rest, raw.place, complaints, beside=(_NETWORKS, _NEXT)) or NearSettings()
    sites = sorted({one.site for one in raw.before.get("clusters", {}).values() if one.site})
    next_sites = _read_next(tables[_NEXT], sites, raw.place, complaints)
    for pattern in found.own_topics:
        if not TOPIC_WILDCARD.fullmatch(pattern):
            complaints.add(raw.place, f"own_topics: {pattern!r} is no name of topics with `*` in it")
    networks = _read_networks(tables[_NETWORKS], {*sites, *next_sites}, raw.place, complaints)
    return replace(found, networks=networks, next_sites=next_sites)


def _read_networks(
    table: object, sites: Collection[str], place: str, complaints: Complaints
) -> tuple[tuple[str, str], ...]:
    if not isinstance(table, Mapping):
        complaints.add(place, f'{_NETWORKS}: must be a table like {{ "10.1.0.0/16" = "eu-1" }}, not {table!r}')
        return ()
    for network, site in table.items():
        if why := network_error(str(network)):
            complaints.add(place, f"{_NETWORKS}: {why}")
        if site not in sites:
            near = did_you_mean(str(site), sorted(sites))
            sentence = f"no cluster is at site {site!r}, and next has none for it{near}"
            complaints.add(place, f"{_NETWORKS}: {network}: {sentence}")
    return tuple((str(network), str(site)) for network, site in table.items())


def _read_next(table: object, sites: Collection[str], place: str, complaints: Complaints) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, Mapping):
        complaints.add(place, f'{_NEXT}: must be a table like {{ "eu-1" = ["eu-2"] }}, not {table!r}')
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for site, others in table.items():
        if not isinstance(others, list):
            complaints.add(place, f"{_NEXT}: {site}: must be a list of sites, not {others!r}")
            continue
        for other in others:
            if other not in sites:
                near = did_you_mean(str(other), sites)
                complaints.add(place, f"{_NEXT}: {site}: no cluster is at site {other!r}{near}")
        found[str(site)] = tuple(map(str, others))
    return found


SECTION = Section("near", 86, (("[near]", NearSettings),), read_near, live_tables=(_NETWORKS, _NEXT))
