"""The table of channel states (amqp-behaviour §2.1, §2.2)."""

import pytest

from node.amqp.channel_state import ChannelState, Step, step
from node.amqp.errors import ProtocolError
from node.amqp.methods import (
    METHODS,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    Method,
    QueueDeclare,
)


@pytest.mark.parametrize(
    ("state", "method", "taken"),
    [
        (None, ChannelOpen, Step.OPEN),
        (ChannelState.OPEN, QueueDeclare, Step.HANDLE),
        (ChannelState.OPEN, BasicPublish, Step.HANDLE),
        (ChannelState.OPEN, ChannelClose, Step.CLOSE),
        (ChannelState.CLOSING, ChannelClose, Step.ANSWER_CLOSE),
        (ChannelState.CLOSING, ChannelCloseOk, Step.FORGET),
        (ChannelState.CLOSING, QueueDeclare, Step.IGNORE),
        (ChannelState.CLOSING, BasicPublish, Step.IGNORE),
    ],
)
def test_edges(state: ChannelState | None, method: type[Method], taken: Step) -> None:
    """§2.2: in CLOSING all but close and close-ok is dropped."""
    assert step(state, method) is taken


def refused(state: ChannelState | None, method: type[Method]) -> tuple[int, str]:
    with pytest.raises(ProtocolError) as raised:
        step(state, method)
    assert (raised.value.class_id, raised.value.method_id) == (method.class_id, method.method_id)
    return raised.value.code, raised.value.explanation


@pytest.mark.parametrize("state", ChannelState)
def test_second_open(state: ChannelState) -> None:
    """§2.1 row `second open on same number`, §2.2 `channel.open before close-ok`."""
    assert refused(state, ChannelOpen) == (504, "second 'channel.open' seen")


@pytest.mark.parametrize("method", [ChannelClose, ChannelCloseOk, QueueDeclare, BasicPublish])
def test_a_number_that_was_never_opened(method: type[Method]) -> None:
    """§2.1 row `any other method on a never-opened number`."""
    assert refused(None, method) == (504, "expected 'channel.open'")


def test_close_ok_that_nobody_asked_for() -> None:
    """§2.1 row `channel.close-ok on an open channel not closing`."""
    assert refused(ChannelState.OPEN, ChannelCloseOk) == (503, "unimplemented method")


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
@pytest.mark.parametrize("state", [None, *ChannelState])
def test_every_method_has_an_edge_or_an_error(state: ChannelState | None, method: type[Method]) -> None:
    try:
        taken: Step | ProtocolError = step(state, method)
    except ProtocolError as error:
        taken = error
    assert isinstance(taken, Step) or not taken.code.closes_channel_only
