"""SASL responses (amqp-behaviour §1.3)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, encode_table, long, longstr
from node.client.sasl import Credentials, amqplain, cr_demo_answer, plain


def table_body(value: Table) -> bytes:
    """A table without its length, as AMQPLAIN wants it."""
    return encode_table(value)[4:]


def test_plain() -> None:
    """§1.3 row `PLAIN response`."""
    assert plain(b"\0guest\0secret") == Credentials("guest", b"secret")
    assert plain(b"\0\0") == Credentials("", b"")
    assert plain(b"\0\xc3\xa9\0\xff") == Credentials("é", b"\xff")


@pytest.mark.parametrize(
    "response", [b"", b"\0", b"\0guest", b"guest\0guest", b"authzid\0guest\0guest", b"\0a\0b\0", b"\0a\0b\0c"]
)
def test_malformed_plain(response: bytes) -> None:
    """§1.3 row `PLAIN malformed`: an authorisation id or a further field is invalid too."""
    with pytest.raises(ProtocolError) as raised:
        plain(response)
    assert raised.value.explanation == f"malformed PLAIN response of {len(response)} bytes"


def test_amqplain() -> None:
    """§1.3 row `AMQPLAIN`."""
    response = table_body({"LOGIN": longstr("guest"), "PASSWORD": longstr("secret"), "extra": long(1)})
    assert amqplain(response) == Credentials("guest", b"secret")


@pytest.mark.parametrize(
    "response",
    [
        b"",
        table_body({"LOGIN": longstr("guest")}),
        table_body({"PASSWORD": longstr("guest")}),
        table_body({"LOGIN": longstr("guest"), "PASSWORD": long(1)}),
        table_body({"LOGIN": long(1), "PASSWORD": longstr("guest")}),
        table_body({"LOGIN": longstr("guest"), "PASSWORD": longstr("guest")})[:-1],
        encode_table({"LOGIN": longstr("guest"), "PASSWORD": longstr("guest")}),
    ],
)
def test_malformed_amqplain(response: bytes) -> None:
    """§1.3 row `AMQPLAIN missing field / bad table`."""
    with pytest.raises(ProtocolError, match="malformed AMQPLAIN response"):
        amqplain(response)


def test_the_second_step_of_cr_demo() -> None:
    """§1.3 row `RABBIT-CR-DEMO`."""
    assert cr_demo_answer("guest", b"My password is secret") == Credentials("guest", b"secret")
    with pytest.raises(ProtocolError, match="malformed RABBIT-CR-DEMO response"):
        cr_demo_answer("guest", b"secret")


@pytest.mark.parametrize("mechanism", [plain, amqplain, lambda response: cr_demo_answer("u", response)])
@given(st.binary(max_size=40))
def test_any_response_is_read_or_refused_and_never_repeated(
    mechanism: Callable[[bytes], Credentials], response: bytes
) -> None:
    """The response may hold a password: it must not get into an error text, and so into a log."""
    text = f" response of {len(response)} bytes"
    try:
        mechanism(response)
    except ProtocolError as error:
        text = error.explanation
    assert text.endswith(f" response of {len(response)} bytes")
