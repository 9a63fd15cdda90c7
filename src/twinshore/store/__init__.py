"""What is remembered, in SQL, by subject: `store.leases`, `links`, `twins`, `homes`, `switching`, `switches`,
`crossings`, `guards`, `receipts`, `extents`, `ledger`, `audit`, `memories`, `controls`, `proofs`, `key_looks`, `delay`,
`proxies`, `proxy_resets`, `traffic`. Each is a `Part`, each method that reads or writes one transaction.

Values enter and leave (`values`); SQLite, PostgreSQL, MySQL and MariaDB answer alike. A position never moves back, a
receipt never leaves a gap, and nothing grows without bound but the ledger. Nothing here knows Kafka or a wall clock:
whoever calls says what time it is.
"""

from twinshore.fleet.incidents import IncidentKind
from twinshore.store.engine import open_to_others
from twinshore.store.lease_watch import HeldLease, LeaseWatch
from twinshore.store.proof_values import KeyLookRow, ProofRow, ProofState
from twinshore.store.proxy_values import (
    DropRow,
    FuseCountRow,
    FuseKey,
    FuseKind,
    FusePolicy,
    FuseRow,
    FuseState,
    InstanceRow,
    Limits,
    ResetGoal,
    ResetRow,
    ResetState,
    ResetWord,
)
from twinshore.store.pushes import PushRow, TokenRow
from twinshore.store.receipt_rules import ReceiptsRefusedError
from twinshore.store.revisions import LINKS
from twinshore.store.store import Store, empty_store, open_store, passing_store
from twinshore.store.switch_values import Asked, Crossing, Flip, GuardRow, SwitchRow, TopicInSwitch
from twinshore.store.traffic_values import Flow, FlowKey, FlowKind, FlowRow
from twinshore.store.values import (
    AlarmRow,
    AuditRow,
    ControlRow,
    DelayPlace,
    HomeRow,
    Incident,
    IncidentCount,
    LeaseRow,
    LedgerRow,
    LinkIdentity,
    LinkRow,
    LinkState,
    LinkStatus,
    PartitionState,
    Position,
    Receipt,
    Remembered,
    SourceBatch,
    SourceProducer,
    TwinRow,
    WatchRow,
)

__all__ = [
    "LINKS",
    "AlarmRow",
    "Asked",
    "AuditRow",
    "ControlRow",
    "Crossing",
    "DelayPlace",
    "DropRow",
    "Flip",
    "Flow",
    "FlowKey",
    "FlowKind",
    "FlowRow",
    "FuseCountRow",
    "FuseKey",
    "FuseKind",
    "FusePolicy",
    "FuseRow",
    "FuseState",
    "GuardRow",
    "HeldLease",
    "HomeRow",
    "Incident",
    "IncidentCount",
    "IncidentKind",
    "InstanceRow",
    "KeyLookRow",
    "LeaseRow",
    "LeaseWatch",
    "LedgerRow",
    "Limits",
    "LinkIdentity",
    "LinkRow",
    "LinkState",
    "LinkStatus",
    "PartitionState",
    "Position",
    "ProofRow",
    "ProofState",
    "PushRow",
    "Receipt",
    "ReceiptsRefusedError",
    "Remembered",
    "ResetGoal",
    "ResetRow",
    "ResetState",
    "ResetWord",
    "SourceBatch",
    "SourceProducer",
    "Store",
    "SwitchRow",
    "TokenRow",
    "TopicInSwitch",
    "TwinRow",
    "WatchRow",
    "empty_store",
    "open_store",
    "open_to_others",
    "passing_store",
]
