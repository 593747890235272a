"""Work of a session that waits for the node: a generator that yields what it asks, and is sent the answer.

    def steps() -> Steps[int]:
        refusal = yield lambda on_done: session.declare_queue("q", on_done)

An answer may come at once or in a later turn.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from node.mqtt.errors import MqttError
from node.mqtt.reason_codes import ReasonCode
from node.plugins import Refusal

Ask: TypeAlias = Callable[[Callable[[Any], None]], None]

T = TypeVar("T")
Steps: TypeAlias = Generator[Ask, Any, T]

_REASONS = {
    403: ReasonCode.NOT_AUTHORIZED,
    404: ReasonCode.NOT_AUTHORIZED,
    405: ReasonCode.QUOTA_EXCEEDED,
    530: ReasonCode.NOT_AUTHORIZED,
    320: ReasonCode.SERVER_SHUTTING_DOWN,
}
"""Reason codes for the codes of AMQP; any other is an error of ours or of the configuration."""


class NodeRefused(Exception):
    """The node refuses what a session asked for."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal

    @property
    def reason(self) -> ReasonCode:
        """The reason code of MQTT."""
        return reason_of(self.refusal)


def reason_of(refusal: Refusal) -> ReasonCode:
    """Return the reason code that tells a client of a refusal."""
    return _REASONS.get(refusal.code, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)


def granted(ask: Ask) -> Steps[None]:
    """Ask, and wait. Raises: NodeRefused."""
    refusal = yield ask
    if refusal is not None:
        raise NodeRefused(refusal)


class Work:
    """One generator at work.   on_done: called at its end.   on_failed: called instead if it has raised."""

    def __init__(
        self,
        steps: Steps[None],
        on_done: Callable[[], None],
        on_failed: Callable[[MqttError], None],
    ) -> None:
        self._steps = steps
        self._on_done = on_done
        self._on_failed = on_failed
        self._answers: deque[Any] = deque()
        self._is_busy = False

    def go_on(self, answer: Any = None) -> None:
        """Begin, or go on with an answer."""
        self._answers.append(answer)
        if self._is_busy:
            return  # the answer came at once, while it was asked for
        self._is_busy = True
        try:
            while self._answers:
                ask = self._steps.send(self._answers.popleft())
                ask(self.go_on)
        except StopIteration:
            self._on_done()
        except MqttError as error:
            self._on_failed(error)
        except NodeRefused as error:
            self._on_failed(MqttError(error.reason, error.refusal.text))
        finally:
            self._is_busy = False

    def stop(self) -> None:
        """Give up: the connection is gone."""
        if not self._is_busy:
            self._steps.close()
