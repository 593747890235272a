"""How a client says who it is: PLAIN, AMQPLAIN, EXTERNAL and the demo mechanism of two steps.

A mechanism reads the client's response and names who asks to be let in; whether they are is
`access.check_login`'s to say.
Source: amqp-behaviour §1.3.
"""

from typing import Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import decode_table

CR_DEMO_CHALLENGE: Final = b"Please tell me your password"
_CR_DEMO_ANSWER: Final = b"My password is "


class Credentials(NamedTuple):
    """Who a client claims to be.   password: None where a certificate has proved it."""

    user: str
    password: bytes | None


def plain(response: bytes) -> Credentials:
    """`NUL user NUL password` and nothing else: no authorisation id in front, no further field."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise _malformed("PLAIN", response)
    return Credentials(_text(parts[1]), parts[2])


def amqplain(response: bytes) -> Credentials:
    """A field table without its length in front, with LOGIN and PASSWORD."""
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
    """The second step of RABBIT-CR-DEMO."""
    if not response.startswith(_CR_DEMO_ANSWER):
        raise _malformed("RABBIT-CR-DEMO", response)
    return Credentials(user, response[len(_CR_DEMO_ANSWER) :])


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _malformed(mechanism: str, response: bytes) -> ProtocolError:
    """Never shown to a client, and without the response, which may hold a password."""
    return ProtocolError(ReplyCode.SYNTAX_ERROR, f"malformed {mechanism} response of {len(response)} bytes")
