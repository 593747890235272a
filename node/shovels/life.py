"""One shovel on one node, for as long as it is to run here: connect, run, fail, wait, connect again.

    source ─► destination ─► Session ─► running ─┬─► failed: the reason, a wait that grows to a bound, from the start
                                                 ├─► complete: the shovel deletes itself
                                                 └─► stop: what is under way is confirmed first

All I/O is behind `ShovelHost`. What operators see is `status`.
Source: RabbitMQ 3.10.8, `rabbit_shovel_worker` and `rabbit_shovel_dyn_worker_sup`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from node.amqp_client.backoff import LONGEST_S, Backoff
from node.amqp_client.events import Closed, Event, Opened
from node.amqp_client.uri import AmqpUri, InvalidUri, parse, without_credentials
from node.shovels import failure
from node.shovels.definition import ShovelDefinition
from node.shovels.failure import Failure, Side
from node.shovels.headers import Rewriter
from node.shovels.session import Counters, Link, Session
from node.shovels.status import ShovelStatus, State, ends_of

DRAIN_S: Final = 1.0
"""The time in which messages that are under way are to be confirmed when a shovel stops: else they come again."""

WAIT_MIN_S: Final = 0.1
"""The least wait after a failure."""

OnEvents = Callable[[list[Event]], None]


class ShovelHost(Protocol):
    """The node, as a shovel uses it."""

    @property
    def wall_s(self) -> float:
        """The time of day in seconds since 1970."""

    @property
    def cluster(self) -> str:
        """The name of the cluster here."""

    def random(self) -> float:
        """Return a random number from 0 to below 1."""

    def dial(self, uri: AmqpUri, name: str, on_events: OnEvents, on_writable: Callable[[], None]) -> Link:
        """Return a connection to another broker, or to this one for a URI without a host."""

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in so many seconds. Returns: a function that cancels it."""

    def log(self, level: str, text: str) -> None:
        """Log a line of the category `shovel`.   level: info, warning or error."""

    def completed(self, definition: ShovelDefinition) -> None:
        """Delete a shovel that has done its work."""


