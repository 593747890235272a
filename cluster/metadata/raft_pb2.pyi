from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Entry(_message.Message):
    __slots__ = ("index", "term", "command")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    command: bytes
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ..., command: _Optional[bytes] = ...) -> None: ...

class RequestVote(_message.Message):
    __slots__ = ("last_index", "last_term")
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    last_index: int
    last_term: int
    def __init__(self, last_index: _Optional[int] = ..., last_term: _Optional[int] = ...) -> None: ...

class GrantVote(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AskVote(_message.Message):
    __slots__ = ("term", "last_index", "last_term")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_index: int
    last_term: int
    def __init__(self, term: _Optional[int] = ..., last_index: _Optional[int] = ..., last_term: _Optional[int] = ...) -> None: ...

class AnswerVote(_message.Message):
    __slots__ = ("term", "is_granted")
    TERM_FIELD_NUMBER: _ClassVar[int]
    IS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    term: int
    is_granted: bool
    def __init__(self, term: _Optional[int] = ..., is_granted: _Optional[bool] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("commit_index", "previous_index", "previous_term", "entries", "is_notice")
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    IS_NOTICE_FIELD_NUMBER: _ClassVar[int]
    commit_index: int
    previous_index: int
    previous_term: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    is_notice: bool
    def __init__(self, commit_index: _Optional[int] = ..., previous_index: _Optional[int] = ..., previous_term: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., is_notice: _Optional[bool] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("commit_index", "data", "number", "is_last")
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    commit_index: int
    data: bytes
    number: int
    is_last: bool
    def __init__(self, commit_index: _Optional[int] = ..., data: _Optional[bytes] = ..., number: _Optional[int] = ..., is_last: _Optional[bool] = ...) -> None: ...

class NextIndex(_message.Message):
    __slots__ = ("next_index", "reset", "success")
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    next_index: int
    reset: bool
    success: bool
    def __init__(self, next_index: _Optional[int] = ..., reset: _Optional[bool] = ..., success: _Optional[bool] = ...) -> None: ...

class Propose(_message.Message):
    __slots__ = ("command",)
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    def __init__(self, command: _Optional[bytes] = ...) -> None: ...

class Applied(_message.Message):
    __slots__ = ("index", "receiver", "member")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    index: int
    receiver: str
    member: str
    def __init__(self, index: _Optional[int] = ..., receiver: _Optional[str] = ..., member: _Optional[str] = ...) -> None: ...

class Resign(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Remembered(_message.Message):
    __slots__ = ("index",)
    INDEX_FIELD_NUMBER: _ClassVar[int]
    index: int
    def __init__(self, index: _Optional[int] = ...) -> None: ...

class RaftMessage(_message.Message):
    __slots__ = ("term", "request_vote", "grant_vote", "ask_vote", "answer_vote", "append", "piece", "next_index", "propose", "applied", "resign", "remembered")
    TERM_FIELD_NUMBER: _ClassVar[int]
    REQUEST_VOTE_FIELD_NUMBER: _ClassVar[int]
    GRANT_VOTE_FIELD_NUMBER: _ClassVar[int]
    ASK_VOTE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_VOTE_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    PROPOSE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    RESIGN_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FIELD_NUMBER: _ClassVar[int]
    term: int
    request_vote: RequestVote
    grant_vote: GrantVote
    ask_vote: AskVote
    answer_vote: AnswerVote
    append: Append
    piece: Piece
    next_index: NextIndex
    propose: Propose
    applied: Applied
    resign: Resign
    remembered: Remembered
    def __init__(self, term: _Optional[int] = ..., request_vote: _Optional[_Union[RequestVote, _Mapping]] = ..., grant_vote: _Optional[_Union[GrantVote, _Mapping]] = ..., ask_vote: _Optional[_Union[AskVote, _Mapping]] = ..., answer_vote: _Optional[_Union[AnswerVote, _Mapping]] = ..., append: _Optional[_Union[Append, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., next_index: _Optional[_Union[NextIndex, _Mapping]] = ..., propose: _Optional[_Union[Propose, _Mapping]] = ..., applied: _Optional[_Union[Applied, _Mapping]] = ..., resign: _Optional[_Union[Resign, _Mapping]] = ..., remembered: _Optional[_Union[Remembered, _Mapping]] = ...) -> None: ...

class SnapshotHead(_message.Message):
    __slots__ = ("previous", "last", "voters")
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    previous: Entry
    last: Entry
    voters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, previous: _Optional[_Union[Entry, _Mapping]] = ..., last: _Optional[_Union[Entry, _Mapping]] = ..., voters: _Optional[_Iterable[str]] = ...) -> None: ...

class SnapshotPiece(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, items: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SnapshotEnd(_message.Message):
    __slots__ = ("pieces",)
    PIECES_FIELD_NUMBER: _ClassVar[int]
    pieces: int
    def __init__(self, pieces: _Optional[int] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("term", "vote", "commit_index")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    term: int
    vote: str
    commit_index: int
    def __init__(self, term: _Optional[int] = ..., vote: _Optional[str] = ..., commit_index: _Optional[int] = ...) -> None: ...

class Truncation(_message.Message):
    __slots__ = ("from_index",)
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    from_index: int
    def __init__(self, from_index: _Optional[int] = ...) -> None: ...

class JournalRecord(_message.Message):
    __slots__ = ("append_at", "head", "piece", "end", "state", "entry", "truncation")
    APPEND_AT_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    append_at: int
    head: SnapshotHead
    piece: SnapshotPiece
    end: SnapshotEnd
    state: State
    entry: Entry
    truncation: Truncation
    def __init__(self, append_at: _Optional[int] = ..., head: _Optional[_Union[SnapshotHead, _Mapping]] = ..., piece: _Optional[_Union[SnapshotPiece, _Mapping]] = ..., end: _Optional[_Union[SnapshotEnd, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ..., entry: _Optional[_Union[Entry, _Mapping]] = ..., truncation: _Optional[_Union[Truncation, _Mapping]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("node", "session", "number", "commands")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    node: str
    session: str
    number: int
    commands: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, node: _Optional[str] = ..., session: _Optional[str] = ..., number: _Optional[int] = ..., commands: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("node", "session", "number", "former_sessions")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FORMER_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    node: str
    session: str
    number: int
    former_sessions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., session: _Optional[str] = ..., number: _Optional[int] = ..., former_sessions: _Optional[_Iterable[str]] = ...) -> None: ...

class SnapshotItem(_message.Message):
    __slots__ = ("command", "client")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    client: Client
    def __init__(self, command: _Optional[bytes] = ..., client: _Optional[_Union[Client, _Mapping]] = ...) -> None: ...
