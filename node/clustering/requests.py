"""What one node asks of another beside the streams between them: JSON objects, each with an answer.

    {"do": "join", …} ─► {"result": …}   or   {"error": {"exit_code": 70, "text": "…"}}

All of it comes from other processes: what is not as it should be is refused by a ControlError that says so.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from node.catalogue.records import MemberType
from node.io.control import EX_USAGE, ControlError

NAME_CHARACTERS_MAX: Final = 255

Body = dict[str, Any]


class Applicant(NamedTuple):
    """A node that asks to be taken in, or to be let go."""

    name: str
    address: str
    node_id: str
    type: MemberType


def encode(body: Mapping[str, Any]) -> bytes:
    """A request or an answer."""
    return json.dumps(body).encode()


def decode(data: bytes) -> Body:
    """A request or an answer. Raises: ControlError."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise ControlError(EX_USAGE, "a message between nodes is no JSON") from None
    if not isinstance(body, dict):
        raise ControlError(EX_USAGE, "a message between nodes is no JSON object")
    return body


def failure(error: ControlError) -> bytes:
    """The answer that says why not."""
    return encode({"error": {"exit_code": error.exit_code, "text": error.text}})


def result(data: bytes) -> Any:
    """What an answer says. Raises: ControlError, the other node's or for an answer that is none."""
    body = decode(data)
    error = body.get("error")
    if isinstance(error, dict):
        code = error.get("exit_code")
        raise ControlError(code if type(code) is int else EX_USAGE, str(error.get("text")))
    if "result" not in body:
        raise ControlError(EX_USAGE, "an answer between nodes says nothing")
    return body["result"]


def text(body: Mapping[str, Any], key: str) -> str:
    """A text of a message. Raises: ControlError."""
    value = body.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise ControlError(EX_USAGE, f"a message between nodes lacks '{key}'")
    return value


def member_type(value: object) -> MemberType:
    """Raises: ControlError."""
    for known in get_args(MemberType):
        if value == known:
            found: MemberType = known
            return found
    raise ControlError(EX_USAGE, f"{value!r} is no type of node")


def applicant(body: Mapping[str, Any]) -> Applicant:
    """Raises: ControlError."""
    return Applicant(
        text(body, "name"), text(body, "address"), text(body, "node_id"), member_type(body.get("type"))
    )


def applicants(values: object) -> tuple[Applicant, ...]:
    """Raises: ControlError."""
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise ControlError(EX_USAGE, "a message between nodes has no list of members")
    return tuple(applicant(each) for each in values)
