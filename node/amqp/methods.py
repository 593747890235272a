"""The methods of AMQP 0-9-1 with RabbitMQ's extensions: the fields of each, in wire order.

This file is the one description of a method: the codec reads the type of every field from its annotation. To
the reader of the code a method is an immutable record, which the type checker enforces. At run time the
records aren't frozen, since that would make them four times as expensive to build.
Fields have the defaults of the specification, so `QueueDeclare(queue="q")` is a whole method.
Source: amqp-behaviour §10. `global` is spelt `global_`, and the ids in the two close methods are `failed_…`,
because each method has ids of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Annotated, ClassVar, Final, TypeAlias, TypeVar, dataclass_transform

from node.amqp.field_table import Table


class FieldType(Enum):
    """The encoding of a method's field on the wire."""

    OCTET = auto()
    SHORT = auto()
    LONG = auto()
    LONGLONG = auto()
    SHORTSTR = auto()
    LONGSTR = auto()
    TABLE = auto()
    BIT = auto()


Octet: TypeAlias = Annotated[int, FieldType.OCTET]
Short: TypeAlias = Annotated[int, FieldType.SHORT]
Long: TypeAlias = Annotated[int, FieldType.LONG]
LongLong: TypeAlias = Annotated[int, FieldType.LONGLONG]
ShortStr: TypeAlias = Annotated[str, FieldType.SHORTSTR]
LongStr: TypeAlias = Annotated[bytes, FieldType.LONGSTR]
Arguments: TypeAlias = Annotated[Table, FieldType.TABLE]
Bit: TypeAlias = Annotated[bool, FieldType.BIT]


class Method:
    """The base of all methods.

    name: as the specification spells it, e.g. 'queue.declare'.
    has_content: whether a content header and body frames follow.
    """

    __slots__ = ()
    class_id: ClassVar[int]
    method_id: ClassVar[int]
    name: ClassVar[str]
    has_content: ClassVar[bool]


METHODS: Final[dict[tuple[int, int], type[Method]]] = {}
"""All methods by class id and method id."""

_M = TypeVar("_M", bound=Method)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _method(
    class_id: int, method_id: int, name: str, *, has_content: bool = False
) -> Callable[[type[_M]], type[_M]]:
    """Return a decorator that makes a dataclass of a method and enters it in `METHODS`."""

    def register(plain: type[_M]) -> type[_M]:
        cls = dataclass(slots=True)(plain)
        cls.class_id, cls.method_id, cls.name, cls.has_content = class_id, method_id, name, has_content
        assert (class_id, method_id) not in METHODS
        METHODS[class_id, method_id] = cls
        return cls

    return register


def _no_arguments() -> Table:
    return {}


# connection


@_method(10, 10, "connection.start")
class ConnectionStart(Method):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Arguments = field(default_factory=_no_arguments)
    mechanisms: LongStr = b"PLAIN"
    locales: LongStr = b"en_US"


@_method(10, 11, "connection.start-ok")
class ConnectionStartOk(Method):
    client_properties: Arguments = field(default_factory=_no_arguments)
    mechanism: ShortStr = "PLAIN"
    response: LongStr = b""
    locale: ShortStr = "en_US"


@_method(10, 20, "connection.secure")
class ConnectionSecure(Method):
    challenge: LongStr = b""


@_method(10, 21, "connection.secure-ok")
class ConnectionSecureOk(Method):
    response: LongStr = b""


@_method(10, 30, "connection.tune")
class ConnectionTune(Method):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@_method(10, 31, "connection.tune-ok")
class ConnectionTuneOk(Method):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@_method(10, 40, "connection.open")
class ConnectionOpen(Method):
    virtual_host: ShortStr = "/"
    capabilities: ShortStr = ""
    insist: Bit = False


@_method(10, 41, "connection.open-ok")
class ConnectionOpenOk(Method):
    known_hosts: ShortStr = ""


@_method(10, 50, "connection.close")
class ConnectionClose(Method):
    reply_code: Short = 0
    reply_text: ShortStr = ""
    failed_class_id: Short = 0
    failed_method_id: Short = 0


@_method(10, 51, "connection.close-ok")
class ConnectionCloseOk(Method):
    pass


@_method(10, 60, "connection.blocked")
class ConnectionBlocked(Method):
    reason: ShortStr = ""


@_method(10, 61, "connection.unblocked")
class ConnectionUnblocked(Method):
    pass


@_method(10, 70, "connection.update-secret")
class ConnectionUpdateSecret(Method):
    new_secret: LongStr = b""
    reason: ShortStr = ""


@_method(10, 71, "connection.update-secret-ok")
class ConnectionUpdateSecretOk(Method):
    pass


# channel


@_method(20, 10, "channel.open")
class ChannelOpen(Method):
    out_of_band: ShortStr = ""


@_method(20, 11, "channel.open-ok")
class ChannelOpenOk(Method):
    channel_id: LongStr = b""


@_method(20, 20, "channel.flow")
class ChannelFlow(Method):
    active: Bit = True


@_method(20, 21, "channel.flow-ok")
class ChannelFlowOk(Method):
    active: Bit = True


@_method(20, 40, "channel.close")
class ChannelClose(Method):
    reply_code: Short = 0
    reply_text: ShortStr = ""
    failed_class_id: Short = 0
    failed_method_id: Short = 0


