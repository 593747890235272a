"""The goals of a plan, in order, with their limits, and the operator's settings for a plan.

    hard: drain · copies · zones · capacity · failover      never more violated than before, by any move
    soft: cpu · in · out · memory · disk · masters · spread · locality    each only as far as all before it accept

A soft goal acts where a node's load is above `act_above` times the mean of its group, and stops at `stop_at` times:
loads in between are left alone, so noise moves nothing. Loads are compared as shares of the nodes' capacities.
Source: spark §3.3.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias

from spark_ops.documents import content_hash
from spark_ops.planning.capacities import Capacity, capacities_from, table_of

CPU: Final = 0
IN: Final = 1
OUT: Final = 2
MEMORY: Final = 3
DISK: Final = 4
MASTERS: Final = 5
COPIES: Final = 6
DIMENSIONS: Final = ("cpu", "in", "out", "memory", "disk", "masters", "copies")

PlanMode: TypeAlias = Literal["full", "drain-node", "add-node", "demote", "restore", "repair"]
NODE_MODES: Final = ("drain-node", "add-node", "demote", "restore")
"""The modes that are about one node."""


class SettingsError(ValueError):
    """An operator's settings for a plan are invalid; the error's text is one line."""


@dataclass(frozen=True, slots=True)
class SoftGoal:
    """A load that should be even.

    of_masters: the load goes with the master; else with each copy.
    act_above, stop_at: times the mean of a group.   floor: share of a node's capacity, bytes per second or number of
    masters, below which nothing is moved.
    """

    id: str
    dimension: int
    of_masters: bool
    act_above: float
    stop_at: float
    floor: float


SOFT_GOALS: Final = (
    SoftGoal("cpu", CPU, True, 1.25, 1.10, 0.02),
    SoftGoal("in", IN, True, 1.25, 1.10, 1e6),
    SoftGoal("out", OUT, True, 1.25, 1.10, 1e6),
    SoftGoal("memory", MEMORY, False, 1.30, 1.15, 0.02),
    SoftGoal("disk", DISK, False, 1.30, 1.15, 0.02),
    SoftGoal("masters", MASTERS, True, 1.35, 1.20, 2.0),
)
SPREAD: Final = "spread"
LOCALITY: Final = "locality"
GOAL_IDS: Final = (*(goal.id for goal in SOFT_GOALS), SPREAD, LOCALITY)


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings for a plan.

    node: of the modes that are about one node.   max_moves, max_bytes: None: no limit.
    only_vhost, exclude_queue: regular expressions, searched in the names of vhosts to include, of queues to leave
    alone.
    cool_down_s: a queue is left alone that long after a move.   seed: chooses the order of equals; 0: by name.
    wave_moves, wave_bytes: of each wave.   cpu_max to fds_max: shares of a node's capacity, also after any other node
    died (cpu).   copies_max: of a node; 0: no limit.   promote_share, copy_share: queues with a smaller share of their
    node's load move only if no others help.   group_label: nodes with the same value of that label are
    compared with each other; None: all are.   tenant_pattern: a regular expression that finds the tenant of a queue in
    `vhost/queue`, as its first group or match; None: the vhost.   goals: ids of the soft ones, in order.
    capacity: of nodes, in place of what telemetry says.   cpu_margin: share of a node's cores; a node is relieved of
    CPU only if it uses more than that above the load at which relief ends (`outcomes`).
    """

    mode: PlanMode = "full"
    node: str | None = None
    max_moves: int | None = 50
    max_bytes: int | None = 10 << 30
    with_copies: bool = True
    only_vhost: str | None = None
    exclude_queue: str | None = None
    cool_down_s: float = 3600.0
    seed: int = 0
    wave_moves: int = 20
    wave_bytes: int = 1 << 30
    expires_s: float = 3600.0
    cpu_max: float = 0.70
    memory_max: float = 0.80
    disk_max: float = 0.80
    fds_max: float = 0.80
    copies_max: int = 0
    promote_share: float = 0.005
    copy_share: float = 0.02
    group_label: str | None = None
    tenant_pattern: str | None = None
    goals: tuple[str, ...] = GOAL_IDS
    optimize: Literal["milp"] | None = None
    capacity: tuple[Capacity, ...] = ()
    cpu_margin: float = 0.0

    @property
    def config_hash(self) -> str:
        """The hash that names these settings."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return content_hash({**named, "goals": list(self.goals), "capacity": table_of(self.capacity)})

    def soft_goals(self) -> tuple[SoftGoal, ...]:
        """Return the soft goals of the settings, in their order."""
        known = {goal.id: goal for goal in SOFT_GOALS}
        return tuple(known[id_] for id_ in self.goals if id_ in known)


def checked(settings: Settings) -> Settings:
    """Return the settings if they are valid. Raises: SettingsError."""
    if (settings.node is None) == (settings.mode in NODE_MODES):
        raise SettingsError(f"mode {settings.mode} {'has no' if settings.node else 'needs a'} node")
    for name in ("cpu_max", "memory_max", "disk_max", "fds_max"):
        if not 0 < getattr(settings, name) <= 1:
            raise SettingsError(f"{name} is not between 0 and 1")
    if not 0 <= settings.cpu_margin < 1:
        raise SettingsError("cpu_margin is not between 0 and 1")
    for name in (
        "max_moves",
        "max_bytes",
        "copies_max",
        "cool_down_s",
        "seed",
        "promote_share",
        "copy_share",
    ):
        value = getattr(settings, name)
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise SettingsError(f"{name} is below 0")
    if settings.wave_moves < 1 or settings.wave_bytes < 1 or not 0 < settings.expires_s <= 7 * 86400:
        raise SettingsError("a wave needs a move, and a plan is good for at most a week")
    unknown = [id_ for id_ in settings.goals if id_ not in GOAL_IDS]
    if unknown or len(set(settings.goals)) != len(settings.goals):
        raise SettingsError(f"goals are {', '.join(GOAL_IDS)}, each at most once")
    for pattern in (settings.only_vhost, settings.exclude_queue, settings.tenant_pattern):
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise SettingsError(f"{pattern!r} is no regular expression: {error}") from error
    return settings


def settings_from(document: Mapping[str, Any], base: Settings) -> Settings:
    """Return `base` with the settings of a document (TOML), named as in `Settings`. Raises: SettingsError."""
    known = {field.name: field for field in fields(Settings)}
    given: dict[str, Any] = {}
    for name, value in document.items():
        if name not in known:
            raise SettingsError(f"there is no setting {name!r}")
        default = getattr(base, name)
        if name == "goals":
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise SettingsError("goals is no list of names")
            value = tuple(value)
        elif name == "capacity":
            value = _capacities(value)
        elif isinstance(default, bool) != isinstance(value, bool):
            raise SettingsError(f"{name} has a value of another kind")
        elif isinstance(default, int | float) and not isinstance(value, int | float):
            raise SettingsError(f"{name} is no number")
        elif (default is None or isinstance(default, str)) and not isinstance(value, str | int):
            raise SettingsError(f"{name} has a value of another kind")
        given[name] = value
    return checked(replace(base, **given))


def _capacities(document: object) -> tuple[Capacity, ...]:
    try:
        return capacities_from(document)
    except ValueError as error:
        raise SettingsError(str(error)) from None
