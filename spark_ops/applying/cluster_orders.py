"""Orders of another machine to the one that carries out a plan, by way of the cluster's metadata.

    spark_ops.order.DIGITS    one global parameter for each plan: the order, and to whom it is given

The machine that carries out the plan looks for an order whenever it looks at the cluster, that is, every two seconds,
and marks it as taken; the other machine waits for that, and removes it. An order names the owner of the lock, so that
no other run takes it. A run that begins removes what is there, which is of an earlier one. Source: spark §3.4.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from spark_ops.applying.asking import Answer, Silence
from spark_ops.applying.client import Client
from spark_ops.applying.cluster_journals import ORDER, PATH, digits_of

FORMAT: Final = "spark-ops-order/1"
TAKEN_S: Final = 30.0
"""An order that is not taken within this time is withdrawn: the lock of a process that has died expires as soon."""
POLL_S: Final = 0.5

RemoteOrder = Literal["pause", "abort"]


class NotTaken(Exception):
    """No process took an order; the error's text is one line."""


class Orders:
    """The orders for the process that carries out a plan.   owner: its name for the lock."""

    def __init__(self, client: Client, plan_id: str, owner: str) -> None:
        self._client = client
        self._path = f"{PATH}/{ORDER}{digits_of(plan_id)}"
        self._owner = owner

    def take(self) -> RemoteOrder | None:
        """Return the order to this process, once; None if there is none, or the cluster does not answer."""
        answer = self._client.get(self._path)
        order = _order_in(answer, self._owner)
        if order is None:
            return None
        assert isinstance(answer, Answer)
        # If that fails, the order is taken again, which changes nothing.
        self._client.request("PUT", self._path, {"value": {**answer.field("value"), "taken": True}})
        return order


def _order_in(answer: Answer | Silence, owner: str) -> RemoteOrder | None:
    if isinstance(answer, Silence) or answer.status != 200:
        return None
    value = answer.field("value")
    if not isinstance(value, Mapping) or value.get("format") != FORMAT or value.get("to") != owner:
        return None
    if value.get("taken"):
        return None
    match value.get("order"):
        case "pause":
            return "pause"
        case "abort":
            return "abort"
    return None


def _put(client: Client, path: str, value: Mapping[str, Any]) -> None:
    """Write the order. Raises: NotTaken."""
    found = client.request("PUT", path, {"value": value})
    if isinstance(found, Silence) or found.status not in (200, 201, 204):
        why = found.why if isinstance(found, Silence) else found.reason
        raise NotTaken(f"the cluster did not take the order: {why}")


def give(
    client: Client,
    plan_id: str,
    owner: str,
    order: RemoteOrder,
    by: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Give an order to the process that has a plan's lock, and wait until it has taken it, at most `TAKEN_S`.

    owner: of the lock.   by: who gives the order. Raises: NotTaken.
    """
    path = f"{PATH}/{ORDER}{digits_of(plan_id)}"
    value: dict[str, Any] = {"format": FORMAT, "order": order, "to": owner, "by": by, "at": time.time()}
    _put(client, path, value)
    until = clock() + TAKEN_S
    is_taken = False
    while not is_taken and clock() < until:
        sleep(POLL_S)
        seen = client.get(path)
        if isinstance(seen, Answer) and seen.status == 404:
            _put(client, path, value)  # the run began just now, and took it for an order to an earlier one
        elif isinstance(seen, Answer):
            told = seen.field("value")
            is_taken = isinstance(told, Mapping) and bool(told.get("taken"))
    client.request("DELETE", path)
    if is_taken:
        return
    raise NotTaken(
        f"{owner} did not take the order within {TAKEN_S:.0f} s: it has ended, or does not reach the cluster, and its "
        "lock expires"
    )
