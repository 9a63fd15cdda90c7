"""The admin client and its secrets: made anew when one changes, and kept nowhere else."""

from __future__ import annotations

import gc
from pathlib import Path

from twinshore.fleet import Cluster, KafkaError, SaslMechanism, Secret, Security
from twinshore.kafka.admin import Admin


def plain_texts(admin: Admin) -> str:
    """All that the object and what it refers to would show."""
    seen = [vars(admin), *gc.get_referents(*vars(admin).values())]
    return repr(seen)


def test_a_password_is_read_anew_and_not_kept(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first-password")
    security = Security(sasl=SaslMechanism.PLAIN, username="user", password=Secret(file=str(secret)))
    admin = Admin(Cluster("east", ("127.0.0.1:1",), security=security), timeout_s=0.2)

    def client() -> object:
        try:
            admin.topic_settings(["t"])
        except KafkaError as error:
            assert error.retriable
        made = vars(admin)["_made"]
        return made[1]

    first = client()
    assert client() is first
    assert "first-password" not in plain_texts(admin)
    secret.write_text("second-password")
    assert client() is not first
    assert "-password" not in plain_texts(admin)
