from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Side(_message.Message):
    __slots__ = ("pull", "chunk", "probe", "report")
    PULL_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    pull: Pull
    chunk: Chunk
    probe: Probe
    report: Report
    def __init__(self, pull: _Optional[_Union[Pull, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ("request", "steps", "taken", "installed", "owed")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    request: int
    steps: _containers.RepeatedScalarFieldContainer[int]
    taken: int
    installed: int
    owed: int
    def __init__(self, request: _Optional[int] = ..., steps: _Optional[_Iterable[int]] = ..., taken: _Optional[int] = ..., installed: _Optional[int] = ..., owed: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("request", "runs", "is_end", "is_refused")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    IS_END_FIELD_NUMBER: _ClassVar[int]
    IS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    request: int
    runs: _containers.RepeatedScalarFieldContainer[bytes]
    is_end: bool
    is_refused: bool
    def __init__(self, request: _Optional[int] = ..., runs: _Optional[_Iterable[bytes]] = ..., is_end: _Optional[bool] = ..., is_refused: _Optional[bool] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("last", "disk")
    LAST_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    last: int
    disk: int
    def __init__(self, last: _Optional[int] = ..., disk: _Optional[int] = ...) -> None: ...
