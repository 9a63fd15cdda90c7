"""How MirrorMaker 2 logs in to a cluster, as Twinshore's section `security`. Passwords are named, never copied."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from twinshore.fleet.mirrormaker.reading import Written
from twinshore.fleet.nouns import SaslMechanism

_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
# A value that a ConfigProvider of Connect's would fetch from elsewhere.
PLACEHOLDER = re.compile(r"\$\{[^}]*\}")


@dataclass(slots=True)
class Login:
    """`values` are the section's; `steps` is what the operator must do by hand; `wrong` is what cannot be said."""

    values: dict[str, str | bool] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def login(cluster: str, given: Mapping[str, Written]) -> Login:
    """The section of one cluster, out of its properties without their alias."""
    found = Login()
    texts = {key: one.value for key, one in given.items()}
    protocol = texts.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        found.wrong.append(f"security.protocol: Kafka has no {protocol!r}")
        return found
    if protocol.endswith("SSL"):
        _tls(cluster, texts, found)
    if protocol.startswith("SASL"):
        _sasl(cluster, texts, found)
    return found


def variable(cluster: str, what: str) -> str:
    """The environment variable that is to hold a secret of this cluster."""
    return re.sub(r"[^A-Z0-9]", "_", f"{cluster}_{what}".upper())


def _tls(cluster: str, texts: Mapping[str, str], found: Login) -> None:
    found.values["tls"] = True
    trusted = texts.get("ssl.truststore.location", "")
    if trusted:
        found.values["ca_file"] = _pem(cluster, trusted, texts.get("ssl.truststore.type", ""), "ca", found)
    ours = texts.get("ssl.keystore.location", "")
    if ours:
        pem = _pem(cluster, ours, texts.get("ssl.keystore.type", ""), "cert", found)
        found.values |= {"cert_file": pem, "key_file": pem}
        if texts.get("ssl.key.password"):
            name = variable(cluster, "key_password")
            found.values["key_password_env"] = name
            found.steps.append(f"put the key's password of {cluster} into the environment variable {name}")
    # Java's way to say so is to leave it empty.
    if "ssl.endpoint.identification.algorithm" in texts and not texts["ssl.endpoint.identification.algorithm"]:
        found.values["check_hostname"] = False


def _pem(cluster: str, location: str, kind: str, what: str, found: Login) -> str:
    path = PurePosixPath(location)
    if kind.upper() == "PEM" or path.suffix in (".pem", ".crt", ".cer"):
        return location
    pem = str(path.with_suffix(".pem"))
    found.steps.append(f"turn {location} into the PEM file {pem} (keytool, then openssl): {what} of {cluster}")
    return pem


def _sasl(cluster: str, texts: Mapping[str, str], found: Login) -> None:
    mechanism = texts.get("sasl.mechanism", "GSSAPI")
    if mechanism not in {one.value for one in SaslMechanism}:
        known = ", ".join(one.value for one in SaslMechanism)
        found.wrong.append(f"sasl.mechanism: Twinshore does not speak {mechanism}; it speaks {known}")
        return
    found.values["sasl"] = mechanism
    options = {
        key: (quoted or bare).replace('\\"', '"')
        for key, quoted, bare in _OPTION.findall(texts.get("sasl.jaas.config", ""))
    }
    user = options.get("username") or options.get("clientId", "")
    if PLACEHOLDER.search(user):
        found.steps.append(f"write the user of {cluster} as username: it stood as {user}")
        user = "TO-BE-WRITTEN"
    if user:
        found.values["username"] = user
    name = variable(cluster, "password")
    if mechanism == SaslMechanism.OAUTHBEARER:
        url = texts.get("sasl.oauthbearer.token.endpoint.url", "")
        if url.startswith("file:"):
            found.values["token_file"] = url.removeprefix("file:").replace("//", "/", 1)
            return
        found.values["token_url"] = url or "https://token.invalid"
        if not url:
            found.steps.append(f"write where tokens of {cluster} are fetched as token_url")
        if options.get("scope"):
            found.values["token_scope"] = options["scope"]
        if not options.get("clientSecret"):
            return
    elif not user:
        found.values["username"] = "TO-BE-WRITTEN"
        found.steps.append(f"write the user of {cluster} as username: it is not in sasl.jaas.config")
    found.values["password_env"] = name
    found.steps.append(f"put the password of {cluster} into the environment variable {name}")
