"""This module observes a cluster by its HTTP API: with a few small requests, whatever the number of its queues."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from spark_ops.applying.asking import Answer, Silence
from spark_ops.applying.client import Client
from spark_ops.applying.observation import Observation, Queue

NODES: Final = "/nodes?columns=name,running,mem_alarm,disk_free_alarm"
PAGE: Final = 100
RINGS: Final = "/mirroring/rings?columns=vhost,name,danger,lag,synchronised&sort=danger"
ALONE: Final = 1
"""The `danger` up to which a queue has no synchronised mirror; 0: it has no master either."""

PAGES_MAX: Final = 50


def observe(client: Client) -> Observation | Answer | Silence:
    """Observe the cluster once. Returns: the answer or silence that prevented it, if it failed."""
    began = time.monotonic()
    nodes = client.get(NODES)
    answer_ms = (time.monotonic() - began) * 1000
    if isinstance(nodes, Silence) or not isinstance(nodes.body, list):
        return nodes
    rings: list[Mapping[str, Any]] = []
    for page in range(1, PAGES_MAX + 1):
        found = client.get(f"{RINGS}&page={page}&page_size={PAGE}")
        if isinstance(found, Silence) or not isinstance(found.field("items"), list):
            return found
        rings += found.field("items")
        is_last = page >= int(found.field("page_count") or 0)
        if is_last or any(row.get("danger", 0) > ALONE for row in rings[-1:]):
            break
    lock = client.get("/mirroring/plan-lock")
    view_id = lock.field("view_id") if isinstance(lock, Answer) else None
    seen = observation(nodes.body, rings)
    return replace(seen, answer_ms=answer_ms, view_id=view_id if isinstance(view_id, int) else None)


def observation(nodes: Iterable[Mapping[str, Any]], rings: Iterable[Mapping[str, Any]]) -> Observation:
    """Return the observation made of the documents of nodes and rings.   rings: the most endangered first."""
    running, alarms, unsafe = set(), set(), set[Queue]()
    for node in nodes:
        name = str(node.get("name"))
        if node.get("running"):
            running.add(name)
        if node.get("mem_alarm"):
            alarms.add(f"memory on {name}")
        if node.get("disk_free_alarm"):
            alarms.add(f"disk on {name}")
    lag: int | None = None
    for ring in rings:
        if ring.get("danger", ALONE + 1) <= ALONE:
            unsafe.add((str(ring.get("vhost")), str(ring.get("name"))))
        good = ring.get("synchronised") or ()
        behind = [each for node, each in (ring.get("lag") or {}).items() if node in good]
        lag = max([each for each in (lag, *behind) if isinstance(each, int)], default=None)
    return Observation(frozenset(running), frozenset(alarms), frozenset(unsafe), mirror_lag_ops=lag)
