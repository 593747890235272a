"""The table of connection states (amqp-behaviour §1.3, §1.7, §1.8)."""

import pytest

from node.amqp.connection_state import ACCEPTED, ConnectionState
from node.amqp.methods import (
    METHODS,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    Method,
)

S = ConnectionState


@pytest.mark.parametrize("state", ConnectionState)
def test_every_state_has_its_edges(state: ConnectionState) -> None:
    assert state in ACCEPTED


@pytest.mark.parametrize(
    ("state", "methods"),
    [
        (S.AWAIT_START_OK, {ConnectionStartOk}),
        (S.AWAIT_SECURE_OK, {ConnectionSecureOk}),
        (S.AWAIT_TUNE_OK, {ConnectionTuneOk}),
        (S.AWAIT_OPEN, {ConnectionOpen}),
        (S.OPEN, {ConnectionClose, ConnectionUpdateSecret}),
        (S.CLOSING, {ConnectionClose, ConnectionCloseOk}),
    ],
)
def test_what_may_come(state: ConnectionState, methods: set[type[Method]]) -> None:
    assert ACCEPTED[state] == methods


@pytest.mark.parametrize("state", [S.AWAIT_HEADER, S.CLOSED_BY_PEER, S.FAILED, S.CLOSED])
def test_where_nothing_may_come(state: ConnectionState) -> None:
    assert not ACCEPTED[state]


def test_only_methods_of_the_connection_class_have_edges() -> None:
    accepted = frozenset[type[Method]]().union(*ACCEPTED.values())
    assert {method.class_id for method in accepted} == {10}
    assert accepted <= set(METHODS.values())


def test_a_fault_during_the_handshake_gets_silence() -> None:
    """§1.3: which states count as handshake."""
    silent = {state for state in S if state.is_handshake}
    assert {S.AWAIT_HEADER, S.AWAIT_START_OK, S.AWAIT_SECURE_OK, S.AWAIT_TUNE_OK} <= silent
    assert silent.isdisjoint({S.OPEN, S.CLOSING, S.CLOSED_BY_PEER, S.FAILED, S.CLOSED})
