"""The state of QoS 2 of a persistent session, as it is kept in a queue: the loss of a node must not double a message.

    change ─► save(then) ─► one snapshot for all changes meanwhile ─► confirmed ─► then

The queue has the last two snapshots, of which the higher number counts, and mirrors as its policy says. A snapshot is
confirmed before the client or the broker learns of what it says: the id under which a message goes out is in it before
the message, and a packet identifier is out of it before the client may use it again.
Source: MQTT 5.0 chapter 4.3.3; docs/mqtt.md.
"""

import json
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from node.mqtt.constants import PACKET_ID_MAX

RECENT_MAX: Final = 1024
"""The ids of messages that were delivered and that a session knows again, if the broker delivers one twice.

A snapshot has the last ones of them: as many as the broker delivers before it waits for a settlement, since a lost node
may have kept the settlements of so many, and the broker delivers these messages again.
"""

IDS_MAX: Final = 32_767
"""The most packet identifiers in each direction of a snapshot; one with more is malformed. A session that has as many
messages in flight still finds a free identifier."""

NUMBER_STEP: Final = 1000
"""A connection's snapshots have numbers above those that a former one may still have on its way."""

Publish = Callable[[bytes, Callable[[bool], None]], None]
"""Puts a snapshot into the queue.   Arguments: its bytes, and what is told whether it is safe."""


class StoredState:
    """The messages with QoS 2 that are on their way, in both directions.

    received: packet identifiers of the client that are not released, with the ids of their messages.
    sent: packet identifiers of messages to the client without a PUBREC, with the ids of the messages.
    released: the same after the PUBREC: the messages are settled.
    publish: puts a snapshot into the queue; None: the session ends with its connection, and nothing is kept.
    on_lost: called if a snapshot was refused.
    in_flight_max: how many messages the broker delivers to the session before it waits for a settlement.
    """

    def __init__(self, publish: Publish | None, on_lost: Callable[[], None], *, in_flight_max: int) -> None:
        self.received: dict[int, str] = {}
        self.sent: dict[int, bytes] = {}
        self.released: dict[int, bytes] = {}
        self._recent: deque[bytes] = deque(maxlen=RECENT_MAX)
        self._recent_ids: set[bytes] = set()
        self._last: deque[str] = deque(maxlen=min(in_flight_max, RECENT_MAX))
        """The last of these ids, as a snapshot has them."""
        self._number = 0
        self._publish = publish
        self._on_lost = on_lost
        self._waiting: list[Callable[[], None]] = []
        self._is_saving = False

    @property
    def is_kept(self) -> bool:
        """True if the state outlives the connection."""
        return self._publish is not None

    def has_delivered(self, message: bytes) -> bool:
        """True if the client has a message already."""
        return message in self._recent_ids

    def delivered(self, message: bytes) -> None:
        """Note that the client has a message."""
        if len(self._recent) == RECENT_MAX:
            self._recent_ids.discard(self._recent[0])
        self._recent.append(message)
        self._recent_ids.add(message)
        self._last.append(message.decode("latin-1"))

    def let_go(self) -> None:
        """Forget the connection: it is gone."""
        self._publish = None
        self._on_lost = lambda: None
        self._waiting.clear()

    # --- snapshots ---

    def save(self, then: Callable[[], None]) -> None:
        """Call `then` once the state as it is now outlives the node; at once if it need not."""
        if self._publish is None:
            then()
            return
        self._waiting.append(then)
        if not self._is_saving:
            self._save()

    def _save(self) -> None:
        assert self._publish is not None
        self._is_saving = True
        waiting, self._waiting = self._waiting, []

        def answered(is_safe: bool) -> None:
            self._is_saving = False
            if not is_safe:
                self._on_lost()
                return
            for then in waiting:
                then()
            if self._waiting and not self._is_saving:
                self._save()

        self._number += 1
        self._publish(self._snapshot(), answered)

    def _snapshot(self) -> bytes:
        def texts(ids: dict[int, bytes]) -> dict[int, str]:
            return {packet_id: id_.decode("latin-1") for packet_id, id_ in ids.items()}

        return json.dumps(
            {
                "number": self._number,
                "received": self.received,
                "sent": texts(self.sent),
                "released": texts(self.released),
                "recent": list(self._last),
            }
        ).encode()

    def restore(self, snapshots: list[bytes]) -> None:
        """Take over the last of the snapshots that were found in the queue. One that is malformed is left out."""
        read = [found for data in snapshots if (found := _read(data)) is not None]
        if not read:
            return
        last = max(read, key=lambda each: int(each["number"]))
        self._number = last["number"] + NUMBER_STEP
        self.received = {int(key): str(value) for key, value in last["received"].items()}
        self.sent = _ids(last["sent"])
        self.released = _ids(last["released"])
        for text in last["recent"]:
            self.delivered(text.encode("latin-1"))
        for id_ in self.released.values():
            self.delivered(id_)


def _ids(found: dict[str, str]) -> dict[int, bytes]:
    return {int(key): value.encode("latin-1") for key, value in found.items()}


def _read(data: bytes) -> dict[str, Any] | None:
    """Return a snapshot, checked: AMQP's clients can put anything into the queue."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("number"), int):
        return None
    for part in ("received", "sent", "released"):
        pairs = found.get(part)
        if not isinstance(pairs, dict) or len(pairs) > IDS_MAX or not all(map(_is_pair, pairs.items())):
            return None
    recent = found.get("recent")
    if not isinstance(recent, list) or not all(isinstance(each, str) and _is_latin(each) for each in recent):
        return None
    return found


def _is_pair(pair: tuple[str, Any]) -> bool:
    key, value = pair
    is_id = key.isdecimal() and len(key) <= 5 and 0 < int(key) <= PACKET_ID_MAX
    return is_id and isinstance(value, str) and _is_latin(value)


def _is_latin(text: str) -> bool:
    return not text or max(text) <= "\xff"
