"""The resources `/mirroring/topology`, `plan-lock` and `plan-step`: for tools that move copies of queues.

    PUT plan-lock ─► POST plan-step, again and again until it is done or stale ─► DELETE plan-lock

They are not RabbitMQ's. The catalogue judges the conditions of a step when the step is applied. Here a step is only
held back for reasons that the catalogue cannot know: a mirror that is far behind, a node that does not answer
although it counts as up. Asking for the same step twice does no harm.

Source: spark §3.4.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, get_args

from node.admin import plans
from node.catalogue.commands import PlanAction, StepOutcome, TakePlanStep
from node.catalogue.mirrors.plan_steps import epoch_of, judged, synced_nodes
from node.catalogue.plan_lock import busy, moment, refusal
from node.catalogue.records import PlanLock, QueueRecord
from node.io.control import ControlError
from node.io.turns import taken
from node.management.call import Call
from node.management.reply import Reply, bad_request, not_found, ok
from node.management.resources.bodies import require, text, texts
from node.management.routes import Access, Route
from node.statistics.query import Query
from node.statistics.topology_document import ring_from_master, topology_head, topology_queues

TTL_S_MAX: Final = 3600
"""The longest time of a lock: an owner that never comes back must not keep others out for longer."""
NAME_CHARS_MAX: Final = 256
"""The longest plan's id, owner's name or step's id."""
NODES_MAX: Final = 100
"""The most nodes that a step names."""
TAKE_OVER_S: Final = 3.0
"""For how many seconds a request waits for a promotion, which continues after that."""
_POLL_S: Final = 0.02

_ADMIN: Final = Access.ADMINISTRATOR
_MIRRORS: Final = frozenset({"mirrors"})


# --- the topology ---


async def topology(call: Call) -> Reply:
    """GET /mirroring/topology: the topology of one moment, as this node knows it
    (`node.statistics.topology_document`).
    """
    catalogue, config = call.catalogue, call.site.config
    own = config.node_name
    cluster = str(catalogue.global_parameter("cluster_name") or config.cluster_name)
    head = topology_head(catalogue, cluster, own, *call.site.places())
    return ok({**head, "queues": await taken(topology_queues(catalogue, own))})


# --- the lock ---


async def lock(call: Call) -> Reply:
    """GET /mirroring/plan-lock: the plan that is carried out; `plan` is null if there is none."""
    return ok(_shown_lock(call, call.catalogue.plan_lock))


async def take_lock(call: Call) -> Reply:
    """PUT /mirroring/plan-lock: {"plan", "owner", "ttl_s"}. 409 while another plan has it. Its owner may renew it."""
    body = await call.body()
    plan, owner = _names(body, "plan", "owner")
    require(body, "ttl_s")
    ttl_s = body["ttl_s"]
    if not isinstance(ttl_s, int | float) or isinstance(ttl_s, bool) or not 1 <= ttl_s <= TTL_S_MAX:
        raise bad_request(f"ttl_s must be a number from 1 to {TTL_S_MAX}")
    admin = call.site.admin(call.user.name)
    found = await plans.take_lock(admin, plan, owner, _now_ms(), int(ttl_s * 1000))
    return _answer_of_lock(call, found, is_ours=(found.plan, found.owner) == (plan, owner))


async def release_lock(call: Call) -> Reply:
    """DELETE /mirroring/plan-lock: {"plan", "owner"}. 409 if another plan has it; a free lock is no error."""
    plan, owner = _names(await call.body(), "plan", "owner")
    found = await plans.release_lock(call.site.admin(call.user.name), plan, owner)
    return _answer_of_lock(call, found, is_ours=found is None)


def _answer_of_lock(call: Call, found: PlanLock | None, *, is_ours: bool) -> Reply:
    shown = _shown_lock(call, found)
    if is_ours or found is None:
        return ok(shown)
    return Reply(409, {"error": "busy", "reason": busy(found), **shown})


def _shown_lock(call: Call, found: PlanLock | None) -> dict[str, Any]:
    """Return the lock as it is shown.   is_held: it has not expired.   view_id: as in the topology."""
    facts: dict[str, Any] = {"plan": None, "owner": None, "since": None, "expires": None, "is_held": False}
    if found is not None:
        facts = {
            "plan": found.plan,
            "owner": found.owner,
            "since": moment(found.since_ms),
            "expires": moment(found.expires_ms),
            "is_held": _now_ms() < found.expires_ms,
        }
    return {**facts, "view_id": call.catalogue.member_changes}


