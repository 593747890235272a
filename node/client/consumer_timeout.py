"""The time for which a client may leave a delivery unacknowledged. Source: amqp-behaviour §4.10."""

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.client.unacked import Delivery


def check_consumer_timeout(
    number: int, oldest: Delivery | None, timeout_ms: float | None, now: float
) -> None:
    """Raise ProtocolError if the oldest delivery of a channel has been unacknowledged for too long.

    number: the channel's.   timeout_ms: None: there is no limit.
    """
    if timeout_ms is None or oldest is None or now - oldest.at < timeout_ms / 1000:
        return
    raise ProtocolError(
        ReplyCode.PRECONDITION_FAILED,
        f"delivery acknowledgement on channel {number} timed out. "
        f"Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more",
    )
