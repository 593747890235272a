"""Ring messages (packets) between two nodes as bytes.

    member's message ─► encode_packet ─► bytes, joined with those of all queues ─► a frame ─► decode_frame ─► receive

To this layer payloads are bytes, which pass from neighbour to neighbour unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from cluster.errors import Malformed
from cluster.gm_ring.messages import Activity, CatchUp, Item
from cluster.gm_ring.ring_pb2 import Frame, News
from cluster.gm_ring.ring_pb2 import Parcel as RawPacket

Message: TypeAlias = Activity | CatchUp | bytes
"""The content of a packet; bytes go past the ring's member."""

_NUMBER_MAX: Final = 2**63
"""The limit of all ids and counts in a packet. A peer of ours sends no higher ones."""


@dataclass(frozen=True, slots=True)
class RingPacket:
    """A message of one member of a queue's ring to another member.

    uid: of the queue.   version: of the sender's view.   edge: as in `Activity`; 0 with bytes.
    """

    uid: str
    sender: int
    receiver: int
    version: int
    edge: int
    message: Message


def encode_packet(uid: str, sender: int, receiver: int, message: Message, version: int = 0) -> bytes:
    """Encode a frame of one packet; frames one behind the other are a frame.

    version: of the sender's view, with bytes; the other messages have it in them.
    """
    frame = Frame()
    raw = frame.parcels.add()
    raw.uid, raw.sender, raw.receiver, raw.version = uid, sender, receiver, version
    if isinstance(message, bytes):
        raw.side = message
    elif isinstance(message, Activity):
        raw.version, raw.edge = message.version, message.edge
        raw.activity.SetInParent()
        _fill(raw.activity, message.items)
    else:
        raw.version, raw.edge = message.version, message.edge
        raw.catch_up.SetInParent()
        _fill(raw.catch_up, message.origins)
        raw.catch_up.is_cut = message.is_cut
    return frame.SerializeToString()


def decode_frame(data: bytes, faults: list[str]) -> list[RingPacket]:
    """Return the packets of frames, in order.   faults: gets a text for each malformed packet, which is left out."""
    try:
        frame = Frame.FromString(data)
    except DecodeError:
        faults.append("a frame of the ring is damaged")
        return []
    packets = []
    for raw in frame.parcels:
        try:
            packets.append(_packet(raw))
        except Malformed as error:
            faults.append(str(error))
    return packets


def _fill(news: News, items: Sequence[Item]) -> None:
    for origin, upto, payloads, ack, mark in items:
        news.items.add(origin=origin, upto=upto + 1, payloads=payloads, ack=ack + 1, mark=mark + 1)


def _packet(raw: RawPacket) -> RingPacket:
    version, edge = raw.version, raw.edge
    if not (raw.uid and raw.sender and raw.receiver) or max(raw.sender, raw.receiver, version) >= _NUMBER_MAX:
        raise Malformed("a packet of the ring has no address")
    if edge > version:
        raise Malformed("a packet of the ring is of a later edge than its view")
    message: Message
    match raw.WhichOneof("message"):
        case "activity":
            message = Activity(version, edge, _items(raw.activity))
        case "catch_up":
            message = CatchUp(version, edge, _items(raw.catch_up), raw.catch_up.is_cut)
        case "side" if not edge:
            message = raw.side
        case _:
            raise Malformed("a packet of the ring is empty")
    return RingPacket(raw.uid, raw.sender, raw.receiver, version, edge, message)


def _items(news: News) -> list[Item]:
    items = []
    for raw in news.items:
        upto, payloads = raw.upto, list(raw.payloads)
        if not raw.origin or max(raw.origin, upto) >= _NUMBER_MAX:
            raise Malformed("an item of the ring has impossible numbers")
        if len(payloads) > upto or raw.ack > upto or raw.mark > upto:
            raise Malformed("an item of the ring has numbers that contradict each other")
        items.append(Item(raw.origin, upto - 1, payloads, raw.ack - 1, raw.mark - 1))
    return items
