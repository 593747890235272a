"""The client of one connection: what all its frames share, and the frames that answer them.

A frame that has to wait for the node is carried out by steps, a generator: it yields a wish, which is a function that
asks the session for something and is given a callback, and is sent the answer. No further frame is read meanwhile, so
frames are carried out in their order.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from node.amqp.constants import ReplyCode
from node.plugins import Refusal, Session
from node.stomp.errors import StompError
from node.stomp.frame import END, encode
from node.stomp.messages import Messages
from node.stomp.queues import Declaration
from node.stomp.settings import StompSettings
from node.stomp.subscriptions import Subscription
from node.stomp.transactions import Transactions
from node.stomp.versions import V1_0, VERSIONS, escape

Wish: TypeAlias = Callable[[Callable[..., None]], None]
Steps: TypeAlias = Generator[Wish, Any, None]

SUBSCRIPTIONS_MAX: Final = 10_000
"""The most subscriptions of one connection, those to its temporary queues among them; another one is refused."""

DECLARED_MAX: Final = 4096
"""The most names of queues that are known to be declared; at the next one all are forgotten, and declared again."""


class Ended(StompError):
    """The node has refused something and ends the connection.   message: the name of AMQP's code."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(code_name(refusal.code), refusal.text)


def code_name(code: int) -> str:
    """Return the name of a code, such as `not_found`."""
    return ReplyCode(code).name.lower()


def refusing(refusal: Refusal | None) -> None:
    """End the connection if there is a refusal. Raises: Ended."""
    if refusal is not None:
        raise Ended(refusal)


class StompClient:
    """A client.   write: sends bytes.   is_connected: it is logged in, and its vhost is open.

    declared: names of queues that this connection has declared.   prefetch: of its next subscription.
    """

    def __init__(self, session: Session, settings: StompSettings, write: Callable[[bytes], None]) -> None:
        self.session = session
        self.settings = settings
        self.write = write
        self.is_connected = False
        self.version = V1_0
        self.messages = Messages(V1_0, "")
        self.subscriptions: dict[str, Subscription] = {}
        self.transactions = Transactions()
        self.declared: set[str] = set()
        self.prefetch = 0
        self.ackers = 0
        """The number of subscriptions so far whose messages want an ACK."""

    def let_go(self) -> None:
        """Forget the connection, and what the client has begun: it is gone."""
        self.write = _drop
        self.subscriptions = {}
        self.transactions = Transactions()

    def check_subscriptions(self) -> None:
        """Check that there is room for one more subscription. Raises: StompError."""
        if len(self.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise StompError(
                "Too many subscriptions", f"A connection has at most {SUBSCRIPTIONS_MAX} subscriptions.\n"
            )

    # --- answers ---

    def receipt(self, receipt: str) -> None:
        """Tell the client that a frame has been carried out."""
        name = escape(receipt, self.version).encode("utf-8", "surrogateescape")
        self.write(b"RECEIPT\nreceipt-id:%b\n\n%b" % (name, END))

    def error(self, message: str, detail: str, more: Iterable[tuple[str, str]] = ()) -> None:
        """Tell the client of a fault."""
        headers = [
            ("message", message),
            ("content-type", "text/plain"),
            ("version", ",".join(VERSIONS)),
            *more,
        ]
        body = detail.encode("utf-8", "surrogateescape")
        self.write(encode("ERROR", headers, body, self.version))

    # --- wishes ---

    def declare(self, wanted: Declaration) -> Steps:
        """Declare a queue. Raises: Ended."""
        refusal = yield partial(
            self._declare_queue,
            wanted,
        )
        refusing(refusal)

    def _declare_queue(self, wanted: Declaration, on_done: Callable[[Refusal | None], None]) -> None:
        self.session.declare_queue(
            wanted.queue,
            on_done,
            durable=wanted.is_durable,
            exclusive=wanted.is_exclusive,
            auto_delete=wanted.is_auto_delete,
            arguments=wanted.arguments,
        )

    def declare_once(self, wanted: Declaration) -> Steps:
        """Declare the queue of a destination unless this connection has done so. Raises: Ended."""
        if wanted.queue not in self.declared:
            yield from self.declare(wanted)
            if len(self.declared) >= DECLARED_MAX:
                self.declared.clear()
            self.declared.add(wanted.queue)


def _drop(data: bytes) -> None:
    """Drop bytes for a client that is gone."""
