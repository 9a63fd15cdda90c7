"""Does what was decided on the target, and leaves for each change a row in the audit and what must be remembered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from twinshore.fleet import KafkaError, Secret, TwinshoreError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.rights import Acl, ScramUser
from twinshore.kafka.rights_requests import Refused, alter_quotas, create_acls, delete_acls, set_scram_password
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.acls import AclPlan, Wanted
from twinshore.mirror.follow.acts import Change
from twinshore.mirror.follow.quotas import QuotaChange, QuotaPlan, UserPlan
from twinshore.service.clock import wall_ms
from twinshore.store import AuditRow, Remembered, Store
from twinshore.store.audit import is_refusal, refusal

DONE = "done"
REFUSED_AGAIN_S = 86_400.0


@dataclass(slots=True)
class Hands:
    """`log` gets a sentence for each change. A row of the audit that the store would not take is offered again."""

    link: str
    target: KafkaCluster
    store: Store
    log: Callable[[str], None]
    unwritten: list[AuditRow] = field(default_factory=list)
    _refused: dict[tuple[str, str, str], tuple[str, float]] = field(default_factory=dict)

    def alter_settings(self, twin: str, topic_id: str, wanted: Mapping[str, tuple[str | None, str | None]]) -> None:
        """Changes settings of a twin."""
        named = bytes.fromhex(topic_id)
        outcome = self._try(lambda: self.target.admin.alter_topic_settings(twin, _after(wanted), topic_id=named))
        self.account(topic_settings.as_changes(twin, wanted), outcome)

    def apply_acls(self, plan: AclPlan, want: Wanted, known: Iterable[Remembered]) -> Refused:
        """Adds before it takes away: nobody who may read is shut out meanwhile, and nobody forbidden is let in. What
        the target refuses keeps back all that comes after it for the same place, and what it would have bounded;
        returned with its error."""
        # Remembered first: a rule that we made and did not know for ours would stay for ever.
        self.store.memories.remember([self._acl(acl, acls.WRITTEN) for acl in plan.create])
        refused: Refused = {}
        done: set[Acl] = set()
        turns = [(create_acls, True, turn) for turn in plan.creating()]
        turns += [(delete_acls, False, turn) for turn in plan.removing()]
        for act, given, turn in turns:
            free = [acl for acl in turn if not acls.kept_back(acl, refused, given=given)]
            failed = act(self.target, free) if free else {}
            passed = [acl for acl in free if acl not in failed]
            self.account([acls.as_change(acl, given=given) for acl in passed], DONE)
            for acl, error in failed.items():
                self.account([acls.as_change(acl, given=given)], refusal(error))
            refused |= failed
            done.update(passed)
        # What timed out may have happened all the same: it is ours, should it be there.
        perhaps = done | {acl for acl, error in refused.items() if error.retriable}
        gone = [acl for acl in plan.create if acl not in perhaps]
        gone += [*(acl for acl in plan.remove if acl in done), *plan.forget]
        self.store.memories.forget([self._acl(acl, acls.WRITTEN) for acl in gone])
        self.hold(want, known)
        return refused

    def hold(self, want: Wanted, known: Iterable[Remembered]) -> None:
        """Remembers which rules are held back, and drops those that are no more."""
        before = {row.subject: row for row in known if row.kind == acls.HELD}
        held = {acls.to_text(acl): reason for acl, reason in want.held.items()}
        fresh = [text for text in held if text not in before]
        over = [row for text, row in before.items() if text not in held]
        for text in fresh:
            acl = acls.from_text(text)
            self.account([Change(acls.KIND, str(acl), "", "")], f"held back: {held[text]}")
        self.store.memories.remember([self._row(acls.HELD, text, held[text]) for text in fresh])
        self.store.memories.forget(over)

    def apply_quotas(self, plan: QuotaPlan) -> None:
        """Sets and takes back client quotas."""
        for change in plan.changes:
            outcome = self._try(
                lambda change=change: alter_quotas(  # type: ignore[misc]
                    self.target, change.entity, {change.key: change.after}
                )
            )
            self.account([change.as_change()], outcome)
            if outcome == DONE:
                self._remember_quota(change)
        self.store.memories.forget([self._row(quotas.QUOTA, quotas.quota_to_text(key)) for key in plan.forget])

    def apply_users(self, plan: UserPlan, secrets: Mapping[str, Secret]) -> None:
        """Makes SCRAM users whose passwords are known, and remembers whom the target has had."""
        seen = list(plan.seen)
        for user, change in zip(plan.make, plan.changes(), strict=True):
            outcome = self._try(lambda user=user: self._make(user, secrets[user.name]))  # type: ignore[misc]
            self.account([change], outcome)
            if outcome == DONE:
                seen.append(quotas.key_of(user))
        self.store.memories.remember([self._row(quotas.USER, quotas.user_to_text(key)) for key in seen])
        self.store.memories.forget([self._row(quotas.USER, quotas.user_to_text(key)) for key in plan.forget])

    def delete_twin(
        self, twin: str, topic_id: str, reason: str, *, still: Callable[[], bool], told: bool = False
    ) -> str:
        """Why the target did not take it, empty where it did; a twin that is gone already is gone. `still` is asked
        right before each request; `told`: that it was refused has been told already."""

        def allow() -> None:
            if not still():
                raise KafkaError(f"{self.link}: the lease is lost: twin {twin} is not deleted", retriable=False)

        def delete() -> None:
            try:
                self.target.admin.delete_topic(twin, topic_id=bytes.fromhex(topic_id), allow=allow)
            except KafkaError as error:
                if error.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

        outcome = self._try(delete)
        if outcome == DONE or (still() and not told):
            self.account([Change("twin", twin, "", f"deleted: {reason}", twin)], outcome)
        return "" if outcome == DONE else outcome

    def account(self, changes: Sequence[Change], outcome: str) -> None:
        """Logs and audits. What is refused again at each look for the same reason is told once a day: rows of refusals
        would push those of changes out of the audit."""
        changes = [one for one in changes if self._is_news(one, outcome)]
        for change in changes:
            ended = "" if outcome == DONE else f" ({outcome})"
            self.log(f"{self.link}: {change}{ended}")
        at_ms = wall_ms()
        self.unwritten += [
            AuditRow(at_ms, self.link, one.kind, one.subject, one.before, one.after, outcome, topic=one.topic)
            for one in changes
        ]
        self.write_audit()

    def _is_news(self, change: Change, outcome: str) -> bool:
        key = change.kind, change.subject, change.after
        if not is_refusal(outcome):
            self._refused.pop(key, None)
            return True
        told, told_s = self._refused.get(key, ("", 0.0))
        if told == outcome and time.monotonic() - told_s < REFUSED_AGAIN_S:
            return False
        self._refused[key] = outcome, time.monotonic()
        return True

    def write_audit(self) -> None:
        """Offers the store what it has not taken yet."""
        if self.unwritten:
            self.store.audit.add(self.unwritten)
            self.unwritten = []

    def _make(self, user: ScramUser, secret: Secret) -> None:
        set_scram_password(self.target, user, secret.read())

    def _remember_quota(self, change: QuotaChange) -> None:
        row = self._row(quotas.QUOTA, quotas.quota_to_text((change.entity, change.key)), repr(change.after))
        if change.after is None:
            self.store.memories.forget([row])
        else:
            self.store.memories.remember([row])

    def _acl(self, acl: Acl, kind: str) -> Remembered:
        return self._row(kind, acls.to_text(acl))

    def _row(self, kind: str, subject: str, value: str = "") -> Remembered:
        return Remembered(self.link, kind, subject, value, kind, wall_ms())

    def _try(self, act: Callable[[], None]) -> str:
        try:
            act()
        except TwinshoreError as error:
            if isinstance(error, KafkaError) and error.retriable:
                raise
            return refusal(error)
        return DONE


def _after(wanted: Mapping[str, tuple[str | None, str | None]]) -> dict[str, str | None]:
    return {name: after for name, (_, after) in wanted.items()}
