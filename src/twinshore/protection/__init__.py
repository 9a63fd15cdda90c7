"""Protection: a write is acknowledged once its home and its twin have it.

Watermarks of both sides and the mirror's records enter; decisions leave: which responses a proxy or a client may pass
on. The package knows no client's connection and no store.
"""
