"""Documents to make reports of: a cluster of five nodes, one of them busy, and the plan that helps."""

import math
from typing import Any

from spark_ops.documents import content_hash
from spark_ops.planning.rows import ClusterRows, NodeRow, QueueRow

NODES = tuple(f"rabbit@n{number}" for number in range(1, 6))
BEGIN = 1_795_231_200  # 2026-11-21T03:20:00Z
GIB = 1 << 30

_CPU = (0.79, 0.41, 0.33, 0.38, 0.29)
_AFTER = (0.47, 0.44, 0.43, 0.44, 0.42)
_MASTERS = (410, 260, 205, 231, 190)
_MASTERS_AFTER = (263, 262, 258, 259, 254)
_SCORES = (48, 91, 100, 97, 100)
_MEMORY = (0.71, 0.44, 0.38, 0.40, 0.33)


def health(*, minutes: int = 360, **changes: Any) -> dict[str, Any]:
    """Return a health document with findings of each severity.   minutes: the length of its series."""
    document = {
        "format": "spark-ops-health/1",
        "cluster": "prod-eu",
        "created": "2026-11-21T09:21:40Z",
        "window": ["2026-11-21T03:20:00Z", "2026-11-21T09:20:00Z"],
        "coverage": {
            "expected": 1_284_210,
            "seen": 1_273_936,
            "share": 0.992,
            "missing": [
                {"node": "rabbit@n4", "from": "2026-11-21T05:12:00Z", "to": "2026-11-21T05:26:00Z"},
                {"node": "rabbit@n2", "from": "2026-11-21T08:02:00Z", "to": "2026-11-21T08:05:00Z"},
            ],
            "torn": [
                "kind=queue/dt=2026-11-21/hour=05/cluster=prod-eu/node=rabbit@n4/7f3c-8100-8399.parquet"
            ],
            "late": 212,
            "duplicates": 40,
            "unknown_versions": 0,
        },
        "verdict": "critical",
        "score": 58,
        "nodes": [
            {
                "node": node,
                "score": _SCORES[index],
                "cpu": _CPU[index],
                "memory": _MEMORY[index],
                "disk": 0.21 + 0.04 * index,
                "fds": 0.06 + 0.03 * index,
                "masters": _MASTERS[index],
                "mirrors": 540 - 60 * index,
                "loop_lag_ms": (184.2, 12.4, 6.1, 8.8, 4.9)[index],
            }
            for index, node in enumerate(NODES)
        ],
        "findings": _findings(),
        "forecasts": _forecasts(),
        "series": {"nodes": _node_series(minutes), "queues": _queue_series(minutes)},
    }
    return {**document, **changes}


