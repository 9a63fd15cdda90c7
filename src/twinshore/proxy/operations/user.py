"""A table of the users file, with a salted password."""

from __future__ import annotations

import json
import secrets

from twinshore.fleet import ConfigError, SaslMechanism, Secret
from twinshore.kafka.scram import keys_of
from twinshore.proxy.users import ITERATIONS, SALT_BYTES


def user_table(name: str, password: Secret) -> str:
    """What is to stand in the users file; ConfigError where there is no password."""
    plain = password.read()
    if not plain:
        raise ConfigError(f"{password.file or password.env} holds no password")
    keys = keys_of(plain, SaslMechanism.SCRAM_SHA_512, secrets.token_bytes(SALT_BYTES), ITERATIONS)
    return f'[{json.dumps(name, ensure_ascii=False)}]\nscram_sha_512 = "{keys.text}"'
