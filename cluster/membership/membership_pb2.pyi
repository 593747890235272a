from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Heartbeat(_message.Message):
    __slots__ = ("incarnation", "sent_s", "leader", "reachable", "status_version", "status", "lacks_status")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SENT_S_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LACKS_STATUS_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    sent_s: float
    leader: str
    reachable: _containers.RepeatedScalarFieldContainer[str]
    status_version: int
    status: bytes
    lacks_status: bool
    def __init__(self, incarnation: _Optional[int] = ..., sent_s: _Optional[float] = ..., leader: _Optional[str] = ..., reachable: _Optional[_Iterable[str]] = ..., status_version: _Optional[int] = ..., status: _Optional[bytes] = ..., lacks_status: _Optional[bool] = ...) -> None: ...
