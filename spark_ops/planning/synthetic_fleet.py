"""Made-up fleets of any size, for benchmarks, tests, and trials of the planner.

Loads have heavy tails and masters crowd on some nodes, as after years of failovers. Same seed, same fleet.
Source: spark §3.3.
"""

import numpy as np

from spark_ops.planning.fleet import Fleet
from spark_ops.planning.rows import NodeRow

ZONES = 3
CORES = 16.0
MEMORY = 64e9
DISK = 1e12
UTILIZATION = 0.35
"""The used share of the cluster's cores; masters on the fullest nodes use several times as much."""


def synthetic_fleet(nodes: int, queues: int, *, copies: int = 3, seed: int = 0) -> Fleet:
    """Return a fleet whose copies are in different zones; some nodes get copies more often than others."""
    random = np.random.default_rng(seed)
    zones = min(ZONES, nodes)
    copies = min(copies, nodes)
    zone_of = np.arange(nodes) % zones
    weight = (1.0 / np.arange(1, nodes + 1) ** 0.35)[random.permutation(nodes)]
    members = np.full((queues, copies), -1, np.int32)
    first_zone = random.integers(zones, size=queues)
    for place in range(copies):
        for zone in range(zones):
            of_zone = np.flatnonzero(zone_of == zone)
            chosen = (first_zone + place) % zones == zone
            share = weight[of_zone] / weight[of_zone].sum()
            members[chosen, place] = random.choice(of_zone, size=int(chosen.sum()), p=share)
    for place in range(1, copies):  # more copies than zones: no two may be on one node
        for _ in range(8 * nodes):
            same = (members[:, :place] == members[:, place : place + 1]).any(axis=1)
            if not same.any():
                break
            members[same, place] = (members[same, place] + 1) % nodes
    cpu = random.lognormal(0.0, 1.6, queues)
    cpu *= UTILIZATION * CORES * nodes / max(cpu.sum(), 1e-9)
    size = np.floor(random.lognormal(14.0, 2.0, queues))
    bytes_in = np.floor(cpu * random.lognormal(16.0, 0.5, queues))
    rows = tuple(
        NodeRow(f"rabbit@n{node:04d}", zone=f"z{zone_of[node]}", cores=CORES, memory=MEMORY, disk=DISK)
        for node in range(nodes)
    )
    return Fleet(
        "synthetic",
        rows,
        zone_of.astype(np.int32),
        np.zeros(nodes, np.int32),
        members,
        np.ones((queues, copies), np.bool_),
        np.zeros(queues, np.int32),
        np.round(cpu * 0.9, 4),
        np.round(cpu * 0.1, 4),
        bytes_in,
        np.floor(bytes_in * 1.2),
        size * 1.5,
        size,
        size,
        np.full(queues, copies - 1, np.int32),
        np.ones(queues, np.bool_),
        np.zeros(queues, np.bool_),
    )
