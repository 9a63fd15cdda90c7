"""Users of a file: salted or with a password elsewhere; read again when the file changes, kept while it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from twinshore.config.errors import ConfigError
from twinshore.config.model import SaslMechanism, Secret
from twinshore.config.sections.proxy import ProxySettings
from twinshore.config.settings import parse_settings
from twinshore.kafka.protocol.sasl import ScramClient, ScramServer, derive_scram_keys
from twinshore.proxy.auth import Authenticator, ReloadedFile, UsersOfFile, read_users
from twinshore.proxy.operations.run import format_user_table, plan_no_user, plan_user
from twinshore.runtime.live_settings import act
from twinshore.state.store import open_store

SHA_512 = SaslMechanism.SCRAM_SHA_512
SALTED = derive_scram_keys("open", SHA_512, b"of the sea", 4096).text


def users(folder: Path, text: str) -> UsersOfFile:
    (folder / "users.toml").write_text(text)
    return read_users(str(folder / "users.toml"))


def by_scram(found: UsersOfFile, user: str, password: str) -> bool:
    client, server = ScramClient(SHA_512, user, password, "theirs", "test"), ScramServer(SHA_512, found.scram_keys, "x")
    try:
        client.verify(server.final(client.final(server.first(client.first()))))
    except Exception:
        return False
    return True


def test_a_password_of_a_file_and_a_salted_one_log_in_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("sesame\n")
    monkeypatch.setenv("CAROLS", "carol's")
    text = f'[anna]\npassword_file = "{tmp_path}/secret"\n["b.o.b"]\nscram_sha_512 = "{SALTED}"\n'
    found = users(tmp_path, f'{text}[carol]\npassword_env = "CAROLS"\n')
    for user, password in (("anna", "sesame"), ("b.o.b", "open"), ("carol", "carol's")):
        for _ in range(2):
            assert found.check_password(user, password)
            assert by_scram(found, user, password)
        assert not found.check_password(user, "wrong")
        assert not by_scram(found, user, "wrong")
    assert not found.check_password("eve", "open")


@pytest.mark.claim("proxy", "users-hidden", "a client learns by no answer to a login whether there is such a user")
def test_a_client_learns_from_no_challenge_which_users_exist(tmp_path: Path) -> None:
    def challenge(found: UsersOfFile, user: str) -> tuple[int, int, bytes]:
        first = ScramServer(SHA_512, found.scram_keys, "x").first(f"n,,n={user},r=abc".encode())
        return len(first), found.scram_keys(user).iterations, found.scram_keys(user).salt

    salted = derive_scram_keys("open", SHA_512, b"of the sea", 8192).text
    found = users(tmp_path, f'[anna]\nscram_sha_512 = "{salted}"\n')
    assert challenge(found, "anna")[:2] == challenge(found, "eve")[:2]
    assert not by_scram(found, "eve", "open")
    again = users(tmp_path, f'[anna]\nscram_sha_512 = "{salted}"\n')
    assert challenge(found, "eve") == challenge(again, "eve"), "another process tells the same"
    assert challenge(found, "eve")[2] != challenge(found, "mallory")[2]


def test_a_password_of_a_file_has_one_salt_in_all_processes(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame\n")
    text = f'[anna]\npassword_file = "{tmp_path}/secret"\n'
    one, other = users(tmp_path, text), users(tmp_path, text)
    assert one.scram_keys("anna") == other.scram_keys("anna")
    assert not one.check_password("eve", "sesame")


def test_a_table_that_was_made_here_is_understood_and_lets_in_whoever_has_the_password(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame\n")
    table = format_user_table('a "b"', Secret(file=str(tmp_path / "secret")))
    assert "sesame" not in table
    found = users(tmp_path, table)
    assert found.check_password('a "b"', "sesame")
    assert by_scram(found, 'a "b"', "sesame")
    (tmp_path / "secret").write_text("\n")
    with raises(ConfigError, "proxy.password-empty"):
        format_user_table("anna", Secret(file=str(tmp_path / "secret")))


def test_a_password_s_file_is_read_at_each_login(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("old")
    found = users(tmp_path, f'[anna]\npassword_file = "{secret}"\n')
    assert by_scram(found, "anna", "old")
    secret.write_text("new")
    assert by_scram(found, "anna", "new")
    assert not found.check_password("anna", "old")
    secret.unlink()
    assert not found.check_password("anna", "new")
    assert not found.check_password("anna", "")
    assert not by_scram(found, "anna", "new")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("anna = 1", r'\["anna"\] must be a section'),
        ("[anna]", r'\["anna"\] needs scram_sha_512, or password_env or password_file'),
        ('[anna]\npassword = "x"', "a secret never stands in the settings"),
        ('[anna]\nscram_sha_512 = "x"', "scram_sha_512: the SCRAM keys must be salt="),
        ('[anna]\npassword_file = "nowhere"', "secret file nowhere cannot be read"),
        ('[anna]\npassword_file = "a"\npassword_env = "B"', "one or the other"),
        ("[anna", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_said(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        users(tmp_path, text)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with raises(ConfigError, "proxy.users-file-unreadable", cause="No such file or directory"):
        read_users(str(tmp_path / "none.toml"))


def test_a_file_that_changes_is_in_force_and_one_that_is_wrong_is_told_once(
    tmp_path: Path, log_lines: LogLines
) -> None:
    file = tmp_path / "number"
    file.write_text("1")

    def make() -> int:
        try:
            return int(file.read_text())
        except (OSError, ValueError):
            raise ConfigError("that is no number") from None

    found = ReloadedFile("the number", (str(file),), make)
    found.look()
    assert (found.value, log_lines) == (1, [])
    file.write_text("two")
    found.look()
    assert log_lines == [], "it may be half of a change"
    for _ in range(3):
        found.look()
    assert found.value == 1 and [mentions(one, "the number") for one in log_lines] == [True]
    file.unlink()
    found.look()
    file.write_text("33")
    found.look()
    assert (found.value, log_lines[1:]) == (33, ["the number: the files have changed, and are in force"])


def test_users_of_the_store_count_before_those_of_the_file(tmp_path: Path, log_lines: LogLines) -> None:
    file = tmp_path / "users.toml"
    file.write_text(f'[anna]\nscram_sha_512 = "{SALTED}"\n')
    gate = Authenticator(ProxySettings(sasl=("SCRAM-SHA-512",), users_file=str(file)))
    new = derive_scram_keys("new", SHA_512, b"of the lake", 4096).text

    def login(user: str, password: str) -> tuple[bool, bool]:
        found = gate._known_users()
        return by_scram(found, user, password), found.check_password(user, password)

    assert login("anna", "open") == (True, True)
    unknown = gate._known_users().scram_keys("nobody")
    gate.take_users({"anna": new, "bob": new, "carol": "no keys"})
    assert [mentions(line, "carol") for line in log_lines] == [True]
    assert (login("anna", "open"), login("anna", "new"), login("bob", "new")) == (
        (False,) * 2,
        (True,) * 2,
        (True,) * 2,
    )
    assert gate._known_users().scram_keys("nobody") != unknown, "a seed that the file alone does not tell"
    file.write_text(f'[dora]\nscram_sha_512 = "{SALTED}"\n')
    gate.look()
    assert (login("dora", "open"), login("bob", "new")) == ((True,) * 2, (True,) * 2)
    gate.take_users({})
    assert (login("bob", "new"), login("dora", "open")) == ((False,) * 2, (True,) * 2)
    gate.close()


def test_without_a_users_file_clusters_check_logins(tmp_path: Path) -> None:
    text = '[clusters.east]\nbootstrap = ["e:1"]\n[proxy]\n'
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        settings = parse_settings(text, name="test", env={})
        with raises(ConfigError, "proxy.no-users-file"):
            plan_user("anna", "open", settings, store, by="anna")
        settings = parse_settings(f'{text}sasl = ["PLAIN"]\nusers_file = "u.toml"\n', name="test", env={})
        with raises(ConfigError, "proxy.password-empty", place="user anna"):
            plan_user("anna", "", settings, store, by="anna")
        plan = plan_user("an na", "open", settings, store, by="anna")
        assert plan.decisions() == ('name proxy.users."an na": proxy.users."an na" would be set',)
        assert "open" not in repr(plan)
        list(act(plan, store, by="anna"))
        with raises(ConfigError, "runtime.setting-not-set"):
            plan_no_user("anna", settings, store)
        list(act(plan_no_user("an na", settings, store), store, by="anna"))
        assert store.settings.all() == (2, ())
