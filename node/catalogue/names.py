"""Names of exchanges and queues: how error texts show them, which are reserved, how new ones are made.

Source: amqp-behaviour §0.1 (rendering), §3.1 (names), §3.3, §3.4 (the default exchange and system exchanges).
"""

import base64
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.records import DEFAULT_EXCHANGE, QueueRecord, ResourceKind

RESERVED_PREFIX: Final = "amq."
GENERATED_QUEUE_PREFIX: Final = "amq.gen-"
GENERATED_CONSUMER_TAG_PREFIX: Final = "amq.ctag-"
GENERATED_RANDOM_BYTES: Final = 16

_LINE_BREAKS: Final = {ord("\r"): None, ord("\n"): None}


def resource(kind: ResourceKind, name: str, vhost: str) -> str:
    """Return the phrase of error texts for a queue or an exchange: `queue 'Q' in vhost 'V'` (§0.1)."""
    return f"{kind} '{name}' in vhost '{vhost}'"


def missing(kind: ResourceKind, name: str, vhost: str) -> str:
    """The 404 text: `no queue 'Q' in vhost 'V'`."""
    return f"no {resource(kind, name, vhost)}"


def not_found(kind: ResourceKind, name: str, vhost: str) -> ProtocolError:
    """The 404 to raise for a queue or exchange that does not exist."""
    return ProtocolError(ReplyCode.NOT_FOUND, missing(kind, name, vhost))


def home_is_down(record: QueueRecord) -> ProtocolError:
    """The 404 to raise for a queue whose node is down (§9.1)."""
    where = resource("queue", record.name, record.vhost)
    return ProtocolError(
        ReplyCode.NOT_FOUND, f"home node '{record.home}' of durable {where} is down or inaccessible"
    )


def missing_vhost(name: str) -> str:
    """The 530 text of §1.5; no quotes round the name."""
    return f"vhost {name} not found"


def strip_line_breaks(name: str) -> str:
    """The name without CR and LF.

    Declare, delete, bind and unbind drop them; publish, get, consume and purge do not (§3.1).
    """
    return name.translate(_LINE_BREAKS)


def generated_name(prefix: str, random_bytes: bytes) -> str:
    """`prefix` and 22 characters for 16 random bytes: URL-safe base64 without padding (§3.1)."""
    assert len(random_bytes) == GENERATED_RANDOM_BYTES, len(random_bytes)
    return prefix + base64.urlsafe_b64encode(random_bytes).rstrip(b"=").decode()


def check_not_reserved(kind: ResourceKind, name: str) -> None:
    """Refuse (403) to create a name that starts with `amq.`.

    A queue is checked before it is looked up, an exchange only when it does not exist (§3.1).
    """
    if name.startswith(RESERVED_PREFIX):
        raise ProtocolError(
            ReplyCode.ACCESS_REFUSED, f"{kind} name '{name}' contains reserved prefix '{RESERVED_PREFIX}*'"
        )


def check_not_default_exchange(name: str) -> None:
    """Refuse (403) to declare, delete, bind or unbind the default exchange (§3.3, §3.4, §3.14)."""
    if name == DEFAULT_EXCHANGE:
        raise ProtocolError(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")


def check_not_system_exchange(name: str, vhost: str) -> None:
    """Refuse (403) to delete an exchange whose name starts with `amq.`, existing or not (§3.4)."""
    if name.startswith(RESERVED_PREFIX):
        raise ProtocolError(
            ReplyCode.ACCESS_REFUSED, f"deletion of system {resource('exchange', name, vhost)} not allowed"
        )