def _findings() -> list[dict[str, Any]]:
    queue = {"node": None, "vhost": "/", "queue": "orders.created", "to_node": None}
    return [
        {
            "id": "master-imbalance",
            "kind": "master-imbalance",
            "severity": "warn",
            "subject": {"node": None, "vhost": None, "queue": None, "to_node": None},
            "since": "2026-11-21T05:40:00Z",
            "text": "rabbit@n1 does 1.8 times the work of the mean node, for more than 3 hours.",
            "advice": "Make a plan: promotions of synchronised mirrors even this out at nearly no cost.",
            "share": 0.36,
            "evidence": {"ratio": 1.796, "mean_share": 0.44, "busiest": "rabbit@n1", "hours": 3.6},
        },
        {
            "id": "under-replicated/orders.created",
            "kind": "under-replicated",
            "severity": "crit",
            "subject": queue,
            "since": "2026-11-21T08:10:00Z",
            "text": "orders.created has no synchronised mirror: if rabbit@n1 fails, 48,211 messages are lost.",
            "advice": "Bring the missing node back, or let a plan (`plan --mode repair`) place a new mirror.",
            "share": 0.072,
            "evidence": {
                "want_mirrors": 2,
                "live_mirrors": 1,
                "synced_mirrors": 0,
                "ready": 48_211,
                "size_bytes": 402_653_184,
            },
        },
        {
            "id": "runaway-queue/mail.bounced",
            "kind": "runaway-queue",
            "severity": "warn",
            "subject": {**queue, "queue": "mail.bounced"},
            "since": "2026-11-21T06:02:00Z",
            "text": "mail.bounced grows by 1.9 MiB a second and has no consumers.",
            "advice": "Add consumers, limit the queue (max-length, message-ttl) or stop its publishers.",
            "share": 0.031,
            "evidence": {"slope_bytes_per_s": 1_992_294.4, "r2": 0.94, "consumers": 0, "ready": 1_204_511},
        },
        {
            "id": "hot-node/rabbit@n1",
            "kind": "hot-node",
            "severity": "warn",
            "subject": {"node": "rabbit@n1", "vhost": None, "queue": None, "to_node": None},
            "since": "2026-11-21T07:31:00Z",
            "text": "The event loop of rabbit@n1 is late: 95 of 100 times less than 184 ms, more than 100 ms is much.",
            "advice": "Make a plan that takes masters off this node, or add a node.",
            "share": 0.31,
            "evidence": {"loop_lag_ms": 184.2, "cpu_share": 0.79},
        },
        {
            "id": "flapping-link/rabbit@n4/rabbit@n5",
            "kind": "flapping-link",
            "severity": "info",
            "subject": {"node": "rabbit@n4", "to_node": "rabbit@n5", "vhost": None, "queue": None},
            "since": "2026-11-21T05:26:00Z",
            "text": "The link broke 4 times in 10 minutes, after the node had been silent.",
            "advice": "Look at the network between the two nodes.",
            "share": 0.0,
            "evidence": {"reconnects": 4, "hop_p99_ms": 8.3},
        },
    ]


def _forecasts() -> list[dict[str, Any]]:
    mail = {"vhost": "/", "queue": "mail.bounced", "slope_per_s": 1_992_294.4}
    search = {"vhost": "/", "queue": "search.index", "slope_per_s": 310_442.0}
    return [
        {
            "node": "rabbit@n1",
            "resource": "memory",
            "now": 5.68 * GIB,
            "limit": 8.0 * GIB,
            "slope_per_s": 132_000.0,
            "eta_s": 18_870.0,
            "band": [15_100.0, 25_200.0],
            "r2": 0.91,
            "why_not": None,
            "queues": [mail, search],
        },
        {
            "node": "rabbit@n3",
            "resource": "disk",
            "now": 21.2 * GIB,
            "limit": 2.0 * GIB,
            "slope_per_s": -302_000.0,
            "eta_s": 68_190.0,
            "band": [51_000.0, 102_000.0],
            "r2": 0.72,
            "why_not": None,
            "queues": [{"vhost": "audit", "queue": "audit.log", "slope_per_s": 240_118.0}],
        },
        *(
            {
                "node": node,
                "resource": resource,
                "now": now,
                "limit": limit,
                "slope_per_s": slope,
                "eta_s": None,
                "band": None,
                "r2": r2,
                "why_not": why,
                "queues": [],
            }
            for node, resource, now, limit, slope, r2, why in (
                ("rabbit@n2", "memory", 3.5 * GIB, 8.0 * GIB, 10.0, 0.03, "it does not grow in a line (R² 0.03)"),
                ("rabbit@n4", "fd", 4_210, 65_536, -0.01, 0.61, "it falls"),
            )
        ),
    ]  # fmt: skip


