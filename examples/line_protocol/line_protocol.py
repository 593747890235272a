"""A plug-in for Fluffle: a protocol of lines, to show how one is built.

LOGIN name password vhost   ─► OK, or ERROR and why        SEND queue text   ─► OK once the message is confirmed
LISTEN queue                ─► OK, then MESSAGE tag text   DONE tag             settles a message
"""

from collections.abc import Callable, Sequence

from node.plugins import (
    Delivery,
    Plugin,
    Properties,
    ProtocolConnection,
    ProtocolListener,
    Refusal,
    Session,
)

LINE_MAX_BYTES = 64 * 1024


class LineConnection(ProtocolConnection):
    """One client."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rest = b""
        self.is_open = False

    def received(self, data: bytes) -> None:
        """Carry out all whole lines; the rest waits for more."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > LINE_MAX_BYTES:
            self.fail("the line is too long")
            return
        for line in lines:
            self.carry_out(line.decode("utf-8", "replace").rstrip("\r"))

    def carry_out(self, line: str) -> None:
        """Carry out one line."""
        match line.split(" ", 2):
            case ["LOGIN", user, rest] if not self.is_open and " " in rest:
                password, vhost = rest.split(" ", 1)
                self.session.log_in(user, password.encode(), self.then(lambda: self.open(vhost)))
            case ["SEND", queue, text] if self.is_open:
                persistent = Properties(delivery_mode=2)
                self.session.publish("", queue, persistent, text.encode(), self.confirmed)
            case ["LISTEN", queue] if self.is_open:
                self.session.declare_queue(queue, self.then(lambda: self.listen(queue)), durable=True)
            case ["DONE", tag] if self.is_open and tag.isdigit():
                self.session.ack(int(tag))
            case _:
                self.fail("not understood")

    def open(self, vhost: str) -> None:
        """Go on after the login."""
        self.session.open(vhost, self.then(self.opened))

    def opened(self) -> None:
        """Say that the client may begin."""
        self.is_open = True
        self.say("OK")

    def listen(self, queue: str) -> None:
        """Go on after the declaration."""
        self.session.consume(queue, queue, lambda: self.say("OK"), prefetch=100)

    def confirmed(self, is_safe: bool) -> None:
        """Say what became of a message."""
        self.say("OK" if is_safe else "ERROR the message was not taken")

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Say all messages of a batch at once."""
        lines = (b"MESSAGE %d %s\n" % (each.tag, each.body) for each in deliveries)
        self.session.write(b"".join(lines))

    def ended(self, reason: Refusal) -> None:
        """Say why the node ends the connection."""
        self.say(f"ERROR {reason.text}")

    def then(self, go_on: Callable[[], None]) -> Callable[[Refusal | None], None]:
        """Return a callback that goes on unless there is a refusal."""
        return lambda refusal: go_on() if refusal is None else self.fail(refusal.text)

    def say(self, text: str) -> None:
        """Send a line."""
        self.session.write(text.encode() + b"\n")

    def fail(self, reason: str) -> None:
        """End the connection with a reason."""
        self.say(f"ERROR {reason}")
        self.session.close()


class LineListener(ProtocolListener):
    """The protocol's listener."""

    name = "line"
    protocol = "LINE 1.0"
    default_port = 9999

    def connection(self, session: Session) -> ProtocolConnection:
        """Return the connection of a new client."""
        return LineConnection(session)


PLUGIN = Plugin("line_protocol", "1.0", "a protocol of lines", listeners=(LineListener,))
