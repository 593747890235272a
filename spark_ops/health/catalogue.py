"""The catalogue of findings: title, severity, thresholds and advice of each kind.

All defaults are in this module; an operator changes them in a TOML file (`spark_ops.health.settings`). The rules are in
the modules `rules_*` and look up their thresholds by name.
Source: spark §3.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_ops.health.finding import Severity

WEIGHTS: Final[dict[Severity, float]] = {"info": 5.0, "warn": 40.0, "crit": 80.0}
"""Points that a finding takes off the score if it affects the whole load of the cluster."""


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding.

    severity: the default; rules change it as the table in docs/spark_ops.md says.   advice: one sentence.
    thresholds: by name, which ends in the unit.   raise_minutes, raise_of: the finding is raised when the rule's
    condition held in `raise_minutes` of the last `raise_of` minutes. Kinds without `raise_minutes` are judged once, at
    the end of the window.
    """

    id: str
    title: str
    severity: Severity
    advice: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    raise_minutes: int = 0
    raise_of: int = 0


_KINDS: Final = (
    FindingKind(
        "cluster-down",
        "The cluster is down",
        "crit",
        "Start the nodes. If they run, check the collectors: no node's telemetry arrives.",
        {"silent_minutes": 3},
    ),
    FindingKind(
        "partition",
        "Nodes cannot reach each other",
        "crit",
        "Restore the network between the nodes that are named, and look at the side without a majority.",
    ),
    FindingKind(
        "alarm-active",
        "An alarm blocks publishers",
        "crit",
        "Free memory or disk space on this node: publishers of the whole cluster wait until the alarm is cleared.",
    ),
    FindingKind(
        "publishers-blocked",
        "Publishers are blocked",
        "crit",
        "Look for the node whose memory or disk alarm blocks them.",
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "queue-without-master",
        "A queue has no master",
        "crit",
        "Bring back the node that had the master, or promote or delete the queue: clients cannot use it.",
        {"queues_named": 20},
    ),
    FindingKind(
        "node-down",
        "A node is down",
        "warn",
        "Start the node, or remove it from the cluster with `fluffle ctl forget_cluster_node`.",
        {"silent_minutes": 2},
    ),
    FindingKind(
        "under-replicated",
        "Fewer mirrors than wanted",
        "warn",
        "Bring the missing node back, or let the policy or a plan (`plan --mode repair`) place a new mirror.",
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "unsynced-mirror",
        "A mirror lacks messages",
        "warn",
        "Synchronise it (`fluffle ctl sync_queue`), or set ha-sync-mode to automatic.",
        {"progress_min": 0.01, "stall_minutes": 5},
        raise_minutes=10,
        raise_of=10,
    ),
    FindingKind(
        "single-zone",
        "All copies are in one zone",
        "warn",
        "Make a plan: a plan spreads the copies over the zones.",
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "mirror-lagging",
        "A mirror falls behind",
        "warn",
        "Look at the load of the mirror's node and at the links to it; a plan may move the mirror.",
        {"lag_ms": 1000, "minutes": 30, "r2_min": 0.5, "growing_lag_ms": 200},
    ),
    FindingKind(
        "master-imbalance",
        "Masters are spread unevenly",
        "warn",
        "Make a plan: promoting synchronised mirrors balances the load at almost no cost.",
        {
            "ratio": 1.25,
            "hours": 3,
            "hint_ratio": 1.5,
            "count_ratio": 1.25,
            "count_min": 4,
            "count_minutes": 10,
            "cores_min": 0.02,
        },
    ),
    FindingKind(
        "hot-node",
        "A node is at its limit",
        "warn",
        "Make a plan that takes masters off this node, or add a node.",
        {
            "loop_lag_ms": 100,
            "loop_lag_crit_ms": 1000,
            "held_ms": 1000,
            "held_minutes": 3,
            "cpu": 0.85,
            "cpu_crit": 0.97,
            "cores_usable": 1.0,
            "minutes": 10,
        },
    ),
    FindingKind(
        "host-without-cpu",
        "The host has too little CPU",
        "warn",
        "Give the host or the container more CPU, or move other work away: moving queues does not help.",
        {"waiting": 0.5, "stolen_cores": 0.2, "minutes": 10},
    ),
    FindingKind(
        "slow-syncs",
        "The disk syncs slowly",
        "warn",
        "Look at the disk of this node and at what else uses it: confirms of persistent messages wait for syncs.",
        {"sync_ms": 200, "sync_crit_ms": 2000, "syncs_min": 20, "minutes": 10},
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "slow-confirms",
        "Publishers wait for confirms",
        "warn",
        "Look at the disks and the load of the nodes with copies of this queue, and at the links between them.",
        {
            "factor": 4,
            "floor_ms": 200,
            "bound_ms": 1000,
            "stuck_ms": 1000,
            "confirms_min": 20,
            "slow_min": 5,
            "history_min": 1000,
            "minutes": 10,
        },
    ),
    FindingKind(
        "runaway-queue",
        "A queue grows without limit",
        "warn",
        "Add consumers, limit the queue (max-length, message-ttl) or stop its publishers.",
        {"r2_min": 0.8, "minutes": 30, "fit_minutes": 60, "rise_min_bytes": 1048576, "eta_crit_s": 7200},
    ),
    FindingKind(
        "consumer-starvation",
        "Consumers do not keep up",
        "warn",
        "Start consumers, add more of them, or make them faster.",
        {"util": 0.3, "r2_min": 0.5, "minutes": 10, "head_age_slo_s": 3600},
        raise_minutes=10,
        raise_of=10,
    ),
    FindingKind(
        "unacked-stuck",
        "Consumers hold messages without acknowledging them",
        "warn",
        "Look at the consumers: they may be blocked. Closing the channel of a consumer requeues its messages.",
        {"filled": 0.9, "minutes": 5},
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "redelivery-loop",
        "Messages are redelivered repeatedly",
        "warn",
        "Look for consumers that reject with requeue or die; rejecting to a dead-letter exchange ends the loop.",
        {"ratio": 0.2, "minutes": 10, "deliveries_min": 50},
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "messages-dropped",
        "A queue drops messages",
        "info",
        "Raise max-length, add consumers, or set a dead-letter exchange that keeps what the queue drops.",
        {"dropped_min": 50, "warn_share": 0.2, "minutes": 10},
    ),
    FindingKind(
        "dead-letters-lost",
        "Dead letters are lost",
        "warn",
        "Look at the dead-letter exchange of this queue, its bindings and the queues that they name.",
        {"lost_min": 1, "minutes": 10},
    ),
    FindingKind(
        "flapping-link",
        "Links between nodes are unstable",
        "warn",
        "Look at the network between the nodes that are named.",
        {"reconnects": 3, "minutes": 10, "hop_factor": 10, "hop_min_us": 5000},
    ),
    FindingKind(
        "unstable-failover",
        "Masters or members change repeatedly",
        "warn",
        "Find the cause of the restarts or interruptions before you move queues.",
        {"changes": 3, "changes_crit": 6, "minutes": 60, "views": 2, "views_crit": 4, "view_minutes": 10},
    ),
    FindingKind(
        "unsynced-promotion",
        "A mirror that lacked messages became master",
        "crit",
        "Messages may be lost: compare with the publishers' records; set ha-promote-on-failure to when-synced.",
    ),
    FindingKind(
        "resource-near-limit",
        "A resource is near its limit",
        "warn",
        "Free some of it or raise the limit before the node blocks its publishers.",
        {"used": 0.8, "eta_s": 86400, "minutes": 30, "r2_min": 0.5},
    ),
    FindingKind(
        "conn-churn",
        "Connections are short-lived",
        "warn",
        "Look for clients that open a connection for each message; they should keep one open.",
        {"share_per_s": 0.1, "per_s_min": 1.0, "minutes": 5},
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "clock-skew",
        "A node's clock is wrong",
        "warn",
        "Let NTP or chrony set the clock of this node.",
        {"skew_ms": 2000, "skew_quarantine_ms": 30000, "skew_err_ms": 1000, "minutes": 3},
    ),
    FindingKind(
        "telemetry-gap",
        "Telemetry is missing",
        "warn",
        "Check that the node runs, that its telemetry is on and that `spark-ops collect` keeps up.",
        {"gap_minutes": 3, "gap_info_share": 0.02},
    ),
    FindingKind(
        "torn-files",
        "Telemetry files cannot be read",
        "info",
        "A few after a crash are harmless; many point to a failing disk or a collector that is killed.",
        {"files_warn": 5},
    ),
    FindingKind(
        "duplicate-node-id",
        "Two processes use the same node name",
        "warn",
        "Find the second broker or the copied telemetry directory with this node name and remove it.",
        {"minutes": 2},
    ),
    FindingKind(
        "hot-single-queue",
        "One queue uses most of a node",
        "warn",
        "Moving the queue will not help: split it into several queues (consistent-hash exchange).",
        {"share": 0.5, "cores_usable": 1.0, "minutes": 60, "history_minutes": 10},
    ),
)