def _node_series(minutes: int) -> dict[str, Any]:
    ts = [BEGIN + 60 * minute for minute in range(minutes)]
    series = {}
    for index, node in enumerate(NODES):
        cpu: list[float | None] = []
        for minute in range(minutes):
            wave = 0.05 * math.sin(minute / 23 + index) + 0.025 * math.sin(minute * 1.7 + 3 * index)
            ramp = 0.3 * min(1.0, minute / 240) if index == 0 else 0.0
            level = max(0.02, _CPU[index] - (0.3 if index == 0 else 0.0) + ramp + wave)
            cpu.append(None if index == 3 and 112 <= minute < 126 else round(level, 4))
        memory = [
            None
            if value is None
            else round(_MEMORY[index] - 0.1 + 0.1 * place / 360 + 0.01 * math.sin(place / 9), 4)
            for place, value in enumerate(cpu)
        ]
        lag = [
            None if value is None else round(3 + 260 * max(0.0, value - 0.45) ** 1.5 * 2, 2) for value in cpu
        ]
        series[node] = {
            "ts": ts,
            "cpu": cpu,
            "memory": memory,
            "disk": [0.21 + 0.04 * index + 0.00005 * place for place in range(minutes)],
            "loop_lag_ms": lag,
        }
    return series


def _queue_series(minutes: int) -> list[dict[str, Any]]:
    ts = [BEGIN + 60 * minute for minute in range(minutes)]
    return [
        {
            "vhost": "/",
            "queue": "mail.bounced",
            "ts": ts,
            "ready": [max(0, 6_000 * (m - 160)) for m in range(minutes)],
        },
        {
            "vhost": "/",
            "queue": "orders.created",
            "ts": ts,
            "ready": [int(40_000 + 9_000 * math.sin(m / 30)) for m in range(minutes)],
        },
        {
            "vhost": "/",
            "queue": "search.index",
            "ts": ts,
            "ready": [int(m * 620 + 8_000 * math.sin(m / 11) ** 2) for m in range(minutes)],
        },
        {
            "vhost": "audit",
            "queue": "audit.log",
            "ts": ts,
            "ready": [int(90_000 + 55_000 * math.sin(m / 90)) for m in range(minutes)],
        },
    ]


def plan(**changes: Any) -> dict[str, Any]:
    """Return a plan with promotions, a copy and a note."""
    steps: list[dict[str, Any]] = []
    targets = ("rabbit@n3", "rabbit@n5", "rabbit@n4", "rabbit@n2")
    queues = (
        "orders.paid", "orders.shipped", "invoices.print", "stock.reserve", "search.index",
        "mail.outgoing", "web.sessions", "orders.returned", "stock.release",
    )  # fmt: skip
    for number, queue in enumerate(queues, 1):
        target = targets[number % 4]
        share = round(0.061 / math.sqrt(number), 4)
        steps.append(
            _step(
                f"s{number}", "promote", queue, "rabbit@n1", target, "cpu-balance",
                f"n1 is at {180 - 8 * number}% of the mean; the queue is {share * 100:.1f}% of n1",
                effect={"rabbit@n1.cpu": -share, f"{target}.cpu": share},
            )
        )  # fmt: skip
    copied = ("s10", "s11", "s12")
    text = "all mirrors of it are on busy nodes; 96 MiB are copied"
    steps += [
        _step("s10", "add_mirror", "mail.bounced", "rabbit@n1", "rabbit@n5", "memory-balance", text, size=100_663_296),
        _step("s11", "wait_synced", "mail.bounced", "rabbit@n1", "rabbit@n5", "memory-balance", text, depends=("s10",)),
        _step("s12", "drop_mirror", "mail.bounced", "rabbit@n2", None, "memory-balance", text, depends=("s11",)),
        _step(
            "s13", "note", "orders.created", None, None, "hot-single-queue",
            "orders.created alone is 27% of a node: a move moves the problem. Split it by a consistent-hash exchange.",
        ),
    ]  # fmt: skip
    body: dict[str, Any] = {
        "format": "spark-ops-plan/1",
        "cluster": "prod-eu",
        "created": "2026-11-21T09:22:00Z",
        "expires": "2026-11-21T10:22:00Z",
        "mode": "full",
        "inputs": {
            "view_id": 812,
            "topology_hash": content_hash("topology"),
            "window": ["2026-11-21T03:20:00Z", "2026-11-21T09:20:00Z"],
            "coverage": 0.992,
            "config_hash": content_hash("config"),
            "seed": 0,
            "tool": "spark-ops 0.1.0",
        },
        "goals": [
            {"id": "drain", "kind": "hard", "before": 0, "after": 0, "met": True},
            {"id": "copies", "kind": "hard", "before": 1, "after": 0, "met": True},
            {"id": "zones", "kind": "hard", "before": 0, "after": 0, "met": True},
            {"id": "capacity", "kind": "hard", "before": 0, "after": 0, "met": True},
            {"id": "failover", "kind": "hard", "before": 0, "after": 0, "met": True},
            {"id": "cpu", "kind": "soft", "before": 1.796, "after": 1.068, "met": True},
            {"id": "in", "kind": "soft", "before": 1.412, "after": 1.094, "met": True},
            {"id": "memory", "kind": "soft", "before": 1.571, "after": 1.314, "met": False},
            {"id": "masters", "kind": "soft", "before": 1.58, "after": 1.01, "met": True},
            {"id": "locality", "kind": "soft", "before": 0.62, "after": 0.41, "met": True},
        ],
        "summary": {
            "promotions": 9, "copies": 1, "bytes": 100_663_296, "eta_s": 41.0, "score_before": 71, "score_after": 96,
        },
        "nodes": [
            {
                "node": node,
                "cpu_before": _CPU[index],
                "cpu_after": _AFTER[index],
                "masters_before": _MASTERS[index],
                "masters_after": _MASTERS_AFTER[index],
            }
            for index, node in enumerate(NODES)
        ],
        "waves": [
            {"n": 1, "steps": [f"s{number}" for number in range(1, 7)]},
            {"n": 2, "steps": ["s7", "s8", "s9", *copied, "s13"]},
        ],
        "steps": steps,
        **changes,
    }  # fmt: skip
    return {**body, "plan_id": content_hash(body)}


