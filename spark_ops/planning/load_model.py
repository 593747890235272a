"""A second opinion on what nodes attribute to queues: a ridge regression of their CPU time on the queues' work. Pure.

Nodes measure with the thread's CPU clock how much of their CPU time is for queues, and plans are made of that. Here the
same is estimated from outside, over nodes × minutes: the CPU time of a node's process is put down to operations and
bytes of its masters, to operations and bytes of the masters whose mirrors it has, and to syncs of its disk; what
remains is the node's own. The two estimates share no figure but the operations themselves, so if both give queues the
same part of a node, a plan can rely on it.

Ridge: the causes rise and fall together, and without a penalty one would get what another one costs. A cause whose cost
would be negative is left out, the most negative one first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

CAUSES: Final = ("master_ops", "master_bytes", "mirror_ops", "mirror_bytes", "syncs")
"""The causes of CPU time. Operations are publishes, deliveries, gets and acknowledgements."""
PENALTY: Final = 0.01
"""The penalty of the ridge, as a share of the number of minutes; causes are scaled to a standard deviation of 1."""
MINUTES_MIN: Final = 30
"""With fewer minutes of nodes there is no second opinion."""
R2_MIN: Final = 0.5
"""The regression has to explain this share of the variation of CPU time. Under a steady load it explains nothing."""


@dataclass(frozen=True, slots=True)
class NodeSums:
    """Sums over the minutes of a node.

    x, xy: by cause, of its amount and of that times y.   xx: by two causes.   y: CPU time of the process, in us.
    attributed_us: CPU time that the node itself attributes to its queues, their disks and their clients.
    """

    node: str
    count: int
    x: tuple[float, ...]
    xx: tuple[tuple[float, ...], ...]
    xy: tuple[float, ...]
    y: float
    yy: float
    attributed_us: float


@dataclass(frozen=True, slots=True)
class LoadModel:
    """The regression beside the measurement.

    minutes: minutes of nodes.   r2: share of the variation of CPU time that is explained.   cost_us: by cause, for one
    operation, byte or sync.   modelled, measured: shares of the CPU time that is for queues.   nodes: both by node.
    """

    minutes: int
    r2: float
    cost_us: dict[str, float]
    modelled: float
    measured: float
    nodes: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def is_sure(self) -> bool:
        """True if the regression explains enough to be compared."""
        return self.r2 >= R2_MIN

    @property
    def worst(self) -> str | None:
        """The node for which the two differ most."""
        return max(
            self.nodes, key=lambda node: (abs(self.nodes[node][0] - self.nodes[node][1]), node), default=None
        )

    @property
    def document(self) -> dict[str, Any]:
        """The model as JSON."""
        return {
            "minutes": self.minutes,
            "r2": round(self.r2, 4),
            "is_sure": self.is_sure,
            "cost_us": {cause: round(cost, 6) for cause, cost in self.cost_us.items()},
            "modelled": round(self.modelled, 4),
            "measured": round(self.measured, 4),
            "nodes": {
                node: {"modelled": round(modelled, 4), "measured": round(measured, 4)}
                for node, (modelled, measured) in sorted(self.nodes.items())
            },
            "text": self.text,
        }

    @property
    def text(self) -> str:
        """The comparison in a sentence."""
        over = f"a regression over {self.minutes} minutes of {len(self.nodes)} nodes"
        if not self.is_sure:
            return f"{over} explains {max(0.0, self.r2):.0%} of the changes of their CPU: too little for a comparison"
        text = (
            f"{over} gives queues {self.modelled:.0%} of the nodes' CPU, the nodes themselves measured "
            f"{self.measured:.0%} (R² {self.r2:.2f})"
        )
        worst = self.worst
        if worst is None or len(self.nodes) < 2:
            return text
        modelled, measured = self.nodes[worst]
        return f"{text}; they differ most for {worst}: {modelled:.0%} and {measured:.0%}"


def fitted(sums: Sequence[NodeSums]) -> LoadModel | None:
    """Return the regression over all nodes; None if there are too few minutes, or no CPU time."""
    count = sum(each.count for each in sums)
    total_y = math.fsum(each.y for each in sums)
    if count < MINUTES_MIN or total_y <= 0:
        return None
    mean_y = total_y / count
    mean_x = np.array([each.x for each in sums]).sum(axis=0) / count
    xx = np.array([each.xx for each in sums]).sum(axis=0) / count - np.outer(mean_x, mean_x)
    xy = np.array([each.xy for each in sums]).sum(axis=0) / count - mean_x * mean_y
    yy = math.fsum(each.yy for each in sums) / count - mean_y * mean_y
    costs = _ridge(xx, xy, mean_x)
    left = yy - 2 * float(costs @ xy) + float(costs @ xx @ costs)
    r2 = 1.0 - left / yy if yy > 1e-9 * mean_y * mean_y else 0.0
    nodes = {
        each.node: (float(costs @ np.array(each.x)) / each.y, each.attributed_us / each.y)
        for each in sums
        if each.y > 0
    }
    return LoadModel(
        count,
        r2,
        dict(zip(CAUSES, costs.tolist(), strict=True)),
        float(costs @ mean_x) / mean_y,
        math.fsum(each.attributed_us for each in sums) / total_y,
        nodes,
    )


def _ridge(xx: Any, xy: Any, mean: Any) -> Any:
    """Return the costs of one unit of each cause, none of them negative.   xx, xy: covariances.   mean: of causes."""
    scale = np.sqrt(np.clip(np.diag(xx), 0.0, None))
    # A cause that does not vary explains nothing; rounding makes its variance a little more than 0.
    used = [at for at in range(len(scale)) if scale[at] > 1e-6 * abs(mean[at]) and scale[at] > 0]
    costs = np.zeros(len(scale))
    while used:
        by_scale = xx[np.ix_(used, used)] / np.outer(scale[used], scale[used])
        found = np.linalg.solve(by_scale + PENALTY * np.eye(len(used)), xy[used] / scale[used])
        worst = int(found.argmin())
        if found[worst] >= 0:
            costs[used] = found / scale[used]
            break
        del used[worst]
    return costs
