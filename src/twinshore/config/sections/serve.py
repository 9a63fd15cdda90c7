"""The section `serve`: where `twinshore serve` serves its pages and API, and who must approve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args
from urllib.parse import urlsplit

from twinshore.config.declaration import required, setting
from twinshore.config.model import Secret, is_loopback
from twinshore.config.schema import Complaints, RawSection, Section, network_error, read_secret, read_section

RoleName = Literal["viewer", "operator", "approver", "admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """Logins by an OpenID Connect provider, beside those by password. The table `[serve.oidc.roles]` has the role of
    each group, as in `"platform-team" = "admin"`; of several groups the highest role counts.
    """

    issuer: str = required("the provider's URL, as its discovery document has it")
    client_id: str = required("the platform's name at the provider")
    client_secret_env: str = setting("", "environment variable that holds the client's secret")
    client_secret_file: str = setting("", "file that holds the client's secret")
    public_url: str = required(
        "the platform's address in browsers; the provider must know it with `/login/oidc/callback` behind it"
    )
    name: str = setting("OpenID Connect", "what the login page calls the provider")
    scopes: tuple[str, ...] = setting(
        ("openid", "profile", "email"), "what is asked of the provider; some need `groups`"
    )
    groups_claim: str = setting("groups", "claim of the ID token that has the person's groups")
    default_role: Literal["", "viewer", "operator", "approver", "admin"] = setting(
        "", "role of a person without a group of the table; empty: refused"
    )
    roles: tuple[tuple[str, RoleName], ...] = ()

    @property
    def client_secret(self) -> Secret:
        return Secret(env=self.client_secret_env, file=self.client_secret_file)


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
    oidc: OidcSettings | None = None


def read_serve(raw: RawSection, complaints: Complaints) -> ServeSettings:
    rest, inner = raw.parted("oidc")
    found = read_section(ServeSettings, rest, raw.place, complaints) or ServeSettings()
    if inner["oidc"] != {}:
        found = replace(found, oidc=_read_oidc(RawSection(inner["oidc"], "[serve.oidc]"), found, complaints))
    if bool(found.certificate_file) != bool(found.key_file):
        complaints.add(raw.place, "certificate_file and key_file: one needs the other")
    for network in found.behind_proxy:
        if why := network_error(network):
            complaints.add(raw.place, f"behind_proxy: {why}")
    if not (is_loopback(found.address) or found.certificate_file or found.behind_proxy):
        complaints.add(
            raw.place,
            f"address: {found.address} is not of this machine alone, and passwords would be sent in the clear;"
            " set certificate_file and key_file, or behind_proxy",
        )
    return found


def _read_oidc(raw: RawSection, serving: ServeSettings, complaints: Complaints) -> OidcSettings | None:
    rest, inner = raw.parted("roles")
    found = read_section(OidcSettings, rest, raw.place, complaints)
    if found is None:
        return None
    read_secret(found.client_secret_env, found.client_secret_file, "client_secret", raw.place, complaints)
    for name, url in (("issuer", found.issuer), ("public_url", found.public_url)):
        if not is_private_url(url):
            complaints.add(raw.place, f"{name}: {url!r} is not like https://host; http is for this machine alone")
    is_secure = serving.certificate_file or serving.behind_proxy
    if not is_secure and not is_loopback(urlsplit(found.issuer).hostname or ""):
        complaints.add(
            raw.place,
            "issuer: cookies of such a login need https; set certificate_file and key_file of [serve], or behind_proxy",
        )
    if "openid" not in found.scopes:
        complaints.add(raw.place, "scopes: must have openid")
    table, known = inner["roles"], get_args(RoleName)
    if not isinstance(table, Mapping) or not all(role in known for role in table.values()):
        complaints.add(raw.place, f"roles: must be a table from group to one of {', '.join(known)}")
        return found
    if not table and not found.default_role:
        complaints.add(raw.place, "roles: no person could log in; give groups a role, or set default_role")
    return replace(found, roles=tuple(table.items()))


def is_private_url(url: str) -> bool:
    """Whether the way there is TLS, or does not leave this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


SECTION = Section(
    "serve", 82, (("[serve]", ServeSettings), ("[serve.oidc]", OidcSettings)), read_serve, overridden=True
)
