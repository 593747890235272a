"""A sequence of requests to an upstream is a generator: it yields a request and gets the answer, or an exception.

    answer = yield Call(COMMANDS, QueueBind(…))       raises RefusedCall if the upstream closes the channel for it
    yield from calls.aside(ExchangeDeclare(…))        the same, on a channel that lives for this request alone

A refusal closes its channel, so what may well be refused is asked aside.
"""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

from node.amqp.methods import Method
from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Answered, ChannelClosed

ASIDE_FIRST: Final = 3
ASIDE_LAST: Final = 18
"""The channels for requests that are asked aside. One that is being closed cannot be used again at once."""


class Call(NamedTuple):
    """A request on a channel."""

    channel: int
    method: Method


class RefusedCall(Exception):
    """The upstream has closed a channel, for its code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


Steps: TypeAlias = Generator[Call, Answered, None]


class UpstreamCalls:
    """Carries out sequences of requests on one connection, one sequence at a time.

    on_refused: called with a refusal that the sequence does not take.
    """

    def __init__(self, connection: ClientConnection, on_refused: Callable[[RefusedCall], None]) -> None:
        self._connection = connection
        self._on_refused = on_refused
        self._steps: Steps | None = None
        self._awaited: Call | None = None
        self._aside: set[int] = set()
        self._next_aside = ASIDE_FIRST

    @property
    def is_busy(self) -> bool:
        """True if a sequence is under way."""
        return self._steps is not None

    @property
    def awaited(self) -> Method | None:
        """The request that has no answer yet."""
        return None if self._awaited is None else self._awaited.method

    def begin(self, steps: Steps) -> None:
        """Carry out a sequence. None is under way."""
        assert self._steps is None
        self._steps = steps
        self._go_on(lambda: next(steps))

    def answered(self, event: Answered) -> bool:
        """Take an answer; True if it belongs to the sequence, or to a channel of its."""
        awaited = self._awaited
        if awaited is not None and event.request is awaited.method:
            steps = self._steps
            assert steps is not None
            self._go_on(lambda: steps.send(event))
            return True
        if event.channel in self._aside:
            if not self._connection.is_channel_open(event.channel):
                self._aside.discard(event.channel)
            return True
        return False

    def closed(self, event: ChannelClosed) -> bool:
        """Take the end of a channel; True if the sequence waited for an answer on it."""
        self._aside.discard(event.channel)
        awaited, steps = self._awaited, self._steps
        if awaited is None or steps is None or awaited.channel != event.channel:
            return False
        refusal = RefusedCall(event.code, event.text)
        self._go_on(lambda: steps.throw(refusal))
        return True

    def stop(self) -> None:
        """Drop the sequence."""
        self._steps = self._awaited = None

    def _go_on(self, step: Callable[[], Call]) -> None:
        self._awaited = None
        try:
            call = step()
        except StopIteration:
            self._steps = None
        except RefusedCall as refusal:
            self._steps = None
            self._on_refused(refusal)
        else:
            self._awaited = call
            self._connection.call(call.channel, call.method)

    def aside(self, method: Method) -> Steps:
        """Ask on a channel of its own. Raises: RefusedCall."""
        channel = self._free_channel()
        self._aside.add(channel)
        self._connection.open_channel(channel)
        yield Call(channel, method)
        self._connection.close_channel(channel)

    def _free_channel(self) -> int:
        while self._next_aside in self._aside or self._connection.is_channel_open(self._next_aside):
            self._next_aside = ASIDE_FIRST if self._next_aside == ASIDE_LAST else self._next_aside + 1
            assert len(self._aside) <= ASIDE_LAST - ASIDE_FIRST, "channels are closed faster than that"
        found = self._next_aside
        self._next_aside = ASIDE_FIRST if found == ASIDE_LAST else found + 1
        return found
