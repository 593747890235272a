"""The heartbeats of a client's connection: ours when nothing was sent, and the broker's silence.

Source: AMQP 0-9-1 §4.2.7; RabbitMQ's "Detecting Dead TCP Connections with Heartbeats".
"""

from typing import Final

CHECKS_PER_INTERVAL: Final = 2
SILENT_CHECKS_MAX: Final = 2 * CHECKS_PER_INTERVAL
"""The broker is gone when nothing came for two intervals."""


class ClientHeartbeat:
    """Tells when a heartbeat is due and when the broker is silent. A loop that stood still counts as one check.

    has_heard, has_spoken: set by the connection whenever octets come in or go out.
    """

    def __init__(self) -> None:
        self.has_heard = self.has_spoken = False
        self.next_check: float | None = None
        """The time of the next check; None if there are no heartbeats."""
        self._step_s = 0.0
        self._silent_checks = 0

    def start(self, interval_s: int, now: float) -> None:
        """Begin with the interval that was agreed; 0 for none."""
        if interval_s:
            self._step_s = interval_s / CHECKS_PER_INTERVAL
            self.next_check = now + self._step_s

    def stop(self) -> None:
        """Check nothing more."""
        self.next_check = None

    def check(self, now: float, *, is_excused: bool) -> tuple[bool, bool]:
        """Return whether a heartbeat is to be sent, and whether the broker is gone.

        is_excused: nothing was read, so its silence is our doing.
        """
        assert self.next_check is not None
        self._silent_checks = 0 if self.has_heard or is_excused else self._silent_checks + 1
        speaks = not self.has_spoken
        self.has_heard = self.has_spoken = False
        self.next_check = now + self._step_s
        return speaks, self._silent_checks >= SILENT_CHECKS_MAX
