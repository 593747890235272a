"""A cluster of policy reconcilers around a catalogue of views: proposals are late or get lost, nodes see views late.

What the ring does (mirrors become alive and synchronised, the dead are erased, handovers are heard) happens at random.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

from cluster.mirror.policy_reconciler import PolicyReconciler
from cluster.mirror.proposals import Proposal
from node.catalogue.mirrors.mirror_nodes import candidate_nodes, suggested_nodes
from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    DropMirror,
    EraseMirror,
    MirrorSynced,
    TransferMaster,
    Unmirror,
    View,
    ViewChange,
    changed,
    created,
    died,
)
from node.catalogue.policy import QueueSettings
from node.catalogue.records import ClusterMember, QueueRecord

PLAIN = QueueSettings()
ALL = QueueSettings(ha_mode="all", ha_sync_mode="automatic")


def exactly(count: int, sync_mode: str = "automatic") -> QueueSettings:
    return QueueSettings(ha_mode="exactly", ha_params=count, ha_sync_mode=sync_mode)


def nodes(*names: str, sync_mode: str = "automatic") -> QueueSettings:
    return QueueSettings(ha_mode="nodes", ha_params=names, ha_sync_mode=sync_mode)


def member(name: str, incarnation: int = 1, **others: object) -> ClusterMember:
    return ClusterMember(name, f"{name}:1", name, incarnation=incarnation, is_up=True, **others)  # type: ignore[arg-type]


def queue(name: str = "q", home: str = "a", **others: object) -> QueueRecord:
    return QueueRecord("/", name, f"uid-{name}", home=home, **others)  # type: ignore[arg-type]


@dataclass
class World:
    """loss: of proposals.   sync: how likely an unsynchronised mirror becomes synchronised in a step of 0.1 s."""

    names: str = "abc"
    seed: int = 0
    loss: float = 0.0
    sync: float = 1.0
    delay_s_max: float = 0.0
    now: float = 0.0
    settings: QueueSettings = PLAIN
    members: dict[str, ClusterMember] = field(default_factory=dict)
    records: dict[str, QueueRecord] = field(default_factory=dict)
    reconcilers: dict[str, PolicyReconciler] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    applied: list[ViewChange | None] = field(default_factory=list)
    proposed: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._wire: list[tuple[float, Proposal]] = []
        self._unseen: dict[str, list[QueueRecord | QueueSettings | list[ClusterMember]]] = {}
        self.members = {name: member(name, at + 1) for at, name in enumerate(self.names)}
        self._incarnation = len(self.names)
        for name in self.names:
            self._begin(name)

    # --- what an operator or a fault does ---

    def add(self, record: QueueRecord, mirrors: Iterable[str] = ()) -> None:
        copies = [(name, self.members[name].incarnation) for name in (record.home, *mirrors)]
        view = created(0, copies) if mirrors else None
        self._put(replace(record, view=view, ring_version=view.version if view else 0))

    def set_policy(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._tell(settings)

    def put_member(self, changed: ClusterMember) -> None:
        self.members[changed.name] = changed
        self._tell(list(self.members.values()))

    def drain(self, name: str, *, is_draining: bool = True) -> None:
        self.put_member(replace(self.members[name], is_draining=is_draining))

    def down(self, name: str) -> None:
        del self.reconcilers[name], self._unseen[name]
        for record in list(self.records.values()):
            if record.view is not None and any(each.node == name for each in record.view.members):
                ids = [each.id for each in record.view.members if each.node == name]
                self._put_view(record, died(record.view, ids, may_lose=False))
        self.put_member(replace(self.members[name], is_up=False))

    def up(self, name: str) -> None:
        self._incarnation += 1
        known = self.members.get(name) or member(name)
        self.members[name] = replace(known, is_up=True, incarnation=self._incarnation)
        self._begin(name)
        self.put_member(self.members[name])

    def _begin(self, name: str) -> None:
        reconciler = self.reconcilers[name] = PolicyReconciler(name)
        self._unseen[name] = []
        reconciler.members_changed(self.members.values())
        for record in self.records.values():
            reconciler.see(record, self.settings)

    # --- time ---

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.step()

    def step(self) -> None:
        self.now += 0.1
        random = self.random
        for name, reconciler in self.reconcilers.items():
            unseen = self._unseen[name]
            while unseen and (not self.delay_s_max or random.random() < 0.5):
                self._show(reconciler, unseen.pop(0))
            for proposal in reconciler.look(self.now):
                self._check_proposal(reconciler, proposal)
                self.proposed += 1
                self.reasons += [proposal.reason] if proposal.reason else []
                if random.random() >= self.loss:
                    self._wire.append((self.now + random.random() * self.delay_s_max, proposal))
        due = [proposal for time, proposal in self._wire if time <= self.now]
        self._wire = [each for each in self._wire if each[0] > self.now]
        for proposal in due:
            self._apply(proposal)
        for record in list(self.records.values()):
            if record.view is not None:
                self._ring(record, record.view)

    def _show(
        self, reconciler: PolicyReconciler, what: QueueRecord | QueueSettings | list[ClusterMember]
    ) -> None:
        if isinstance(what, list):
            reconciler.members_changed(what)
        elif isinstance(what, QueueRecord):
            reconciler.see(what, self.settings)
        else:
            for record in self.records.values():
                reconciler.see(record, what)

    def _check_proposal(self, reconciler: PolicyReconciler, proposal: Proposal) -> None:
        if isinstance(proposal.change, TransferMaster):
            charge = reconciler._charges[proposal.uid]
            assert charge.record.view is not None
            assert proposal.change.to in charge.record.view.synced
            assert charge.record.view.previous == 0

    def _apply(self, proposal: Proposal) -> None:
        record, change = self.records.get(proposal.uid), proposal.change
        if record is None:
            return
        if change is None:
            home = self.members[record.home]
            if record.view is None and home.is_up:
                self.applied.append(change)
                self._put_view(record, created(record.ring_version, [(home.name, home.incarnation)]))
            return
        view = record.view
        if view is None:
            return
        if isinstance(change, AddMirror):
            target = self.members.get(change.node)
            if target is None or not target.is_up or target.incarnation != change.incarnation:
                return
            assert target.type != "witness"
        after = changed(view, change)
        if after is None:
            return
        self.applied.append(change)
        if isinstance(change, TransferMaster):
            assert change.to in view.synced
            assert not view.previous
        if isinstance(change, DropMirror):
            assert any(each.id in after.synced for each in after.ring)
        if isinstance(change, Unmirror):
            self._put(replace(record, view=None))
        else:
            self._put_view(record, after)

    def _ring(self, record: QueueRecord, view: View) -> None:
        """One thing that the ring of a queue brings about, or nothing."""
        changes: list[ViewChange] = []
        for each in view.members:
            if each.status == "joining":
                changes.append(ActivateMirror(each.id))
            elif each.status == "dead":
                owner = view.owner_of(each.id)
                changes += [EraseMirror(each.id, owner)] if owner else []
            elif each.id not in view.synced and self.random.random() < self.sync:
                changes.append(MirrorSynced(each.id))
        if view.previous and view.master_node in self.reconcilers:
            self.reconcilers[view.master_node].heard_handover(record.uid)
        if changes:
            after = changed(view, self.random.choice(changes))
            if after is not None:
                self._put_view(record, after)

    def _put_view(self, record: QueueRecord, view: View) -> None:
        home = view.master_node or record.home
        self._put(replace(record, view=view, ring_version=view.version, home=home))

    def _put(self, record: QueueRecord) -> None:
        self.records[record.uid] = record
        self._tell(record)

    def _tell(self, what: QueueRecord | QueueSettings | list[ClusterMember]) -> None:
        for unseen in self._unseen.values():
            unseen.append(what)

    # --- what has become of it ---

    def view(self, name: str = "q") -> View:
        view = self.records[f"uid-{name}"].view
        assert view is not None
        return view

    def shape(self, name: str = "q") -> str:
        """The master's node, a bar, the mirrors' by name; in capitals who is synchronised."""
        view = self.records[f"uid-{name}"].view
        if view is None:
            return "-"
        mirrors = sorted(each.node for each in view.ring if each.id != view.master)
        synced = {each.node for each in view.ring if each.id in view.synced}
        letters = [node.upper() if node in synced else node for node in mirrors]
        master = (view.master_node or "?").upper()
        return f"{master}|{''.join(letters)}"

    def is_in_shape(self, record: QueueRecord) -> bool:
        """Whether nothing is left to do."""
        view = record.view
        if view is None:
            return self.settings.ha_mode is None
        if view.state != "live" or view.previous or self.settings.ha_mode is None:
            return False
        if any(each.status != "alive" for each in view.members):
            return False
        home = view.master_node
        assert home is not None
        mirrors = [each.node for each in view.members if each.id != view.master]
        candidates = candidate_nodes(self.members.values(), record, (home, *mirrors))
        synced = [each.node for each in view.members if each.id in view.synced]
        master, wanted = suggested_nodes(self.settings, record, home, mirrors, synced, candidates)
        if self.members[master].is_draining:
            return {home, master, *wanted} == {home, *mirrors}  # it may not move there
        return master == home and {home, *wanted} == {home, *mirrors}
