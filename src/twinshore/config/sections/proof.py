"""The section `proof`: how both sides are compared, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSettings:
    """How both sides are proven to hold the same records; see docs/proof.md."""

    beside_mirror: bool = setting(False, "`twinshore mirror run` proves its links continuously, in its own Spark")
    every_s: float = setting(60.0, "pause between two rounds of a continuous proof", low=1, high=86400)
    tasks: int = setting(2, "Spark tasks side by side", low=1, high=256)
    range_records: int = setting(
        1_000_000, "maximum number of offsets that one task compares before it reports", low=1_000, high=1_000_000_000
    )
    throttle_mb_s: float = setting(
        0.0, "maximum megabytes per second read from both clusters together; 0: no limit", low=0, high=1_000_000
    )
    reread_mb_s: float = setting(
        1.0,
        "megabytes per second, of both clusters together, at which a continuous proof rereads what it has proven;"
        " 0: never",
        low=0,
        high=1_000_000,
    )
    read_again_h: float = setting(
        0.0, "hours within which everything proven is to be reread; an older range is an alarm; 0: no alarm", low=0
    )
    digest: bool = setting(
        True, "compute a digest of all records; without it, equal compressed batches are not decompressed"
    )


def read_proof(raw: RawSection, complaints: Complaints) -> ProofSettings:
    found = read_section(ProofSettings, raw.raw, raw.place, complaints) or ProofSettings()
    if found.read_again_h and not found.reread_mb_s:
        sentence = "cannot be kept with reread_mb_s = 0, which reads nothing again"
        complaints.add(raw.place, f"read_again_h = {found.read_again_h:g} {sentence}")
    if refused := budget_error(found):
        complaints.add(raw.place, refused)
    return found


def budget_error(settings: ProofSettings) -> str:
    """Why the two budgets contradict each other; empty if they do not."""
    if not 0 < settings.throttle_mb_s <= settings.reread_mb_s:
        return ""
    part = f"reread_mb_s = {settings.reread_mb_s:g} is a part of throttle_mb_s = {settings.throttle_mb_s:g}"
    return f"{part}, and would leave nothing of it for what is new: set it lower"


SECTION = Section("proof", 60, (("[proof]", ProofSettings),), read_proof, overridden=True)
