"""What the examples do by themselves, without clusters."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from exactly_once import TABLES, create
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import DBAPIError


def test_reader_and_worker_that_begin_at_once_find_the_tables_there(tmp_path: Path) -> None:
    """Of two that look and then make, the second was told that the table exists, and ended."""
    failed: list[Exception] = []

    def begin(url: str, together: threading.Barrier) -> None:
        engine = create_engine(url)
        together.wait(30)
        try:
            create(TABLES, engine)
        except DBAPIError as error:
            failed.append(error)
        engine.dispose()

    for turn in range(10):
        url, together = f"sqlite:///{tmp_path}/{turn}.db", threading.Barrier(2)
        both = [threading.Thread(target=begin, args=(url, together)) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join(30)
        engine = create_engine(url)
        assert {"inbox", "places"} <= set(inspect(engine).get_table_names())
        engine.dispose()
    assert failed == []


def test_what_fails_each_time_is_said(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/no/such/folder.db")
    with pytest.raises(DBAPIError):
        create(TABLES, engine)