# --- steps ---


async def take_step(call: Call) -> Reply:
    """POST /mirroring/plan-step: have a step made, or hear how far it is.

    {"plan", "step", "action", "vhost", "queue", "uid", "from", "to",
     "pre": {"epoch", "master", "synced", "min_synced", "max_lag_ops"}}
    200 with a state: done, skipped, started, waiting; 409 stale; 404 no such queue; 423 the plan lacks the lock.
    """
    body = await call.body()
    command, lag_max = _command(body)
    record = _record(call, command)
    if record is None:
        raise not_found("there is no such queue")
    outcome = await _outcome(call, command, record, lag_max)
    if outcome.state == "missing":
        raise not_found(outcome.reason)
    if outcome.state == "locked":
        return Reply(423, {"error": "locked", "reason": outcome.reason})
    observed = await _observed(call, command)
    if outcome.state == "stale":
        return Reply(409, {"error": "stale", "reason": outcome.reason, "observed": observed})
    progress = _progress(command, outcome, observed)
    return ok({"state": outcome.state, "reason": outcome.reason, "progress": progress, "observed": observed})


async def _outcome(
    call: Call, command: TakePlanStep, record: QueueRecord, lag_max: int | None
) -> StepOutcome:
    catalogue, broker = call.catalogue, call.broker
    problem = refusal(catalogue.plan_lock, command.plan, command.now_ms)
    if problem is not None and command.action == "wait_synced":
        return StepOutcome("locked", problem)
    outcome = judged(record, command, broker.queue_settings(record), catalogue.members).outcome
    if command.action == "wait_synced":
        return outcome  # changes nothing, so the log need not know
    if problem is None and outcome.state == "done":
        hold = await _reason_to_hold(call, command, record, lag_max)
        if hold is not None:
            return StepOutcome("waiting", hold)
    outcome = await plans.take_step(call.site.admin(call.user.name), command)
    if command.action == "promote" and outcome.state in ("done", "started"):
        return await _taken_over(call, command)
    return outcome


