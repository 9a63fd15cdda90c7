"""Alembic's scripts. Read by path, never imported."""
