"""Reason codes of 5.0 and what MQTT 3.1.1 says in their place."""

import pytest

from node.mqtt import allowed_codes
from node.mqtt.reason_codes import FIRST_ERROR, ReasonCode, ReturnCode, return_code


@pytest.mark.parametrize("code", ReasonCode)
def test_each_refusal_has_a_return_code(code: ReasonCode) -> None:
    """Before 5.0 a CONNACK has five of them; only success is 0."""
    assert (return_code(code) is ReturnCode.ACCEPTED) == (code is ReasonCode.SUCCESS)


def test_return_codes() -> None:
    assert return_code(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION) is ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION
    assert return_code(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID) is ReturnCode.IDENTIFIER_REJECTED
    assert return_code(ReasonCode.BAD_USER_NAME_OR_PASSWORD) is ReturnCode.BAD_USER_NAME_OR_PASSWORD
    assert return_code(ReasonCode.NOT_AUTHORIZED) is ReturnCode.NOT_AUTHORIZED
    assert return_code(ReasonCode.SERVER_BUSY) is ReturnCode.SERVER_UNAVAILABLE


def test_each_code_may_be_sent_in_some_packet() -> None:
    used = set().union(
        *allowed_codes.ACKS.values(),
        allowed_codes.CONNACK,
        allowed_codes.SUBACK,
        allowed_codes.UNSUBACK,
        allowed_codes.DISCONNECT_BY_CLIENT,
        allowed_codes.DISCONNECT_BY_SERVER,
        allowed_codes.AUTH_BY_CLIENT,
        allowed_codes.AUTH_BY_SERVER,
    )
    assert used == set(ReasonCode)


def test_a_refusal_is_a_code_from_0x80_on() -> None:
    assert {code for code in allowed_codes.CONNACK if code < FIRST_ERROR} == {ReasonCode.SUCCESS}
    assert all(code < FIRST_ERROR for code in allowed_codes.AUTH_BY_CLIENT | allowed_codes.AUTH_BY_SERVER)
