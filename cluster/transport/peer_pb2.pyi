from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Greeting(_message.Message):
    __slots__ = ("protocol", "kind", "name", "node_id", "cluster_id", "incarnation", "version", "to", "nonce")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    kind: str
    name: str
    node_id: str
    cluster_id: str
    incarnation: int
    version: str
    to: str
    nonce: bytes
    def __init__(self, protocol: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., node_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., version: _Optional[str] = ..., to: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Handshake(_message.Message):
    __slots__ = ("greeting", "proof", "accepted", "refusal")
    GREETING_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    greeting: Greeting
    proof: bytes
    accepted: bool
    refusal: str
    def __init__(self, greeting: _Optional[_Union[Greeting, _Mapping]] = ..., proof: _Optional[bytes] = ..., accepted: _Optional[bool] = ..., refusal: _Optional[str] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("marks", "pieces")
    MARKS_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    marks: bytes
    pieces: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, marks: _Optional[bytes] = ..., pieces: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("from_incarnation", "to_incarnation")
    FROM_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TO_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    from_incarnation: int
    to_incarnation: int
    def __init__(self, from_incarnation: _Optional[int] = ..., to_incarnation: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("from_incarnation", "to_incarnation", "first", "marks", "pieces")
    FROM_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TO_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    from_incarnation: int
    to_incarnation: int
    first: int
    marks: bytes
    pieces: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, from_incarnation: _Optional[int] = ..., to_incarnation: _Optional[int] = ..., first: _Optional[int] = ..., marks: _Optional[bytes] = ..., pieces: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("from_incarnation", "to_incarnation", "received")
    FROM_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TO_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    from_incarnation: int
    to_incarnation: int
    received: int
    def __init__(self, from_incarnation: _Optional[int] = ..., to_incarnation: _Optional[int] = ..., received: _Optional[int] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    def __init__(self, body: _Optional[bytes] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("body", "refusal")
    BODY_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    refusal: str
    def __init__(self, body: _Optional[bytes] = ..., refusal: _Optional[str] = ...) -> None: ...