@_method(20, 41, "channel.close-ok")
class ChannelCloseOk(Method):
    pass


# access


@_method(30, 10, "access.request")
class AccessRequest(Method):
    realm: ShortStr = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@_method(30, 11, "access.request-ok")
class AccessRequestOk(Method):
    ticket: Short = 1


# exchange


@_method(40, 10, "exchange.declare")
class ExchangeDeclare(Method):
    ticket: Short = 0
    exchange: ShortStr = ""
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Arguments = field(default_factory=_no_arguments)


@_method(40, 11, "exchange.declare-ok")
class ExchangeDeclareOk(Method):
    pass


@_method(40, 20, "exchange.delete")
class ExchangeDelete(Method):
    ticket: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    nowait: Bit = False


@_method(40, 21, "exchange.delete-ok")
class ExchangeDeleteOk(Method):
    pass


@_method(40, 30, "exchange.bind")
class ExchangeBind(Method):
    ticket: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = field(default_factory=_no_arguments)


@_method(40, 31, "exchange.bind-ok")
class ExchangeBindOk(Method):
    pass


@_method(40, 40, "exchange.unbind")
class ExchangeUnbind(Method):
    ticket: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = field(default_factory=_no_arguments)


# 51, where the pattern of the other methods would give 41.
@_method(40, 51, "exchange.unbind-ok")
class ExchangeUnbindOk(Method):
    pass


# queue


@_method(50, 10, "queue.declare")
class QueueDeclare(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Arguments = field(default_factory=_no_arguments)


@_method(50, 11, "queue.declare-ok")
class QueueDeclareOk(Method):
    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


@_method(50, 20, "queue.bind")
class QueueBind(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = field(default_factory=_no_arguments)


@_method(50, 21, "queue.bind-ok")
class QueueBindOk(Method):
    pass


@_method(50, 30, "queue.purge")
class QueuePurge(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    nowait: Bit = False


@_method(50, 31, "queue.purge-ok")
class QueuePurgeOk(Method):
    message_count: Long = 0


@_method(50, 40, "queue.delete")
class QueueDelete(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@_method(50, 41, "queue.delete-ok")
class QueueDeleteOk(Method):
    message_count: Long = 0


# The one request of its kind without nowait.
@_method(50, 50, "queue.unbind")
class QueueUnbind(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Arguments = field(default_factory=_no_arguments)


@_method(50, 51, "queue.unbind-ok")
class QueueUnbindOk(Method):
    pass


# basic


@_method(60, 10, "basic.qos")
class BasicQos(Method):
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_: Bit = False


@_method(60, 11, "basic.qos-ok")
class BasicQosOk(Method):
    pass


@_method(60, 20, "basic.consume")
class BasicConsume(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Arguments = field(default_factory=_no_arguments)


@_method(60, 21, "basic.consume-ok")
class BasicConsumeOk(Method):
    consumer_tag: ShortStr = ""


@_method(60, 30, "basic.cancel")
class BasicCancel(Method):
    consumer_tag: ShortStr = ""
    nowait: Bit = False


@_method(60, 31, "basic.cancel-ok")
class BasicCancelOk(Method):
    consumer_tag: ShortStr = ""


@_method(60, 40, "basic.publish", has_content=True)
class BasicPublish(Method):
    ticket: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@_method(60, 50, "basic.return", has_content=True)
class BasicReturn(Method):
    reply_code: Short = 0
    reply_text: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@_method(60, 60, "basic.deliver", has_content=True)
class BasicDeliver(Method):
    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@_method(60, 70, "basic.get")
class BasicGet(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


@_method(60, 71, "basic.get-ok", has_content=True)
class BasicGetOk(Method):
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


@_method(60, 72, "basic.get-empty")
class BasicGetEmpty(Method):
    cluster_id: ShortStr = ""


@_method(60, 80, "basic.ack")
class BasicAck(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False


@_method(60, 90, "basic.reject")
class BasicReject(Method):
    delivery_tag: LongLong = 0
    requeue: Bit = True


@_method(60, 100, "basic.recover-async")
class BasicRecoverAsync(Method):
    requeue: Bit = False


@_method(60, 110, "basic.recover")
class BasicRecover(Method):
    requeue: Bit = False


@_method(60, 111, "basic.recover-ok")
class BasicRecoverOk(Method):
    pass


@_method(60, 120, "basic.nack")
class BasicNack(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


# confirm


@_method(85, 10, "confirm.select")
class ConfirmSelect(Method):
    nowait: Bit = False


@_method(85, 11, "confirm.select-ok")
class ConfirmSelectOk(Method):
    pass


# tx


@_method(90, 10, "tx.select")
class TxSelect(Method):
    pass


@_method(90, 11, "tx.select-ok")
class TxSelectOk(Method):
    pass


@_method(90, 20, "tx.commit")
class TxCommit(Method):
    pass


@_method(90, 21, "tx.commit-ok")
class TxCommitOk(Method):
    pass


@_method(90, 30, "tx.rollback")
class TxRollback(Method):
    pass


@_method(90, 31, "tx.rollback-ok")
class TxRollbackOk(Method):
    pass
