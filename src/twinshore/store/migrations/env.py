"""Runs the scripts on the connection, and in the transaction, that `migrate` holds already."""

from alembic import context

from twinshore.store.schema import VERSION_TABLE
from twinshore.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
