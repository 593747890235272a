"""A cluster in memory that answers as `node/management/resources/planning.py` does, with faults when asked for.

Each queue is a real view of node/catalogue/mirrors/views.py, so rings, epochs and heirs are the broker's own. Time is
an argument. What was asked for goes on by itself: a mirror joins, gets what there is and is synchronised; a promotion
takes a moment; who is dropped has to be erased.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from node.catalogue.mirrors import views
from node.catalogue.mirrors.views import View
from spark_ops.applying.asking import Answer
from spark_ops.applying.observation import Observation
from spark_ops.documents import content_hash

CLUSTER: Final = "fake"


@dataclass
class FakeQueue:
    """A queue.   want: mirrors beside the master.   joined_at, moved_at: when things began that take time.

    size_s: how long a copy takes."""

    vhost: str
    name: str
    uid: str
    want: int
    view: View
    size_s: float
    joined_at: dict[str, float] = field(default_factory=dict)
    moved_at: float = 0.0
    dropped_at: float = 0.0

    @property
    def master(self) -> str | None:
        return self.view.master_node

    @property
    def ring(self) -> tuple[str, ...]:
        """The master first."""
        nodes = [member.node for member in self.view.ring]
        at = nodes.index(self.master) if self.master in nodes else 0
        return (*nodes[at:], *nodes[:at])

    @property
    def members(self) -> tuple[str, ...]:
        """In the order that decides who is heir."""
        return tuple(member.node for member in self.view.ring)

    @property
    def synced(self) -> tuple[str, ...]:
        good = {member.node for member in self.view.ring if member.id in self.view.synced}
        return tuple(node for node in self.ring if node in good)

    def change(self, change: views.ViewChange) -> bool:
        after = views.changed(self.view, change)
        if after is None:
            return False
        self.view = after
        return True


class FakeCluster:
    """The cluster.   seen_steps: each (step, state) that changed something, in order."""

    JOIN_S: Final = 0.4
    MOVE_S: Final = 0.3
    ERASE_S: Final = 0.3

    def __init__(self, nodes: tuple[str, ...], random: Random) -> None:
        self.random = random
        self.up = set(nodes)
        self.nodes = nodes
        self.view_id = 7
        self.alarms: set[str] = set()
        self.queues: dict[tuple[str, str], FakeQueue] = {}
        self.lock: dict[str, Any] | None = None
        self.seen_steps: list[tuple[str, str]] = []
        self.answer_ms = 5.0

    def add(
        self, name: str, nodes: tuple[str, ...], want: int, size_s: float = 2.0, vhost: str = "/"
    ) -> FakeQueue:
        view = views.created(0, [(node, 1) for node in nodes])
        uid = content_hash([vhost, name])[7:39]
        queue = self.queues[vhost, name] = FakeQueue(vhost, name, uid, want, view, size_s)
        return queue

    # --- time ---

    def advance(self, now: float) -> None:
        """Let time pass: joins, synchronisations, handovers and removals end by themselves."""
        for queue in self.queues.values():
            view = queue.view
            if view.previous and now - queue.moved_at >= self.MOVE_S:
                queue.change(views.TookOver(view.since))
            for member in view.members:
                if member.status == "dead" and now - queue.dropped_at >= self.ERASE_S:
                    queue.change(views.EraseMirror(member.id, queue.view.owner_of(member.id)))
                began = now - queue.joined_at.get(member.node, now)
                if member.status == "joining" and began >= self.JOIN_S:
                    queue.change(views.ActivateMirror(member.id))
                elif member.status == "alive" and began >= self.JOIN_S + queue.size_s:
                    queue.change(views.MirrorSynced(member.id))

    def kill_node(self, node: str) -> None:
        """Take a node down; its masters' heirs are promoted at once."""
        self.up.discard(node)
        for queue in self.queues.values():
            member = queue.view.member_on(node)
            if member is not None:
                queue.view = views.died(queue.view, (member.id,), may_lose=False)
                while any(each.status == "dead" for each in queue.view.members):
                    dead = next(each for each in queue.view.members if each.status == "dead")
                    if not queue.change(views.EraseMirror(dead.id, queue.view.owner_of(dead.id))):
                        break

    # --- what is asked ---

    def observation(self) -> Observation:
        unsafe = {key for key, queue in self.queues.items() if len(queue.synced) < 2}
        return Observation(
            frozenset(self.up), frozenset(self.alarms), frozenset(unsafe), self.view_id, self.answer_ms
        )

    def put_lock(self, body: Mapping[str, Any], now: float) -> Answer:
        held = self.lock
        if held is not None and held["until"] <= now:
            held = self.lock = None
        if held is not None and (held["plan"], held["owner"]) != (body["plan"], body["owner"]):
            why = f"plan {held['plan']} of {held['owner']} is being carried out since {held['since']}"
            return Answer(409, {"error": "busy", "reason": why})
        since = now if held is None else held["since"]
        self.lock = {**body, "since": since, "until": now + body["ttl_s"]}
        return Answer(200, {"plan": body["plan"], "owner": body["owner"], "since": since})

    def delete_lock(self, body: Mapping[str, Any]) -> Answer:
        if self.lock is not None and (self.lock["plan"], self.lock["owner"]) == (body["plan"], body["owner"]):
            self.lock = None
        return Answer(200, {})

    def step(self, body: Mapping[str, Any], now: float) -> Answer:
        """POST /api/mirroring/plan-step."""
        if self.lock is None or self.lock["plan"] != body["plan"] or self.lock["until"] <= now:
            return Answer(423, {"error": "locked", "reason": "the lock is not held by this plan"})
        queue = self.queues.get((body["vhost"], body["queue"]))
        if queue is None:
            return Answer(404, {"error": "not_found", "reason": "no such queue"})
        if queue.uid != body["uid"]:
            return self._stale(queue, "another incarnation of the queue")
        return getattr(self, f"_{body['action']}")(queue, body, now)

    def _promote(self, queue: FakeQueue, body: Mapping[str, Any], now: float) -> Answer:
        if queue.master == body["to"]:
            if queue.view.previous:
                return self._ok(queue, "started")
            return self._ok(queue, "skipped")
        if why := self._why_stale(queue, body["pre"]):
            return self._stale(queue, why)
        target = queue.view.member_on(body["to"])
        if target is None or not queue.change(views.TransferMaster(queue.view.master, target.id)):
            return self._stale(queue, "it cannot be master")
        queue.moved_at = now
        self.seen_steps.append((body["step"], "promote"))
        return self._ok(queue, "started" if self.random.random() < 0.5 else "done")

    def _add_mirror(self, queue: FakeQueue, body: Mapping[str, Any], now: float) -> Answer:
        if queue.view.member_on(body["to"]) is not None:
            return self._ok(queue, "skipped")
        if why := self._why_stale(queue, body["pre"]):
            return self._stale(queue, why)
        if not queue.change(views.AddMirror(body["to"], 1)):
            return Answer(503, {"error": "unavailable", "reason": "not just now"})
        queue.joined_at[body["to"]] = now
        self.seen_steps.append((body["step"], "add_mirror"))
        return self._ok(queue, "started" if self.random.random() < 0.5 else "done")

    def _wait_synced(self, queue: FakeQueue, body: Mapping[str, Any], now: float) -> Answer:
        if body["to"] in queue.synced:
            return self._ok(queue, "skipped")
        if queue.view.member_on(body["to"]) is None:
            return self._stale(queue, "the copy is not there")
        if why := self._why_stale(queue, body["pre"]):
            return self._stale(queue, why)
        done = (now - queue.joined_at.get(body["to"], now)) / (self.JOIN_S + queue.size_s)
        return Answer(200, {"state": "waiting", "progress": min(done, 0.99), "observed": self._facts(queue)})

    def _drop_mirror(self, queue: FakeQueue, body: Mapping[str, Any], now: float) -> Answer:
        member = queue.view.member_on(body["from"])
        if member is None:
            is_going = any(each.node == body["from"] for each in queue.view.members)
            return self._ok(queue, "started" if is_going else "skipped")
        if why := self._why_stale(queue, body["pre"]):
            return self._stale(queue, why)
        left = set(queue.synced) - {body["from"]}
        if len(left) < max(body["pre"]["min_synced"], queue.want + 1):
            return self._stale(queue, "too few would be left")
        if not queue.change(views.DropMirror(member.id)):
            return self._stale(queue, "it cannot be dropped")
        queue.dropped_at = now
        self.seen_steps.append((body["step"], "drop_mirror"))
        return self._ok(queue, "done")

    def _why_stale(self, queue: FakeQueue, pre: Mapping[str, Any]) -> str | None:
        if not isinstance(pre["epoch"], int) or pre["epoch"] != queue.view.since:
            return f"the epoch is {queue.view.since}, not {pre['epoch']}"
        if pre["master"] != queue.master:
            return f"the master is {queue.master}, not {pre['master']}"
        if missing := set(pre["synced"]) - set(queue.synced):
            return f"not synchronised: {', '.join(sorted(missing))}"
        return None if len(queue.synced) >= pre["min_synced"] else "too few are synchronised"

    def _facts(self, queue: FakeQueue) -> dict[str, Any]:
        return {"epoch": queue.view.since, "master": queue.master, "ring": list(queue.ring)}

    def _ok(self, queue: FakeQueue, state: str) -> Answer:
        return Answer(200, {"state": state, "progress": None, "observed": self._facts(queue)})

    def _stale(self, queue: FakeQueue, why: str) -> Answer:
        return Answer(409, {"error": "stale", "reason": why, "observed": self._facts(queue)})

    def topology(self) -> dict[str, Any]:
        """GET /api/mirroring/topology."""
        return {
            "format": "fluffle-topology/1",
            "cluster": CLUSTER,
            "view_id": self.view_id,
            "nodes": [
                {
                    "node": node,
                    "is_up": node in self.up,
                    "is_draining": False,
                    "type": "disc",
                    "zone": None,
                    "labels": {},
                }
                for node in self.nodes
            ],
            "queues": [
                {
                    "vhost": queue.vhost,
                    "queue": queue.name,
                    "uid": queue.uid,
                    "type": "classic",
                    "epoch": queue.view.since,
                    "policy": "ha",
                    "want_mirrors": queue.want,
                    "fixed_nodes": None,
                    "exclusive": False,
                    "master": queue.master,
                    "ring": list(queue.ring),
                    "members": list(queue.members),
                    "synced": list(queue.synced),
                    "placement": [],
                }
                for queue in self.queues.values()
            ],
        }