def _step(
    step: str, action: str, queue: str, source: str | None, target: str | None, reason: str, why: str,
    *, size: int = 0, effect: dict[str, float] | None = None, depends: tuple[str, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    return {
        "id": step,
        "action": action,
        "vhost": "/",
        "queue": queue,
        "from": source,
        "to": target,
        "reason": reason,
        "why": why,
        "cost": {"units": 1, "bytes": size, "est_s": round(0.2 + size / 2.6e6, 1)},
        "effect": effect or {},
        "pre": {
            "uid": f"u-{queue}",
            "epoch": 17,
            "master": source,
            "synced": [],
            "min_synced": 2,
            "max_lag_ops": 1000,
        },
        "post": {"master": target},
        "inverse": None,
        "depends": list(depends),
    }


def rows(*, error: float = 0.0, scale: float = 1.0, coverage: float = 0.99) -> ClusterRows:
    """Return measurements after the plan: as predicted, but with `error` on the first node, and all times `scale`."""
    queues = [
        QueueRow(
            vhost="/",
            queue=step["queue"],
            uid=step["pre"]["uid"],
            type="classic",
            master=step["to"],
            ring=(step["to"], "rabbit@n1"),
            synced=(step["to"], "rabbit@n1"),
            cpu=0.01,
        )
        for step in plan()["steps"]
        if step["action"] == "promote"
    ]
    queues.append(
        QueueRow("/", "mail.bounced", "u-mail.bounced", "classic", "rabbit@n1", ("rabbit@n1", "rabbit@n5"),
                 ("rabbit@n1", "rabbit@n5"))
    )  # fmt: skip
    own = {node: sum(queue.cpu for queue in queues if queue.master == node) for node in NODES}
    nodes = tuple(
        NodeRow(
            node,
            cores=2.0,
            base_cpu=2.0 * (_AFTER[index] * scale + (error if not index else 0.0)) - own[node],
        )
        for index, node in enumerate(NODES)
    )
    window = (BEGIN + 23_000.0, BEGIN + 23_900.0)
    return ClusterRows("prod-eu", 812, "sha256:0", window, coverage, nodes, tuple(queues))
