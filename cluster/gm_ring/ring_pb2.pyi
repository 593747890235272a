from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("parcels",)
    PARCELS_FIELD_NUMBER: _ClassVar[int]
    parcels: _containers.RepeatedCompositeFieldContainer[Parcel]
    def __init__(self, parcels: _Optional[_Iterable[_Union[Parcel, _Mapping]]] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ("uid", "sender", "receiver", "version", "edge", "activity", "catch_up", "side")
    UID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    uid: str
    sender: int
    receiver: int
    version: int
    edge: int
    activity: News
    catch_up: News
    side: bytes
    def __init__(self, uid: _Optional[str] = ..., sender: _Optional[int] = ..., receiver: _Optional[int] = ..., version: _Optional[int] = ..., edge: _Optional[int] = ..., activity: _Optional[_Union[News, _Mapping]] = ..., catch_up: _Optional[_Union[News, _Mapping]] = ..., side: _Optional[bytes] = ...) -> None: ...

class News(_message.Message):
    __slots__ = ("items", "is_cut")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    IS_CUT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    is_cut: bool
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., is_cut: _Optional[bool] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ("origin", "upto", "payloads", "ack", "mark")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    origin: int
    upto: int
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    ack: int
    mark: int
    def __init__(self, origin: _Optional[int] = ..., upto: _Optional[int] = ..., payloads: _Optional[_Iterable[bytes]] = ..., ack: _Optional[int] = ..., mark: _Optional[int] = ...) -> None: ...
