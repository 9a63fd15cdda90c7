"""The section `proof`: how both sides are compared, and how much that may take."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet.settings_edge import Complaints, read_section
from twinshore.fleet.settings_table import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSettings:
    """How both sides are proven to hold the same records; see docs/proof.md."""

    beside_mirror: bool = setting(False, "`twinshore mirror run` proves its links all the time, in its own Spark")
    every_s: float = setting(60.0, "pause between two rounds of a continuous proof", low=1, high=86400)
    tasks: int = setting(2, "Spark tasks side by side", low=1, high=256)
    stretch_records: int = setting(
        1_000_000, "most offsets that one task compares before it reports", low=1_000, high=1_000_000_000
    )
    throttle_mb_s: float = setting(
        0.0, "most megabytes per second read from both clusters together; 0: no bound", low=0, high=1_000_000
    )
    digest: bool = setting(
        True, "make a digest of the records; without it, equal compressed batches are not even unpacked"
    )


def read_proof(raw: object, complaints: Complaints) -> ProofSettings:
    """The section; complaints are added, and the defaults returned, where it is wrong."""
    return read_section(ProofSettings, raw, "[proof]", complaints) or ProofSettings()
