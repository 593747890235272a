"""PySyncObj's messages, which are dictionaries, as protobuf: nothing that comes from a peer is ever unpickled.

`decode` takes only what this module's `encode` makes: the fields are typed, sizes are checked, and the messages by
which PySyncObj's own transport can be steered from outside (`timeout_now`, utility commands, parts of entries) do
not exist. Each message carries its sender's term when it was made, which PySyncObj leaves out where it matters.
Source: reliability §3.3 (`next_node_idx` carries no term), §3.6, §3.7 (the vocabulary).
"""

from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from cluster.metadata.entries import COMMAND_MAX_BYTES, from_entry, to_entry
from cluster.metadata.raft_pb2 import (
    AnswerVote,
    Append,
    Applied,
    AskVote,
    GrantVote,
    NextIndex,
    Piece,
    Propose,
    RaftMessage,
    Remembered,
    RequestVote,
    Resign,
)

CoreMessage: TypeAlias = dict[str, Any]
"""A message as PySyncObj makes and takes it."""

MESSAGE_MAX_BYTES: Final = 8 * 1024 * 1024
_INDEX_MAX: Final = 2**62
"""The limit of a log's length: beyond it arithmetic of others might overflow."""

VOTERS_ONLY: Final = frozenset(
    {"request_vote", "grant_vote", "ask_vote", "answer_vote", "append", "piece", "resign", "remembered"}
)
"""The kinds that observers may not send: these only propose, and tell how far they are (reliability §3.5: PySyncObj
has no role check).
"""

QUIET: Final = frozenset({"append", "next_index", "ask_vote"})
"""The kinds that often leave the core nothing to do; for these the core is asked whether they did."""


class BadMessage(Exception):
    """A peer sent bytes that are no message of Raft, or a message that it may not send; the text says which."""


class Received(NamedTuple):
    """A message of a peer.   kind: the field of `RaftMessage`.   term: of its sender when it was made."""

    kind: str
    term: int
    body: Any


def encode(term: int, message: CoreMessage) -> bytes:
    """Encode a message of the core. Raises ValueError for one that may not leave this node."""
    match message["type"]:
        case "request_vote":
            body = RaftMessage(
                request_vote=RequestVote(
                    last_index=message["last_log_index"], last_term=message["last_log_term"]
                )
            )
        case "response_vote":
            body = RaftMessage(grant_vote=GrantVote())
        case "append_entries" if "serialized" in message:
            body = RaftMessage(piece=_piece(message))
        case "append_entries" if "transmission" not in message:
            body = RaftMessage(append=_append(message))
        case "next_node_idx":
            body = RaftMessage(
                next_index=NextIndex(
                    next_index=message["next_node_idx"],
                    reset=message["reset"],
                    success=message["success"],
                )
            )
        case "apply_command":
            body = RaftMessage(propose=Propose(command=message["command"]))
        case other:
            raise ValueError(f"a message {other} is never sent")
    body.term = term
    return body.SerializeToString()


def encode_own(term: int, message: AskVote | AnswerVote | Applied | Resign | Propose | Remembered) -> bytes:
    """Encode a message that PySyncObj does not know."""
    body = RaftMessage(term=term)
    match message:
        case AskVote():
            body.ask_vote.CopyFrom(message)
        case AnswerVote():
            body.answer_vote.CopyFrom(message)
        case Applied():
            body.applied.CopyFrom(message)
        case Resign():
            body.resign.CopyFrom(message)
        case Propose():
            body.propose.CopyFrom(message)
        case Remembered():
            body.remembered.CopyFrom(message)
    return body.SerializeToString()


def decode(data: bytes) -> Received:
    """Decode a message of a peer. Raises BadMessage."""
    if len(data) > MESSAGE_MAX_BYTES:
        raise BadMessage(f"{len(data)} bytes are too many")
    message = RaftMessage()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise BadMessage("it cannot be decoded") from None
    kind = message.WhichOneof("body")
    if kind is None:
        raise BadMessage("it is of no kind that is known")
    if message.term > _INDEX_MAX:
        raise BadMessage(f"term {message.term} is too high")
    body = getattr(message, kind)
    if isinstance(body, Append):
        _check_append(body)
    if isinstance(body, Propose) and not 0 < len(body.command) <= COMMAND_MAX_BYTES:
        raise BadMessage(f"a command of {len(body.command)} bytes")
    return Received(kind, message.term, body)


def to_core(received: Received) -> CoreMessage:
    """Convert a message to PySyncObj's form. Only for the kinds that it knows, and not for pieces of snapshots."""
    term, body = received.term, received.body
    match body:
        case RequestVote():
            return {
                "type": "request_vote",
                "term": term,
                "last_log_index": body.last_index,
                "last_log_term": body.last_term,
            }
        case GrantVote():
            return {"type": "response_vote", "term": term}
        case Append():
            return {
                "type": "append_entries",
                "term": term,
                "commit_index": body.commit_index,
                "prevLogIdx": body.previous_index,
                "prevLogTerm": body.previous_term,
                "entries": [from_entry(entry) for entry in body.entries],
                "is_notice": body.is_notice,
            }
        case Piece():
            return {
                "type": "append_entries",
                "term": term,
                "commit_index": body.commit_index,
                "serialized": body,
            }
        case NextIndex():
            return {
                "type": "next_node_idx",
                "next_node_idx": body.next_index,
                "reset": body.reset,
                "success": body.success,
            }
        case Propose():
            return {"type": "apply_command", "command": body.command}
    raise AssertionError(received.kind)


def _append(message: CoreMessage) -> Append:
    return Append(
        commit_index=message["commit_index"],
        previous_index=message["prevLogIdx"] or 0,
        previous_term=message["prevLogTerm"] or 0,
        entries=[to_entry(entry) for entry in message["entries"]],
        is_notice=message["is_notice"],
    )


def _piece(message: CoreMessage) -> Piece:
    serialized = message["serialized"]
    if serialized is None:
        return Piece(commit_index=message["commit_index"])
    data, number, is_last = serialized
    return Piece(commit_index=message["commit_index"], data=data, number=number, is_last=is_last)


def _check_append(append: Append) -> None:
    """Raise BadMessage unless the entries are consecutive, and none is so large that the core would pass it on in
    parts.
    """
    expected = append.previous_index
    if max(append.commit_index, append.previous_index, append.previous_term) > _INDEX_MAX:
        raise BadMessage("an index or a term is too high")
    for entry in append.entries:
        expected += 1
        if entry.index != expected:
            raise BadMessage(f"entry {entry.index} where {expected} is due")
        if entry.term > _INDEX_MAX or not 0 < len(entry.command) <= COMMAND_MAX_BYTES:
            raise BadMessage(f"entry {entry.index} has {len(entry.command)} bytes in term {entry.term}")
