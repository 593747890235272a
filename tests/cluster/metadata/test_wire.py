"""Messages of Raft on the wire: reliability §3.6, §3.7."""

import pytest

from cluster.metadata.raft_pb2 import Append, AskVote, Entry, Propose, RaftMessage
from cluster.metadata.wire import (
    MESSAGE_MAX_BYTES,
    BadMessage,
    CoreMessage,
    decode,
    encode,
    encode_own,
    to_core,
)

MESSAGES: list[CoreMessage] = [
    {"type": "request_vote", "term": 7, "last_log_index": 12, "last_log_term": 6},
    {"type": "response_vote", "term": 7},
    {
        "type": "append_entries",
        "term": 7,
        "commit_index": 11,
        "prevLogIdx": 10,
        "prevLogTerm": 5,
        "is_notice": True,
        "entries": [(b"\0a", 11, 6), (b"\1", 12, 7)],
    },
    {"type": "next_node_idx", "next_node_idx": 13, "reset": False, "success": True},
    {"type": "apply_command", "command": b"\0x"},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message["type"])
def test_the_vocabulary_of_the_core(message: CoreMessage) -> None:
    received = decode(encode(7, message))
    assert received.term == 7
    assert to_core(received) == message


@pytest.mark.parametrize("kind", ["timeout_now", "apply_command_response", "status", "add"])
def test_what_may_not_be_said_cannot(kind: str) -> None:
    with pytest.raises(ValueError, match="is never sent"):
        encode(1, {"type": kind})


def test_parts_of_entries_are_never_sent() -> None:
    """A command whose size is near a multiple of 64 KiB raises in its receiver (reliability §3.3)."""
    with pytest.raises(ValueError, match="is never sent"):
        encode(1, {"type": "append_entries", "transmission": "start", "data": b""})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff", "cannot be decoded"),
        (b"", "no kind"),
        (b"x" * (MESSAGE_MAX_BYTES + 1), "too many"),
        (encode_own(2**63, AskVote()), "too high"),
        (encode_own(1, Propose()), "a command of 0 bytes"),
        (encode_own(1, Propose(command=b"x" * 2_000_000)), "a command of 2000000 bytes"),
        (
            RaftMessage(
                append=Append(previous_index=4, entries=[Entry(index=6, command=b"x")])
            ).SerializeToString(),
            "entry 6 where 5 is due",
        ),
        (
            RaftMessage(append=Append(previous_index=4, entries=[Entry(index=5)])).SerializeToString(),
            "entry 5 has 0 bytes",
        ),
    ],
)
def test_bad_messages_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        decode(data)
