"""Requests between nodes, beside the streams between them, are JSON objects, and each has an answer.

    {"do": "join", …} ─► {"result": …}   or   {"error": {"exit_code": 70, "text": "…"}}

All of it comes from other processes: anything malformed is refused by a ControlError that says so.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from node.catalogue.records import MemberType
from node.io.control import EX_USAGE, ControlError

NAME_CHARACTERS_MAX: Final = 255

Body = dict[str, Any]


class Applicant(NamedTuple):
    """The data about a node that asks to join or to leave, or that is a member."""

    name: str
    address: str
    node_id: str
    type: MemberType


def encode(body: Mapping[str, Any]) -> bytes:
    """Encode a request or an answer."""
    return json.dumps(body).encode()


def decode(data: bytes) -> Body:
    """Decode a request or an answer. Raises: ControlError."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise ControlError(EX_USAGE, "a message between nodes is no JSON") from None
    if not isinstance(body, dict):
        raise ControlError(EX_USAGE, "a message between nodes is not a JSON object")
    return body


def failure(error: ControlError) -> bytes:
    """Encode the answer for an error."""
    return encode({"error": {"exit_code": error.exit_code, "text": error.text}})


def result(data: bytes) -> Any:
    """Return the result in an answer. Raises: ControlError: the other node's error, or that the answer is malformed."""
    body = decode(data)
    error = body.get("error")
    if isinstance(error, dict):
        code = error.get("exit_code")
        raise ControlError(code if type(code) is int else EX_USAGE, str(error.get("text")))
    if "result" not in body:
        raise ControlError(EX_USAGE, "an answer between nodes is empty")
    return body["result"]


def text(body: Mapping[str, Any], key: str) -> str:
    """Return a text field of a message, of at most `NAME_CHARACTERS_MAX`. Raises: ControlError."""
    value = body.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise ControlError(EX_USAGE, f"a message between nodes lacks '{key}'")
    return value


def member_type(value: object) -> MemberType:
    """Check that a value is a type of member, and return it. Raises: ControlError."""
    for known in get_args(MemberType):
        if value == known:
            found: MemberType = known
            return found
    raise ControlError(EX_USAGE, f"{value!r} is no type of node")


def applicant(body: Mapping[str, Any]) -> Applicant:
    """Decode the data about one node. Raises: ControlError."""
    return Applicant(
        text(body, "name"), text(body, "address"), text(body, "node_id"), member_type(body.get("type"))
    )


def applicants(values: object) -> tuple[Applicant, ...]:
    """Decode a list of nodes. Raises: ControlError."""
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise ControlError(EX_USAGE, "a message between nodes has no list of members")
    return tuple(applicant(each) for each in values)
