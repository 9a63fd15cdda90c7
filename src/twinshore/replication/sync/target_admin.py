"""Changes of the target so that its settings, ACLs, quotas and users follow, with an audit row and memory for each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from twinshore.config.errors import KafkaError, TwinshoreError
from twinshore.config.model import Secret
from twinshore.kafka.admin import RefusedAcls, alter_quotas, create_acls, delete_acls, set_scram_password
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, ScramUser
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import AclSyncPlan, Change, QuotaPlan, UserPlan, WantedAcls
from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.log import is_refused_outcome, refused_outcome
from twinshore.state.store import Store

log = logging.getLogger(__name__)

DONE = "done"
REFUSAL_LOG_INTERVAL_S = 86_400.0


@dataclass(slots=True)
class TargetAdmin:
    """Changes the target, and logs each change. `unwritten`: audit rows not stored yet."""

    link: str
    target: KafkaCluster
    store: Store
    unwritten: list[AuditRow] = field(default_factory=list)
    _refused: dict[tuple[str, str, str], tuple[str, float]] = field(default_factory=dict)

    def alter_settings(self, twin: str, topic_id: str, wanted: Mapping[str, tuple[str | None, str | None]]) -> None:
        after, named = {name: after for name, (_, after) in wanted.items()}, bytes.fromhex(topic_id)
        outcome = self._try(lambda: self.target.admin.alter_topic_settings(twin, after, topic_id=named))
        self.account(decisions.settings_to_changes(twin, wanted), outcome)

    def apply_acls(self, plan: AclSyncPlan, want: WantedAcls, known: Iterable[LinkStateRow]) -> RefusedAcls:
        """Adds rules before removing others, so that no reader is shut out and no forbidden user admitted in between. A
        refused rule holds back later rules for the same resource, and those that it would have limited. Returns refused
        rules with their errors.
        """
        # Remembered first: a rule of ours that we did not know as ours would stay for ever.
        self.store.link_states.remember([self._acl(acl, decisions.ACL_WRITTEN_KIND) for acl in plan.create])
        refused: RefusedAcls = {}
        done: set[Acl] = set()
        turns = [(create_acls, True, acls) for acls in plan.creating()]
        turns += [(delete_acls, False, acls) for acls in plan.removing()]
        for act, given, acls in turns:
            free = [acl for acl in acls if not decisions.is_blocked(acl, refused, given=given)]
            failed = act(self.target, free) if free else {}
            passed = [acl for acl in free if acl not in failed]
            self.account([decisions.acl_change(acl, given=given) for acl in passed], DONE)
            for acl, error in failed.items():
                self.account([decisions.acl_change(acl, given=given)], refused_outcome(error))
            refused |= failed
            done.update(passed)
        # A request that timed out may have succeeded: then the rule is ours.
        perhaps = done | {acl for acl, error in refused.items() if error.retriable}
        gone = [acl for acl in plan.create if acl not in perhaps]
        gone += [*(acl for acl in plan.remove if acl in done), *plan.forget]
        self.store.link_states.forget([self._acl(acl, decisions.ACL_WRITTEN_KIND) for acl in gone])
        self.hold(want, known)
        return refused

    def hold(self, want: WantedAcls, known: Iterable[LinkStateRow]) -> None:
        before = {row.subject: row for row in known if row.kind == decisions.ACL_HELD_KIND}
        held = {decisions.acl_to_text(acl): reason for acl, reason in want.held.items()}
        fresh = [text for text in held if text not in before]
        over = [row for text, row in before.items() if text not in held]
        for text in fresh:
            acl = decisions.acl_from_text(text)
            self.account([Change(decisions.ACL_KIND, str(acl), "", "")], f"held back: {held[text]}")
        self.store.link_states.remember([self._row(decisions.ACL_HELD_KIND, text, held[text]) for text in fresh])
        self.store.link_states.forget(over)

    def apply_quotas(self, plan: QuotaPlan) -> None:
        for change in plan.changes:
            outcome = self._try(partial(alter_quotas, self.target, change.entity, {change.key: change.after}))
            self.account([change.as_change()], outcome)
            if outcome == DONE:
                key = decisions.quota_to_text((change.entity, change.key))
                keep = self.store.link_states.forget if change.after is None else self.store.link_states.remember
                keep([self._row(decisions.QUOTA_KIND, key, repr(change.after))])
        gone = [self._row(decisions.QUOTA_KIND, decisions.quota_to_text(key)) for key in plan.forget]
        self.store.link_states.forget(gone)

    def apply_users(self, plan: UserPlan, secrets: Mapping[str, Secret]) -> None:
        """Makes SCRAM users with known passwords, and remembers those that the target has had."""
        seen = list(plan.seen)
        for user, change in zip(plan.make, plan.changes(), strict=True):
            outcome = self._try(partial(self._make, user, secrets[user.name]))
            self.account([change], outcome)
            if outcome == DONE:
                seen.append(decisions.user_key(user))
        self.store.link_states.remember([self._row(decisions.USER_KIND, decisions.user_to_text(key)) for key in seen])
        gone = [self._row(decisions.USER_KIND, decisions.user_to_text(key)) for key in plan.forget]
        self.store.link_states.forget(gone)

    def account(self, changes: Sequence[Change], outcome: str) -> None:
        """Logs and audits. A repeated refusal is written once a day, as more rows would crowd out changes."""
        changes = [one for one in changes if self._is_news(one, outcome)]
        for change in changes:
            ended = "" if outcome == DONE else f" ({outcome})"
            level = logging.INFO if outcome == DONE else logging.WARNING
            log.log(level, f"{self.link}: {change}{ended}", extra={"link": self.link, "topic": change.topic})
        at_ms = wall_ms()
        self.unwritten += [
            AuditRow(at_ms, self.link, one.kind, one.subject, one.before, one.after, outcome, topic=one.topic)
            for one in changes
        ]
        self.write_audit()

    def _is_news(self, change: Change, outcome: str) -> bool:
        key = change.kind, change.subject, change.after
        if not is_refused_outcome(outcome):
            self._refused.pop(key, None)
            return True
        told, told_s = self._refused.get(key, ("", 0.0))
        if told == outcome and time.monotonic() - told_s < REFUSAL_LOG_INTERVAL_S:
            return False
        self._refused[key] = outcome, time.monotonic()
        return True

    def write_audit(self) -> None:
        if self.unwritten:
            self.store.audit.add(self.unwritten)
            self.unwritten = []

    def _make(self, user: ScramUser, secret: Secret) -> None:
        set_scram_password(self.target, user, secret.read())

    def _acl(self, acl: Acl, kind: str) -> LinkStateRow:
        return self._row(kind, decisions.acl_to_text(acl))

    def _row(self, kind: str, subject: str, value: str = "") -> LinkStateRow:
        return LinkStateRow(self.link, kind, subject, value, kind, wall_ms())

    def _try(self, act: Callable[[], None]) -> str:
        try:
            act()
        except TwinshoreError as error:
            if isinstance(error, KafkaError) and error.retriable:
                raise
            return refused_outcome(error)
        return DONE
