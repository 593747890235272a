"""The interface of a node to its links to other nodes. No I/O in here."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from cluster.times import DATA_KEEPALIVE_S, KEEPALIVE_S, PING_TIMEOUT_S, PROBE_AFTER_S

CONTROL_BYTES_MAX: Final = 8 * 1024 * 1024
"""The biggest message on a control stream."""

FRAME_BYTES_MAX: Final = 640 * 1024 * 1024
"""The biggest frame on a data stream: the biggest message that a node may be configured to take (512 MiB), and more."""

CALL_BYTES_MAX: Final = 1024 * 1024
"""The biggest body of a call or of its answer."""


class Topic(IntEnum):
    """The part of a node that a frame is for."""

    RAFT = 1
    MEMBERSHIP = 2
    REMOTE = 3
    RING = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this node.

    cluster_id: empty while it belongs to no cluster.   incarnation: 0 until the cluster has given it one.
    """

    name: str
    node_id: str
    cluster_id: str = ""
    incarnation: int = 0


class Hello(NamedTuple):
    """The identity that the other node claims; with certificates or a secret it has proved that.

    is_call: it wants no link, only to ask something.
    """

    name: str
    node_id: str
    cluster_id: str
    incarnation: int
    version: str
    is_call: bool = False


class Listener(Protocol):
    """Receives what the links bring. All calls come on the event loop."""

    def admit(self, hello: Hello) -> str | None:
        """Return why a node is refused; None to let it in. Asked in each handshake, by both sides."""

    def link_up(self, name: str, incarnation: int) -> None:
        """Note that control messages pass in both directions.   incarnation: as in the node's last hello."""

    def link_down(self, name: str, *, is_gone: bool, reason: str) -> None:
        """Note that the link to a node is down.   is_gone: its process is known to have ended.   reason: for the
        log.
        """

    def control(self, name: str, topic: Topic, messages: list[bytes]) -> None:
        """Take messages of a control stream, in order; messages that a link loses when it breaks are lost."""

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        """Take frames of a data stream: each once and in order, as long as both incarnations live."""

    def received(self) -> None:
        """Run a turn: all messages of one read were handed over."""

    def relieved(self, name: str) -> None:
        """Note that the data stream to that node is not congested any more."""

    async def call(self, name: str, body: bytes) -> bytes:
        """Return the answer to a request of a node that was admitted."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options of links; the defaults are measured (ring §0, §1c, §4).

    keepalive_s: a ping when nothing was heard for so long. ping_timeout_s: a link ends when a ping has no answer for
    so long; together 1.5 s for a host that froze or vanished. data_keepalive_s: the same for data streams and
    calls, and for the side of a control stream that has not opened it: these need not notice it first. handshake_s:
    how long the other side may take for it. probe_after_s: how long after a link broke its node is tried again, before
    it counts as gone. refused_retry_s: how long to wait after a refusal. ack_after_s, ack_bytes: received frames are
    acknowledged after this time or amount, whichever comes first. congested_bytes: unacknowledged bytes above which
    a data stream is congested.
    """

    keepalive_s: float = KEEPALIVE_S
    data_keepalive_s: float = DATA_KEEPALIVE_S
    ping_timeout_s: float = PING_TIMEOUT_S
    reconnect_min_s: float = 0.1
    reconnect_max_s: float = 0.5
    connect_s: float = 1.0
    handshake_s: float = 5.0
    probe_after_s: float = PROBE_AFTER_S
    refused_retry_s: float = 0.5
    ack_after_s: float = 0.1
    ack_bytes: int = 1024 * 1024
    congested_bytes: int = 16 * 1024 * 1024


class Traffic(NamedTuple):
    """The traffic between this node and another one.

    address: where the other node is reached; empty: no links to it are kept.   sent_bytes, received_bytes: of
    messages, since this node's process knows the other node.
    """

    address: str
    is_up: bool
    sent_bytes: int
    received_bytes: int


class Unreachable(Exception):
    """A node could not be asked, or didn't answer in time. The text is for the operator."""


class PeerRefused(Exception):
    """A node doesn't let us in, or we don't trust it. The text is for the operator."""


class InsecureListener(Exception):
    """Other hosts could join without proving anything. The text is for the operator."""
