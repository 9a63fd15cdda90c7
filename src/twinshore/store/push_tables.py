"""The tables of pushes: what each application's clients are told, and who may ask for it or change it."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Table

from twinshore.store.tables import ACTOR_LENGTH, exact_name, long_text, metadata, number

APP_LENGTH = 64
DIGEST_LENGTH = 64

# `revision` never falls: a row stays, with an empty text, where its push was taken away. `digest` is of `text`.
pushes = Table(
    "pushes",
    metadata,
    Column("app", exact_name(APP_LENGTH), primary_key=True),
    number("revision"),
    Column("digest", exact_name(DIGEST_LENGTH), nullable=False),
    Column("text", long_text(), nullable=False),
    Column("set_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("changed_ms"),
)

# Of a token only its digest is kept: whoever reads the store cannot use it.
push_tokens = Table(
    "push_tokens",
    metadata,
    Column("digest", exact_name(DIGEST_LENGTH), primary_key=True),
    Column("app", exact_name(APP_LENGTH), nullable=False),
    Column("may_push", Boolean(), nullable=False),
    Column("made_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("made_ms"),
)
