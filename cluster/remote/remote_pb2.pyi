from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("uid", "vhost", "name", "operations", "is_for_front_end", "mastership")
    UID_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    IS_FOR_FRONT_END_FIELD_NUMBER: _ClassVar[int]
    MASTERSHIP_FIELD_NUMBER: _ClassVar[int]
    uid: str
    vhost: bytes
    name: bytes
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    is_for_front_end: bool
    mastership: int
    def __init__(self, uid: _Optional[str] = ..., vhost: _Optional[bytes] = ..., name: _Optional[bytes] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., is_for_front_end: _Optional[bool] = ..., mastership: _Optional[int] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("publish", "settle", "subscribe", "unsubscribe", "ask", "credit", "grant", "limit", "close", "reply", "find_requester", "deliver", "accepted", "answer", "want", "give_back")
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    FIND_REQUESTER_FIELD_NUMBER: _ClassVar[int]
    DELIVER_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    GIVE_BACK_FIELD_NUMBER: _ClassVar[int]
    publish: Publish
    settle: Settle
    subscribe: Subscribe
    unsubscribe: int
    ask: Ask
    credit: Share
    grant: Share
    limit: Limit
    close: bool
    reply: Reply
    find_requester: FindRequester
    deliver: Deliver
    accepted: Accepted
    answer: Answer
    want: Share
    give_back: Share
    def __init__(self, publish: _Optional[_Union[Publish, _Mapping]] = ..., settle: _Optional[_Union[Settle, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., unsubscribe: _Optional[int] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., credit: _Optional[_Union[Share, _Mapping]] = ..., grant: _Optional[_Union[Share, _Mapping]] = ..., limit: _Optional[_Union[Limit, _Mapping]] = ..., close: _Optional[bool] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ..., find_requester: _Optional[_Union[FindRequester, _Mapping]] = ..., deliver: _Optional[_Union[Deliver, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., want: _Optional[_Union[Share, _Mapping]] = ..., give_back: _Optional[_Union[Share, _Mapping]] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("run", "is_confirmed", "is_again")
    RUN_FIELD_NUMBER: _ClassVar[int]
    IS_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    IS_AGAIN_FIELD_NUMBER: _ClassVar[int]
    run: bytes
    is_confirmed: bool
    is_again: bool
    def __init__(self, run: _Optional[bytes] = ..., is_confirmed: _Optional[bool] = ..., is_again: _Optional[bool] = ...) -> None: ...

class Settle(_message.Message):
    __slots__ = ("kind", "bounds")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACK: _ClassVar[Settle.Kind]
        REJECT: _ClassVar[Settle.Kind]
        REQUEUE: _ClassVar[Settle.Kind]
        RETURN: _ClassVar[Settle.Kind]
        GIVE_BACK: _ClassVar[Settle.Kind]
    ACK: Settle.Kind
    REJECT: Settle.Kind
    REQUEUE: Settle.Kind
    RETURN: Settle.Kind
    GIVE_BACK: Settle.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    kind: Settle.Kind
    bounds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[_Union[Settle.Kind, str]] = ..., bounds: _Optional[_Iterable[int]] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("request", "consumer", "channel", "tag", "no_ack", "exclusive", "priority", "prefetch", "is_limited", "arguments")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    NO_ACK_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    IS_LIMITED_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    request: int
    consumer: int
    channel: int
    tag: bytes
    no_ack: bool
    exclusive: bool
    priority: int
    prefetch: int
    is_limited: bool
    arguments: bytes
    def __init__(self, request: _Optional[int] = ..., consumer: _Optional[int] = ..., channel: _Optional[int] = ..., tag: _Optional[bytes] = ..., no_ack: _Optional[bool] = ..., exclusive: _Optional[bool] = ..., priority: _Optional[int] = ..., prefetch: _Optional[int] = ..., is_limited: _Optional[bool] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("request", "kind", "if_unused", "if_empty")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COUNTS: _ClassVar[Ask.Kind]
        FETCH: _ClassVar[Ask.Kind]
        PURGE: _ClassVar[Ask.Kind]
        DELETE: _ClassVar[Ask.Kind]
    COUNTS: Ask.Kind
    FETCH: Ask.Kind
    PURGE: Ask.Kind
    DELETE: Ask.Kind
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    IF_UNUSED_FIELD_NUMBER: _ClassVar[int]
    IF_EMPTY_FIELD_NUMBER: _ClassVar[int]
    request: int
    kind: Ask.Kind
    if_unused: bool
    if_empty: bool
    def __init__(self, request: _Optional[int] = ..., kind: _Optional[_Union[Ask.Kind, str]] = ..., if_unused: _Optional[bool] = ..., if_empty: _Optional[bool] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("name", "run")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    run: bytes
    def __init__(self, name: _Optional[bytes] = ..., run: _Optional[bytes] = ...) -> None: ...

class FindRequester(_message.Message):
    __slots__ = ("request", "name")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request: int
    name: bytes
    def __init__(self, request: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("id", "amount")
    ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    id: int
    amount: int
    def __init__(self, id: _Optional[int] = ..., amount: _Optional[int] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ("consumer", "is_limited")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    IS_LIMITED_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    is_limited: bool
    def __init__(self, consumer: _Optional[int] = ..., is_limited: _Optional[bool] = ...) -> None: ...

class Deliver(_message.Message):
    __slots__ = ("consumer", "run")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    run: bytes
    def __init__(self, consumer: _Optional[int] = ..., run: _Optional[bytes] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("bounds", "refusals", "is_lost")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    IS_LOST_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[int]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    is_lost: bool
    def __init__(self, bounds: _Optional[_Iterable[int]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., is_lost: _Optional[bool] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("number", "indexes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    number: int
    indexes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("request", "code", "text", "messages", "consumers", "run")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    request: int
    code: int
    text: bytes
    messages: int
    consumers: int
    run: bytes
    def __init__(self, request: _Optional[int] = ..., code: _Optional[int] = ..., text: _Optional[bytes] = ..., messages: _Optional[int] = ..., consumers: _Optional[int] = ..., run: _Optional[bytes] = ...) -> None: ...
