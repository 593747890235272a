"""The state of a shovel, as operators see it: the rows of the HTTP API and of `ctl shovel_status`.

Source: RabbitMQ 3.10.8, `rabbit_shovel_mgmt` and `rabbit_shovel_status`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

from node.catalogue.records import Json
from node.shovels.definition import ShovelDefinition, ShovelKey, Type

State = Literal["starting", "running", "terminated"]


class ShovelStatus(NamedTuple):
    """The state of one shovel.

    reason: of `terminated`, as an Erlang term.   error: why it did not work the last time; empty: it works.
    ends: of `running`: both ends, without passwords.   since_s: seconds since 1970.   counts: since the shovel began.
    """

    key: ShovelKey
    type: Type
    state: State
    since_s: float
    reason: str = ""
    error: str = ""
    ends: tuple[tuple[str, str], ...] = ()


def ends_of(
    definition: ShovelDefinition, source_uri: str, destination_uri: str
) -> tuple[tuple[str, str], ...]:
    """Return what operators see of the two ends of a running shovel.   URIs: without passwords."""
    found = {
        "src_uri": source_uri,
        "src_protocol": "amqp091",
        "dest_protocol": "amqp091",
        "dest_uri": destination_uri,
    }
    if definition.type == "dynamic":
        found |= definition.source.shown("src_") | definition.destination.shown("dest_")
    return tuple(found.items())


def status_row(status: ShovelStatus, node: str, local_time: Callable[[float], datetime]) -> dict[str, Json]:
    """Return the state as the HTTP API has it.   local_time: converts seconds since 1970 to the time of day."""
    row: dict[str, Json] = {
        "node": node,
        "timestamp": shown_time(local_time(status.since_s)),
        "name": status.key.name,
    }
    if status.type == "dynamic":
        row["vhost"] = status.key.vhost
    row |= {"type": status.type, "state": status.state}
    row |= dict(status.ends)
    if status.state == "terminated":
        row["reason"] = status.reason
    if status.error:
        row["error"] = status.error
    return row


def shown_time(at: datetime) -> str:
    """Return a time as RabbitMQ's plug-in prints it: `2026-11-28 9:05:00`."""
    return f"{at.year}-{at.month:02}-{at.day:02} {at.hour}:{at.minute:02}:{at.second:02}"
