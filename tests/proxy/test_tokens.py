"""One token serves many connections for half of its life; one in a file, or of another user, is no such."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from twinshore.config.errors import KafkaError
from twinshore.config.model import Security
from twinshore.kafka.oauth import Token
from twinshore.proxy.broker_connection import OPAQUE_TOKEN_LIFETIME_S, TokenCache

ANNA = Security(token_url="https://tokens", username="anna")


class Endpoint:
    """Gives a token that lasts for a hundred seconds, or does not say how long."""

    def __init__(self, *, says: bool = True) -> None:
        self.now_s, self.given, self.says = 1000.0, 0, says
        self.tokens = TokenCache(self.fetch, lambda: self.now_s)

    def fetch(self, security: Security, _: float) -> Token:
        self.given += 1
        return Token(f"{security.username} {self.given}", self.now_s + 100 if self.says else 0)


def test_a_token_serves_for_half_of_its_life() -> None:
    endpoint = Endpoint()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: endpoint.tokens.of(ANNA, 1), range(50))) == {"anna 1"}
    endpoint.now_s += 49
    assert endpoint.tokens.of(ANNA, 1) == "anna 1"
    endpoint.now_s += 2
    assert endpoint.tokens.of(ANNA, 1) == "anna 2"
    assert endpoint.tokens.of(Security(token_url="https://tokens", username="eve"), 1) == "eve 3"


def test_a_token_that_does_not_say_when_it_ends_serves_for_a_while() -> None:
    endpoint = Endpoint(says=False)
    assert [endpoint.tokens.of(ANNA, 1), endpoint.tokens.of(ANNA, 1)] == ["anna 1", "anna 1"]
    endpoint.now_s += OPAQUE_TOKEN_LIFETIME_S
    assert endpoint.tokens.of(ANNA, 1) == "anna 2"


def test_a_token_of_a_file_is_read_each_time() -> None:
    endpoint = Endpoint()
    bare = Security(token_file="token", username="anna")
    assert [endpoint.tokens.of(bare, 1), endpoint.tokens.of(bare, 1)] == ["anna 1", "anna 2"]


def test_a_token_that_is_not_to_be_had_is_asked_for_again() -> None:
    def fetch(_: Security, __: float) -> Token:
        tries.append(0)
        raise KafkaError("no token")

    tries: list[int] = []
    tokens = TokenCache(fetch)
    for _ in range(2):
        with pytest.raises(KafkaError):
            tokens.of(ANNA, 1)
    assert len(tries) == 2
