"""Encode and decode a heartbeat and the status in it, with all checks of what a peer sends.

Source: `proto/membership.proto`.
"""

import json
import math
from dataclasses import dataclass
from typing import Final, NoReturn, cast

from google.protobuf.message import DecodeError

from cluster.membership import membership_pb2
from node.catalogue.records import JsonObject

STATUS_MAX_BYTES: Final = 64 * 1024
REACHABLE_MAX: Final = 128
"""Nodes that a heartbeat may list. A larger cluster works, but its partial partitions aren't all seen."""
NAME_MAX_BYTES: Final = 255
HEARTBEAT_MAX_BYTES: Final = STATUS_MAX_BYTES + (REACHABLE_MAX + 1) * (NAME_MAX_BYTES + 3) + 64
"""The sum of the limits above with tags and lengths, and a few numbers."""


class HeartbeatUnreadable(Exception):
    """A peer sent bytes that are no heartbeat. The text says why."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One heartbeat between two nodes; `proto/membership.proto` explains the fields.

    leader: None when there is none.   status: its JSON, None when left out.
    """

    incarnation: int
    sent_s: float
    leader: str | None = None
    reachable: frozenset[str] = frozenset()
    status_version: int = 0
    status: bytes | None = None
    lacks_status: bool = False


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Encode a heartbeat in at most `HEARTBEAT_MAX_BYTES`."""
    message = membership_pb2.Heartbeat(
        incarnation=heartbeat.incarnation,
        sent_s=heartbeat.sent_s,
        leader=heartbeat.leader or "",
        reachable=sorted(heartbeat.reachable)[:REACHABLE_MAX],
        status_version=heartbeat.status_version,
        status=heartbeat.status,
        lacks_status=heartbeat.lacks_status,
    )
    return message.SerializeToString()


def decode_heartbeat(message: bytes) -> Heartbeat:
    """Decode a heartbeat. Raises `HeartbeatUnreadable` for all that `encode_heartbeat` doesn't write."""
    if len(message) > HEARTBEAT_MAX_BYTES:
        raise HeartbeatUnreadable(f"a heartbeat of {len(message)} bytes")
    try:
        fields = membership_pb2.Heartbeat.FromString(message)
    except DecodeError as error:
        raise HeartbeatUnreadable("not a heartbeat") from error
    if not (math.isfinite(fields.sent_s) and fields.sent_s >= 0):
        raise HeartbeatUnreadable(f"a heartbeat that was sent at {fields.sent_s}")
    if len(fields.reachable) > REACHABLE_MAX:
        raise HeartbeatUnreadable(f"a heartbeat that lists {len(fields.reachable)} nodes")
    if any(len(name.encode()) > NAME_MAX_BYTES for name in (fields.leader, *fields.reachable)):
        raise HeartbeatUnreadable(f"a node's name of more than {NAME_MAX_BYTES} bytes")
    has_status = fields.HasField("status")
    if has_status and (len(fields.status) > STATUS_MAX_BYTES or not fields.status_version):
        raise HeartbeatUnreadable(f"version {fields.status_version} of a status, {len(fields.status)} bytes")
    return Heartbeat(
        fields.incarnation,
        fields.sent_s,
        fields.leader or None,
        frozenset(fields.reachable),
        fields.status_version,
        fields.status if has_status else None,
        fields.lacks_status,
    )


def encode_status(status: JsonObject) -> bytes:
    """Encode a status; equal objects give the same bytes. The caller compares these, and checks `STATUS_MAX_BYTES`."""
    return json.dumps(status, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def decode_status(raw: bytes) -> JsonObject:
    """Decode a status. Raises `HeartbeatUnreadable` unless it is a JSON object whose texts can be written as UTF-8."""
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
        json.dumps(
            value, ensure_ascii=False, allow_nan=False
        ).encode()  # half a surrogate pair would fail where it is shown
    except (ValueError, RecursionError) as error:
        raise HeartbeatUnreadable("a status that isn't JSON") from error
    if not isinstance(value, dict):
        raise HeartbeatUnreadable("a status that isn't a JSON object")
    return cast(JsonObject, value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
