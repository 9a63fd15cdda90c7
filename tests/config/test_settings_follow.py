"""What follows a link, as an operator writes it."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.model import DeletedTopicPolicy, RecreatedTopicPolicy, Secret, SyncRules
from twinshore.config.settings import parse_settings

HEAD = """
[clusters.east]
bootstrap = ["127.0.0.1:9092"]
[clusters.west]
bootstrap = ["127.0.0.1:9192"]
[links."east->west"]
topics = ["orders"]
"""


def follow(text: str) -> SyncRules:
    return parse_settings(HEAD + text, name="mirror.toml", env={}).links[0].follow


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        follow(text)
    return caught.value.message


def test_nothing_said_follows_what_harms_nobody() -> None:
    assert follow("") == SyncRules()
    assert (SyncRules().acls, SyncRules().quotas, SyncRules().scram_users) == (True, False, False)
    assert (SyncRules().deleted, SyncRules().recreated) == (DeletedTopicPolicy.KEEP, RecreatedTopicPolicy.STOP)


def test_each_word_becomes_a_value() -> None:
    seen = follow(
        """
[links."east->west".follow]
every_s = 1.5
settings_exclude = ["segment.*"]
acls = false
group_acls = true
principal = "User:CN=mirror"
deleted = "delete"
recreated = "recreate"
delete_after_s = 60.0
quotas = true
[links."east->west".follow.users.anna]
password_env = "ANNA"
[links."east->west".follow.users."b.b"]
password_file = "secret/b"
"""
    )
    users = (("anna", Secret(env="ANNA")), ("b.b", Secret(file="secret/b")))
    assert seen == SyncRules(
        every_s=1.5,
        settings_exclude=("segment.*",),
        acls=False,
        group_acls=True,
        principal="User:CN=mirror",
        deleted=DeletedTopicPolicy.DELETE,
        recreated=RecreatedTopicPolicy.RECREATE,
        delete_after_s=60.0,
        quotas=True,
        scram_users=True,
        users=users,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("delted = 'keep'", '[links."east->west".follow] delted: unknown; did you mean deleted?'),
        ("deleted = 'archiv'", "deleted: no such value 'archiv'; did you mean archive?"),
        ("recreated = 'recreat'", "recreated: no such value 'recreat'; did you mean recreate?"),
        ("every_s = 0.1", "every_s: is 0.1, the least is 0.5"),
        ("settings_exclude = ['(']", "settings_exclude: '(' is not a regular expression"),
        ("principal = 'mirror'", "principal: 'mirror' is not one; did you mean User:mirror?"),
        ("users = { anna = { password = 'x' } }", "a secret never stands in the settings"),
        ("users = { anna = {} }", ".follow.users.anna] needs either password_env or password_file"),
        ("users = 3", '[links."east->west".follow.users] must hold one section per user'),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, said: str) -> None:
    assert said in refusal(f'[links."east->west".follow]\n{text}\n')


def test_a_follow_that_is_no_section() -> None:
    assert "follow] must be a section" in refusal("follow = 3\n")