async def _taken_over(call: Call, command: TakePlanStep) -> StepOutcome:
    """Wait until the new master has heard all batches of the one before it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TAKE_OVER_S
    while loop.time() < deadline:
        record = _record(call, command)
        view = None if record is None else record.view
        if view is None or view.master_node != command.target:
            break
        if not view.previous:
            return StepOutcome("done")
        await asyncio.sleep(_POLL_S)
    return StepOutcome("started", "the master before it is handing over")


async def _reason_to_hold(
    call: Call, command: TakePlanStep, record: QueueRecord, lag_max: int | None
) -> str | None:
    """Return why a step should not be made just now, although the metadata allow it; None: it may."""
    view = record.view
    if command.action == "add_mirror" or view is None:
        return None
    observed = await _observed(call, command)
    lag = observed["lag_ops"]
    if lag is None and len(view.ring) > 1:
        return f"{view.master_node} does not tell how far the mirrors are"
    if lag is not None and lag_max is not None and lag > lag_max:
        return f"a mirror is {lag} operations behind, and {lag_max} are allowed"
    if command.action == "drop_mirror":
        # A node that has died may count as up for some seconds. Its copy must not be one of those that are left.
        silent = await _silent(call, synced_nodes(view) - {command.source})
        if silent:
            return f"{silent[0]} has a copy and does not answer"
    return None


async def _silent(call: Call, nodes: frozenset[str]) -> list[str]:
    """Return those of the nodes that do not answer."""

    async def is_silent(node: str) -> bool:
        try:
            await call.site.ask(node, "clock", {})
        except ControlError:
            return True
        return False

    names = sorted(nodes)
    return [
        node
        for node, silent in zip(names, await asyncio.gather(*map(is_silent, names)), strict=True)
        if silent
    ]


# --- what is seen ---


async def _observed(call: Call, command: TakePlanStep) -> dict[str, Any]:
    """Return the queue as it is now.

    sync: the share of what a mirror lacked that it has got, by node.   lag_ops: null if not known.
    """
    record = _record(call, command)
    view = None if record is None else record.view
    if record is None or view is None:
        home = None if record is None else record.home or call.site.config.node_name
        alone = [] if home is None else [home]
        return {
            "epoch": 0 if record is None else record.mastership,
            "master": home,
            "ring": alone,
            "synced": alone,
            "sync": {},
            "lag_ops": None,
            "placement": [],
        }
    ring = ring_from_master(view)
    mirrors = await _mirrors(call, record, view.master_node)
    behind = [each["behind"] for each in mirrors if each.get("behind") is not None]
    return {
        "epoch": epoch_of(record, call.broker.queue_settings(record)),
        "master": view.master_node,
        "ring": [member.node for member in ring],
        "synced": [member.node for member in ring if member.id in view.synced],
        "sync": {
            each["node"]: _share(each["sync"]) for each in mirrors if each.get("sync") and not each["synced"]
        },
        "lag_ops": max(behind, default=None),
        "placement": list(record.placement),
    }


async def _mirrors(call: Call, record: QueueRecord, master: str | None) -> list[dict[str, Any]]:
    """Return the mirrors as the master's node sees them; nothing if it does not answer."""
    if master is None:
        return []
    query = Query(ids=(record.uid,), fields=_MIRRORS)
    rows = await call.site.rows("queues", query, [master])
    found = rows[0].get("mirrors") if rows else None
    return [dict(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _share(sync: Mapping[str, Any]) -> float:
    total = int(sync["total"])
    return round(min(int(sync["installed"]) / total, 1.0), 4) if total > 0 else 0.0


def _progress(command: TakePlanStep, outcome: StepOutcome, observed: Mapping[str, Any]) -> float | None:
    if outcome.state in ("done", "skipped"):
        return 1.0
    found: float | None = observed["sync"].get(command.target) if command.action == "wait_synced" else None
    return found


def _record(call: Call, command: TakePlanStep) -> QueueRecord | None:
    catalogue = call.catalogue
    record = catalogue.queue(command.vhost, command.name)
    return None if record is None or record.uid != command.uid else record


# --- bodies ---


def _command(body: Mapping[str, Any]) -> tuple[TakePlanStep, int | None]:
    """Return the step that is asked for, and how far mirrors may be behind. Raises: ApiError (400)."""
    plan, step = _names(body, "plan", "step")
    action, vhost, queue, uid = texts(body, "action", "vhost", "queue", "uid")
    kind = next((each for each in get_args(PlanAction) if each == action), None)
    if kind is None:
        raise bad_request(f"action must be one of {', '.join(get_args(PlanAction))}")
    key = "from" if kind == "drop_mirror" else "to"
    if not text(body, key):
        raise bad_request(f"{kind} needs a node in '{key}'")
    pre = {} if body.get("pre") is None else body["pre"]
    if not isinstance(pre, dict):
        raise bad_request("pre must be an object")
    synced = [] if pre.get("synced") is None else pre["synced"]
    if (
        not isinstance(synced, list)
        or len(synced) > NODES_MAX
        or not all(isinstance(each, str) for each in synced)
    ):
        raise bad_request("pre.synced must be a list of names of nodes")
    command = TakePlanStep(
        plan=plan,
        step=step,
        now_ms=_now_ms(),
        action=kind,
        vhost=vhost,
        name=queue,
        uid=uid,
        source=text(body, "from"),
        target=text(body, "to"),
        epoch=_number(pre, "epoch"),
        master=text(pre, "master"),
        synced=tuple(synced),
        min_synced=_number(pre, "min_synced") or 1,
    )
    return command, _number(pre, "max_lag_ops")


def _names(body: Mapping[str, Any], *keys: str) -> list[str]:
    found = texts(body, *keys)
    for key, value in zip(keys, found, strict=True):
        if not 0 < len(value) <= NAME_CHARS_MAX:
            raise bad_request(f"{key} must have 1 to {NAME_CHARS_MAX} characters")
    return found


def _number(body: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number from 0 on; None: it is not given."""
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise bad_request(f"pre.{key} must be a whole number")
    return value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


ROUTES: Final = (
    Route("GET", "/mirroring/topology", topology, Access.MONITORING),
    Route("GET", "/mirroring/plan-lock", lock, Access.MONITORING),
    Route("PUT", "/mirroring/plan-lock", take_lock, _ADMIN),
    Route("DELETE", "/mirroring/plan-lock", release_lock, _ADMIN),
    Route("POST", "/mirroring/plan-step", take_step, _ADMIN),
)