CATALOGUE: Final[Mapping[str, FindingKind]] = {kind.id: kind for kind in _KINDS}
"""All kinds of findings by id, in the order of the table in docs/spark_ops.md."""

EXPLAINED_BY: Final[Mapping[str, frozenset[str]]] = {
    "runaway-queue": frozenset({"consumer-starvation", "unacked-stuck", "redelivery-loop"}),
    "consumer-starvation": frozenset({"unacked-stuck"}),
    "resource-near-limit": frozenset(
        {"alarm-active", "runaway-queue", "consumer-starvation", "unacked-stuck"}
    ),
    "hot-node": frozenset({"host-without-cpu", "hot-single-queue"}),
    "slow-confirms": frozenset(
        {
            *("cluster-down", "partition", "host-without-cpu", "slow-syncs", "hot-node", "flapping-link"),
            "mirror-lagging",
        }
    ),
    "master-imbalance": frozenset({"hot-single-queue"}),
    "publishers-blocked": frozenset({"alarm-active"}),
    "flapping-link": frozenset({"cluster-down", "partition", "node-down", "host-without-cpu", "hot-node"}),
    "under-replicated": frozenset({"node-down"}),
    "unstable-failover": frozenset({"partition"}),
    "telemetry-gap": frozenset({"cluster-down", "node-down"}),
    "queue-without-master": frozenset({"cluster-down"}),
    "node-down": frozenset({"cluster-down"}),
    "partition": frozenset({"cluster-down"}),
}
"""Kinds of findings, and the kinds that may explain them. An explained finding is not reported beside its cause, so
that operators read causes; a critical finding is, unless its cause is critical, too. The evidence of the cause has
the text of the finding under `also`."""
