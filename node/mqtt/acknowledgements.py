"""The acknowledgements that a client awaits: they leave in the order of its packets, many at a time.

Source: MQTT 3.1.1 and 5.0, chapter 4.6 [MQTT-4.6.0-2, MQTT-4.6.0-3].
"""

from collections import deque
from collections.abc import Callable

from node.mqtt.constants import Version
from node.mqtt.encoder import encode_acks
from node.mqtt.packets import AckType


class Awaited:
    """An acknowledgement that is due.   missing: the answers of the broker that are still to come.

    code: the reason code.
    """

    __slots__ = ("code", "missing", "packet_id", "type")

    def __init__(self, type_: AckType, packet_id: int, missing: int) -> None:
        self.type = type_
        self.packet_id = packet_id
        self.missing = missing
        self.code = 0


class Acknowledgements:
    """The acknowledgements of one client's publishes.

    write: sends bytes.
    """

    def __init__(self, version: Version, write: Callable[[bytes], None]) -> None:
        self._version = version
        self._write = write
        self._due: deque[Awaited] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def expect(self, type_: AckType, packet_id: int, missing: int) -> Awaited:
        """Add an acknowledgement behind all others, which leaves when so many answers have come."""
        awaited = Awaited(type_, packet_id, missing)
        self._due.append(awaited)
        return awaited

    def flush(self) -> None:
        """Send what has all its answers, up to the first one that has not."""
        due = self._due
        while due and not due[0].missing:
            first = due.popleft()
            type_, code, packet_ids = first.type, first.code, [first.packet_id]
            while due:
                each = due[0]
                if each.missing or each.type is not type_ or each.code != code:
                    break
                packet_ids.append(each.packet_id)
                due.popleft()
            self._write(encode_acks(self._version, type_, packet_ids, code))
