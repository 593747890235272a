"""What a seed of the ring's simulator is about, and what happened in it."""

from dataclasses import dataclass, field

Front = tuple[str, int]
"""A front end: its node and incarnation."""

Range = tuple[float, float]


@dataclass
class Plan:
    """What a seed is about. Times in ms."""

    names: list[str]
    copies: int
    """With which the queue begins, and which its master sees to."""
    is_durable: bool = True
    may_lose: bool = False
    is_survivable: bool = True
    syncs_by_itself: bool = True
    keeps_copies: bool = True
    """Whether the master adds mirrors where there are too few."""
    chunk: int = 3
    is_lazy: bool = False
    eager_acks: float = 0.5
    link: Range = (0.2, 2.0)
    rare_link: tuple[float, float] = (0.0, 20.0)
    """How often a frame takes so long at most, instead."""
    slow_ways: dict[tuple[str, str], Range] = field(default_factory=dict)
    """Ways between nodes that have delays of their own."""
    apply: Range = (0.2, 6.0)
    late: Range = (0.0, 0.0)
    """How long a node that counts as up takes to begin; what was committed meanwhile it reads at once."""
    slow_nodes: dict[str, Range] = field(default_factory=dict)
    """Nodes that apply what is committed with delays of their own."""
    propose: Range = (0.5, 8.0)
    lost_proposals: float = 0.0
    repeats: float = 0.0
    """How often a proposal comes again, much later."""
    fill: Range = (0.0, 0.0)
    """How long a mirror takes to make its copy a queue."""
    sync: Range = (0.5, 5.0)
    down_after: Range = (2.0, 60.0)
    lease: float = 60.0


@dataclass(eq=False)
class Stats:
    """What happened, of all seeds that share it."""

    seeds: int = 0
    published: int = 0
    confirmed: int = 0
    refused: int = 0
    crashes: int = 0
    false_deaths: int = 0
    pauses: int = 0
    views: int = 0
    promotions: int = 0
    transfers: int = 0
    joins: int = 0
    syncs: int = 0
    drops: int = 0
    downs: int = 0
    revivals: int = 0
    full_checks: int = 0
    steps: int = 0

    def add(self, other: "Stats") -> None:
        """What happened elsewhere, too."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __str__(self) -> str:
        return ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in vars(self).items())