class ShovelLife:
    """One shovel on this node.   on_ended: called once it is stopped and has let go of everything."""

    def __init__(
        self, definition: ShovelDefinition, host: ShovelHost, on_ended: Callable[["ShovelLife"], None]
    ) -> None:
        self.definition = definition
        self.counters = Counters()
        self.is_ended = False
        self._host = host
        self._on_ended = on_ended
        self._session: Session | None = None
        self._links: dict[Side, Link] = {}
        self._uris: dict[Side, str] = {}
        self._left: list[str] = []
        """The URIs of the end that is being connected which were not tried."""
        self._attempt = 0
        """The number of the attempt: events of the connections of former ones are not listened to."""
        self._error = ""
        self._timer: Callable[[], None] | None = None
        self._to_move: int | None = None
        """The messages that attempts have left to be moved; None: there is no limit, or the next attempt sets it."""
        self._is_stopping = self._is_complete = False
        self._closing: set[Side] = set()
        self._backoff = self._new_backoff()
        self.status = self._status("starting")

    # --- for the owner ---

    def start(self) -> None:
        """Connect."""
        self._connect("source")

    def stop(self) -> None:
        """End: forward nothing more, wait for what is under way, and close."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._disarm()
        session = self._session
        if session is None or not session.is_running or session.is_drained:
            self._let_go()
            self._end()
        else:
            session.drain()
            self._timer = self._host.after(DRAIN_S, self._drained)
            self._look()

    def restart(self) -> None:
        """Connect anew at once."""
        if not self._is_stopping:
            self._let_go()
            self._to_move = None
            self._backoff = self._new_backoff()
            self._is_complete = False
            self._connect("source")

    # --- connecting ---

    def _new_backoff(self) -> Backoff:
        first_s = max(self.definition.reconnect_delay_s, WAIT_MIN_S)
        return Backoff(first_s, self._host.random, longest_s=LONGEST_S)

    def _connect(self, side: Side) -> None:
        if side == "source":
            self._attempt += 1
            self._report("starting")
        endpoint = self.definition.source if side == "source" else self.definition.destination
        self._left = list(endpoint.uris)
        self._dial(side, failure.NO_URI_LEFT)

    def _dial(self, side: Side, error: str) -> None:
        """Try one of the URIs that are left.   error: of the last one."""
        if not self._left:
            name = self.definition.key.shown
            self._log("error", f"Shovel {name} has no more URIs to try for connection")
            self._failed(Failure(side, f"{side}: {error}"))
            return
        text = self._left.pop(int(self._host.random() * len(self._left)) % len(self._left))
        try:
            uri = parse(text)
        except InvalidUri as invalid:  # a parameter of a version that read URIs otherwise
            self._not_connected(side, without_credentials(text), str(invalid))
            return
        self._uris[side] = uri.shown()
        attempt = self._attempt

        def on_events(taken: list[Event]) -> None:
            if attempt == self._attempt and self._links.get(side) is link:
                self._take(side, taken)

        def on_writable() -> None:
            if attempt == self._attempt and side == "destination" and self._session is not None:
                self._session.writable()

        link = self._host.dial(uri, f"Shovel {self.definition.key.name}", on_events, on_writable)
        self._links[side] = link
        link.start()

    def _not_connected(self, side: Side, shown_uri: str, error: str) -> None:
        name = self.definition.key.shown
        self._log("error", f"Shovel {name} failed to connect (URI: {shown_uri}): {error}")
        self._dial(side, error)

    def _take(self, side: Side, taken: list[Event]) -> None:
        if side in self._closing:
            if any(isinstance(event, Closed) for event in taken):
                self._has_closed(side)
            return
        if self._session is not None:
            self._session.take(side, taken)
            self._look()
            return
        attempt = self._attempt
        for number, event in enumerate(taken, 1):
            match event:
                case Opened() if side == "source" and "destination" not in self._links:
                    self._connect("destination")
                    if attempt != self._attempt:  # there is no URI to try
                        return
                case Opened():
                    self._open_session(taken[number:])
                    return
                case Closed() if side == "source" and "destination" in self._links:
                    # It was open, and has gone before the destination was: perhaps in the same read.
                    self._failed(failure.closed(side, event))
                    return
                case Closed():
                    self._links.pop(side, None)
                    self._not_connected(side, self._uris[side], failure.connection_error(event))
                    return

    def _open_session(self, taken: Sequence[Event]) -> None:
        definition, host = self.definition, self._host
        rewriter = Rewriter(definition, host.cluster, self._uris["source"], self._uris["destination"])
        self._session = Session(
            definition,
            self._links["source"],
            self._links["destination"],
            rewriter,
            self.counters,
            later=self._later,
            wall_s=lambda: host.wall_s,
            left=self._to_move,
        )
        self._session.begin()
        self._session.take("destination", taken)
        self._look()

    def _later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            callback()
            self._look()

        return self._host.after(seconds, call)

    # --- running ---

    def _look(self) -> None:
        """See whether the session runs now, has failed, is complete or drained."""
        session = self._session
        if session is None:
            return
        if session.failure is not None:
            self._failed(session.failure)
        elif session.is_drained:
            self._drained()
        elif self._is_stopping:
            return
        elif session.is_complete:
            self._complete()
        elif session.is_running and self.status.state == "starting":
            self._error = ""
            self._report("running")

    def _complete(self) -> None:
        """Close both ends in good order, so that all acknowledgements have arrived, then delete the shovel."""
        session = self._session
        if session is not None:
            session.stop()
            self._session = None
        self._is_complete = True
        self._closing = {"source", "destination"}
        for link in list(self._links.values()):
            link.resume_reading()
            link.close()

    def _has_closed(self, side: Side) -> None:
        self._closing.discard(side)
        self._links.pop(side, None)
        if self._closing:
            return
        name = self.definition.key.shown
        self._log(
            "info",
            f"Shovel {name} is stopping (it was configured to autodelete and transfer is completed)",
        )
        self._report("terminated", reason="autodelete")
        self._host.completed(self.definition)

    # --- failing ---

    def _failed(self, reason: Failure) -> None:
        was_running = self.status.state == "running"
        if was_running and self._session is not None and not self._session.has_moved_nothing:
            self._backoff.succeeded()
        self._let_go()
        if self._is_stopping:
            self._end()
            return
        self.counters.failures += 1
        self._error = reason.error
        name, delay_s = self.definition.key.shown, self.definition.reconnect_delay_s
        if was_running:
            self._log("warning", f"Shovel {name} detected {reason.side} failure: {reason.error}")
        else:
            self._log("warning", f"Shovel {name} could not connect to {reason.side}: {reason.error}")
        self._report("terminated", reason=failure.RESTART)
        if delay_s > 0:
            self._timer = self._host.after(self._backoff.next_wait_s(), self._wait_is_over)

    def _wait_is_over(self) -> None:
        self._timer = None
        self._connect("source")

    # --- leaving ---

    def _drained(self) -> None:
        self._let_go()
        self._end()

    def _let_go(self) -> None:
        """Close both connections, and listen to them no more."""
        self._disarm()
        self._attempt += 1
        self._closing.clear()
        if self._session is not None:
            if self._session.left is not None:
                self._to_move = self._session.left
            self._session.stop()
            self._session = None
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.close()

    def _end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._on_ended(self)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer()
            self._timer = None

    # --- what operators see ---

    def _status(self, state: State, reason: str = "") -> ShovelStatus:
        definition = self.definition
        ends: tuple[tuple[str, str], ...] = ()
        if state == "running":
            ends = ends_of(definition, self._uris["source"], self._uris["destination"])
        return ShovelStatus(
            definition.key, definition.type, state, self._host.wall_s, reason, self._error, ends
        )

    def _report(self, state: State, reason: str = "") -> None:
        self.status = self._status(state, reason)

    def _log(self, level: str, text: str) -> None:
        self._host.log(level, text)
