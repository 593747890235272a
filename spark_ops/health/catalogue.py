"""The catalogue of findings: each kind, when it is raised, its weight and its advice.

All defaults stand here; an operator changes them by a TOML file (`spark_ops.health.settings`). Rules stand in the
files rules_*.py and take their thresholds from here by name.
Source: spark §3.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_ops.health.finding import Severity

WEIGHTS: Final[dict[Severity, float]] = {"info": 5.0, "warn": 40.0, "crit": 80.0}
"""Points that a finding costs if it affects all of the cluster's load."""


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding.

    severity: the default; rules raise it where the table in docs/spark_ops.md says so.   advice: one sentence.
    thresholds: by name, with the unit last.   raise_minutes, raise_of: it is raised when so many of the last so many
    minutes were bad. Kinds without `raise_minutes` are judged once, at the end of the window.
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
        "Make a plan: it spreads copies over the zones.",
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
        "Make a plan: promotions of synchronised mirrors even this out at nearly no cost.",
        {
            "ratio": 1.25,
            "hours": 3,
            "hint_ratio": 1.5,
            "count_ratio": 1.25,
            "count_min": 4,
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
            "cpu": 0.85,
            "cpu_crit": 0.97,
            "cores_usable": 1.0,
            "minutes": 10,
        },
    ),
    FindingKind(
        "runaway-queue",
        "A queue grows without end",
        "warn",
        "Add consumers, limit the queue (max-length, message-ttl) or stop its publishers.",
        {"r2_min": 0.8, "minutes": 30, "fit_minutes": 60, "rise_min_bytes": 1048576, "eta_crit_s": 7200},
    ),
    FindingKind(
        "consumer-starvation",
        "Consumers do not keep up",
        "warn",
        "Start consumers, or make them faster or more.",
        {"util": 0.3, "r2_min": 0.5, "minutes": 10, "head_age_slo_s": 3600},
        raise_minutes=10,
        raise_of=10,
    ),
    FindingKind(
        "unacked-stuck",
        "Consumers hold messages and acknowledge none",
        "warn",
        "Look at the consumers: they hang, or wait for something. Cancelling one returns its messages.",
        {"filled": 0.9, "minutes": 5},
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "redelivery-loop",
        "Messages come back again and again",
        "warn",
        "Look for consumers that reject with requeue or die; a dead-letter exchange breaks the circle.",
        {"ratio": 0.2, "minutes": 10, "deliveries_min": 50},
        raise_minutes=3,
        raise_of=5,
    ),
    FindingKind(
        "flapping-link",
        "The connection between two nodes is not steady",
        "warn",
        "Look at the network between the two nodes.",
        {"reconnects": 3, "minutes": 10, "hop_factor": 10, "hop_min_us": 5000},
    ),
    FindingKind(
        "unstable-failover",
        "Masters or members change again and again",
        "warn",
        "Find the cause of the restarts or cuts before anything is moved.",
        {"changes": 3, "changes_crit": 6, "minutes": 60, "views": 2, "views_crit": 4, "view_minutes": 10},
    ),
    FindingKind(
        "unsynced-promotion",
        "A mirror that lacked messages became master",
        "crit",
        "Messages may be lost: compare with the publishers; set ha-promote-on-failure to when-synced.",
    ),
    FindingKind(
        "resource-near-limit",
        "A resource comes near its limit",
        "warn",
        "Free some of it or raise the limit before the node blocks its publishers.",
        {"used": 0.8, "eta_s": 86400, "minutes": 30, "r2_min": 0.5},
    ),
    FindingKind(
        "conn-churn",
        "Connections come and go",
        "warn",
        "Look for clients that open a connection for each message; have them keep it.",
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
        "See whether the node runs, whether its telemetry is on and whether `spark-ops collect` keeps up.",
        {"gap_minutes": 3, "gap_info_share": 0.02},
    ),
    FindingKind(
        "torn-files",
        "Telemetry files cannot be read",
        "info",
        "A few after a crash are no harm; many speak of a disk that fails or of a collector that is killed.",
        {"files_warn": 5},
    ),
    FindingKind(
        "duplicate-node-id",
        "Two processes write as one node",
        "warn",
        "Find the second broker or the copied telemetry directory with this node name and remove it.",
        {"minutes": 2},
    ),
    FindingKind(
        "hot-single-queue",
        "One queue takes most of a node",
        "warn",
        "Moving it will not help: split it (consistent-hash exchange, several queues).",
        {"share": 0.5, "cores_usable": 1.0, "minutes": 60, "history_minutes": 10},
    ),
)

CATALOGUE: Final[Mapping[str, FindingKind]] = {kind.id: kind for kind in _KINDS}
"""All kinds by id, in the order of the table in docs/spark_ops.md."""

EXPLAINED_BY: Final[Mapping[str, frozenset[str]]] = {
    "runaway-queue": frozenset({"consumer-starvation", "unacked-stuck", "redelivery-loop"}),
    "resource-near-limit": frozenset({"runaway-queue", "consumer-starvation", "unacked-stuck"}),
    "hot-node": frozenset({"hot-single-queue"}),
    "master-imbalance": frozenset({"hot-single-queue"}),
}
"""Kinds of findings, and the kinds that may explain them. An explained finding is not reported beside its cause,
unless it is critical: an operator should read causes. Its text stands in the cause's evidence, under `also`."""
