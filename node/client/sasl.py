"""SASL mechanisms, by which a client gives its credentials: PLAIN, AMQPLAIN and the demo mechanism of two steps.

A mechanism reads user and password from the client's response; `access.check_login` decides whether they are right.
EXTERNAL has no response to read.
Source: amqp-behaviour §1.3.
"""

from typing import Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import decode_table

CR_DEMO_CHALLENGE: Final = b"Please tell me your password"
_CR_DEMO_ANSWER: Final = b"My password is "


class Credentials(NamedTuple):
    """The user that a client claims to be.   password: None where a certificate has proved it."""

    user: str
    password: bytes | None


def plain(response: bytes) -> Credentials:
    """Read a response of PLAIN: `NUL user NUL password`, with no authorisation id in front and no further field."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise _malformed("PLAIN", response)
    return Credentials(_text(parts[1]), parts[2])


def amqplain(response: bytes) -> Credentials:
    """Read a response of AMQPLAIN: a field table without its length in front, with LOGIN and PASSWORD."""
    try:
        table, _ = decode_table(len(response).to_bytes(4) + response)
    except ProtocolError:
        raise _malformed("AMQPLAIN", response) from None
    login, password = table.get("LOGIN"), table.get("PASSWORD")
    if (
        login is None
        or password is None
        or not isinstance(login.value, bytes)
        or not isinstance(password.value, bytes)
    ):
        raise _malformed("AMQPLAIN", response)
    return Credentials(_text(login.value), password.value)


def cr_demo_answer(user: str, response: bytes) -> Credentials:
    """Read the client's answer in the second step of RABBIT-CR-DEMO."""
    if not response.startswith(_CR_DEMO_ANSWER):
        raise _malformed("RABBIT-CR-DEMO", response)
    return Credentials(user, response[len(_CR_DEMO_ANSWER) :])


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _malformed(mechanism: str, response: bytes) -> ProtocolError:
    """Return the error for a malformed response. It is never shown to a client, and leaves out the password."""
    return ProtocolError(ReplyCode.SYNTAX_ERROR, f"malformed {mechanism} response of {len(response)} bytes")
