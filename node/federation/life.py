"""The life of a link on the node that runs it: it connects, runs, fails, waits and connects again, until it is stopped.

    starting ─► connection here ─► connection upstream ─► session ─► running
        ▲                     │                     │          │
        └── a wait that grows ┴──── the reason ─────┴──────────┘

All I/O is behind `Dialer`. What operators see is `status`.
Source: RabbitMQ 3.10.8, `rabbit_federation_link_util`, `rabbit_federation_status`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

from node.amqp_client.backoff import Backoff
from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Closed, Event, Opened
from node.amqp_client.uri import AmqpUri, InvalidUri, parse, without_credentials
from node.catalogue.records import Binding
from node.federation import failure
from node.federation.exchange_link import ExchangeLink
from node.federation.failure import Failure
from node.federation.link import NEVER, Attempt, Counters, LinkSession, Peer
from node.federation.names import connection_name, shown
from node.federation.plan import Federated, Link
from node.federation.queue_link import QueueLink

CLEAN_UP_S: Final = 10.0
"""The longest time that a removed link spends on deleting what it made upstream, in seconds."""

WAIT_MIN_S: Final = 0.1
"""The least wait after a failure, whatever `reconnect-delay` says, in seconds."""


class Client(Protocol):
    """A connection with what carries its bytes."""

    @property
    def core(self) -> ClientConnection:
        """The connection, without I/O."""

    @property
    def name(self) -> str:
        """The name of the connection, as lists of connections here show it."""

    def start(self) -> None:
        """Connect; `Opened` or `Closed` follows."""

    def close(self) -> None:
        """Close the connection in good order; no event follows that matters."""

    def pause_reading(self) -> None:
        """Read nothing more for now."""

    def resume_reading(self) -> None:
        """Read on."""


OnEvents = Callable[[Sequence[Event]], None]


class LinkHost(Protocol):
    """The node, as a link uses it."""

    @property
    def now(self) -> float:
        """The time in seconds, monotonic."""

    @property
    def wall_s(self) -> float:
        """The time of day in seconds since 1970."""

    @property
    def cluster(self) -> str:
        """The name of the cluster here."""

    def random(self) -> float:
        """Return a random number from 0 to below 1."""

    def dial_local(
        self, vhost: str, name: str, on_events: OnEvents, on_flow: Callable[[bool], None]
    ) -> Client:
        """Return a connection to this node, with all rights in a vhost.

        on_flow: called with False when the link must publish no more, with True when it may go on.
        """

    def dial(self, uri: AmqpUri, name: str, on_events: OnEvents) -> Client:
        """Return a connection to another broker."""

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in so many seconds. Returns: a function that cancels it."""

    def bindings(self, of: Federated) -> Collection[Binding]:
        """Return the bindings from an exchange here."""

    def is_hungry(self, of: Federated) -> bool:
        """True if consumers of a queue here could take more messages than it has."""

    def log(self, text: str, *, is_warning: bool) -> None:
        """Log a line of the category `federation`."""


class Status(NamedTuple):
    """The state of a link.

    status: `starting`, `running`, or what failed.   error: the reason, as an Erlang term; empty: none.
    local_connection: the name of the connection here while it runs.   uri: without user and password.
    since_s: seconds since 1970.
    """

    status: str
    error: str
    local_connection: str
    uri: str
    since_s: float


class LinkLife:
    """One link on this node.   on_ended: called once it is stopped and has let go of everything."""

    def __init__(self, link: Link, host: LinkHost, on_ended: Callable[["LinkLife"], None]) -> None:
        self.link = link
        self.counters = Counters()
        self.session: LinkSession | None = None
        self._host = host
        self._on_ended = on_ended
        self._local: Client | None = None
        self._upstream: Client | None = None
        self._uri: AmqpUri | None = None
        self._attempt = 0
        """The number of the attempt: events of the connections of former ones are not listened to."""
        self._lacks_type = False
        self._may_publish = True
        self._timer: Callable[[], None] | None = None
        self._timer_at = NEVER
        self._next: Link | None = None
        self._is_stopping = False
        self.is_started = self.is_ended = False
        self._backoff = self._new_backoff()
        uri = without_credentials(link.upstream.uris[0])
        self.status = Status("starting", "", "", uri, host.wall_s)

    # --- for the owner ---

    @property
    def goal(self) -> Link:
        """The link that this is, or becomes once it has deleted what it made upstream."""
        return self.link if self._next is None else self._next

    def start(self) -> None:
        """Connect."""
        self.is_started = True
        self._connect()

    def stop(self, *, is_removed: bool) -> None:
        """End.   is_removed: the link is no more, so what it made upstream is deleted first, if it is connected."""
        self._next = None
        self._is_stopping = True
        if self.status.status == "running":
            self._log(f"disconnecting from {self._shown_upstream()}")
        self._leave(is_removed=is_removed)

    def restart(self) -> None:
        """Connect anew at once. What it made upstream stays.

        Nothing changes for a link that is not started, or that deletes what it made: it connects as soon as it may.
        """
        if self.is_started and not self._is_leaving:
            self._begin_anew()

    def replace(self, link: Link, *, is_removed: bool = False) -> None:
        """Go on as a changed link of the same key.   is_removed: what the former made upstream is deleted first."""
        if not self.is_started:
            self.link = link
            return
        self._next = link
        self._leave(is_removed=is_removed)

    def binding_changed(self, binding: Binding, *, is_new: bool) -> None:
        """Note that a binding from the exchange here has come or gone."""
        session = self.session
        if isinstance(session, ExchangeLink):
            (session.binding_added if is_new else session.binding_removed)(binding)
            self._look()

    def consumers_changed(self) -> None:
        """Note that the queue here has other consumers, or is empty or not any more."""
        session = self.session
        if isinstance(session, QueueLink):
            session.consumers_changed()
            self._look()

    # --- connecting ---

    def _new_backoff(self) -> Backoff:
        return Backoff(max(self.link.upstream.reconnect_delay_s, WAIT_MIN_S), self._host.random)

    def _connect(self) -> None:
        self._attempt += 1
        uris = self.link.upstream.uris
        text = uris[int(self._host.random() * len(uris)) % len(uris)]
        self._report("starting", uri=without_credentials(text))
        try:
            self._uri = parse(text, self.link.key.of.vhost)
        except InvalidUri as invalid:  # a parameter of a version that read URIs otherwise
            self._failed(failure.unreachable(str(invalid)))
            return
        attempt, of = self._attempt, self.link.key.of
        self._local = self._host.dial_local(
            of.vhost, self._name, lambda events: self._from_local(attempt, events), self._flow_changed
        )
        self._local.start()

    def _flow_changed(self, may_publish: bool) -> None:
        self._may_publish = may_publish
        self._follow_flow()

    def _follow_flow(self) -> None:
        """Take nothing from upstream while the broker here takes nothing.

        The handshake is read all the same, and what is answered when resources are deleted: neither brings messages.
        """
        if self._upstream is not None and self.session is not None:
            is_read = self._may_publish or self._is_leaving
            (self._upstream.resume_reading if is_read else self._upstream.pause_reading)()

    @property
    def _name(self) -> str:
        return connection_name(self.link.key.upstream, self.link.policy)

    def _from_local(self, attempt: int, events: Sequence[Event]) -> None:
        if attempt != self._attempt or self._local is None:
            return
        for event in events:
            match event:
                case Opened():
                    self._dial_upstream()
                case Closed() if self.session is None:
                    self._failed(failure.downstream_closed(event)._replace(has_worked=False))
                    return
        if self.session is not None:
            self.session.take_local(events, self._host.now)
            self._look()

    def _dial_upstream(self) -> None:
        assert self._uri is not None
        attempt = self._attempt
        client = self._host.dial(self._uri, self._name, lambda events: self._from_upstream(attempt, events))
        self._upstream = client
        client.start()

    def _from_upstream(self, attempt: int, events: Sequence[Event]) -> None:
        if attempt != self._attempt or self._upstream is None:
            return
        first = 0
        if self.session is None:
            # A broker that stops may close a connection with the same bytes with which it opens it.
            for event in events:
                if isinstance(event, Closed):
                    self._failed(failure.disconnected(event, has_worked=False))
                    return
            if events and isinstance(events[0], Opened):
                self._open_session(Peer(self.status.uri, self._vhost, events[0].server_properties))
                first = 1
        if self.session is not None:
            self.session.take_upstream(events[first:], self._host.now)
            self._look()

    @property
    def _vhost(self) -> str:
        assert self._uri is not None
        return self._uri.vhost

    def _open_session(self, peer: Peer) -> None:
        assert self._upstream is not None
        assert self._local is not None
        of, host = self.link.key.of, self._host
        attempt = Attempt(
            self.link, peer, self._upstream.core, self._local.core, host.cluster, self.counters, self._warn
        )
        if of.kind == "exchange":
            self.session = ExchangeLink(
                attempt, bindings=lambda: host.bindings(of), has_type=not self._lacks_type
            )
        else:
            self.session = QueueLink(attempt, is_hungry=lambda: host.is_hungry(of))
        self.session.begin(host.now)
        self._follow_flow()

    # --- running ---

    def _look(self) -> None:
        """See whether the session runs now, has failed, is clean, or has something planned."""
        session = self.session
        if session is None:
            return
        if session.failure is not None:
            self._failed(session.failure)
        elif session.is_clean:
            self._left()
        else:
            if session.is_running and self.status.status == "starting" and not self._is_leaving:
                assert self._local is not None
                self._report("running", local_connection=self._local.name)
                self._log(f"connected to {self._shown_upstream()}")
            if not self._is_leaving:
                self._arm(session.due_at)

    def _arm(self, at: float) -> None:
        if at == self._timer_at:
            return
        self._disarm()
        if at != NEVER:
            self._timer_at = at
            self._timer = self._host.after(max(at - self._host.now, 0.0), self._due)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer()
        self._timer, self._timer_at = None, NEVER

    def _due(self) -> None:
        self._timer, self._timer_at = None, NEVER
        if self.session is not None:
            self.session.due(self._host.now)
            self._look()

    # --- failing ---

    def _failed(self, reason: Failure) -> None:
        was_running = self.status.status == "running"
        if was_running and self.session is not None and not self.session.has_moved_nothing:
            self._backoff.succeeded()
        self._let_go()
        if self._is_leaving:
            self._left()
            return
        self.counters.failures += 1
        upstream = self._shown_upstream()
        if reason.lacks_type and not self._lacks_type:
            # The upstream has no such exchange type and closes connections that ask for it: the next one does not.
            self._lacks_type = True
            self._wait(WAIT_MIN_S)
            return
        self._report(reason.status, error=reason.error)
        if reason == failure.BASIC_CANCEL or reason.error == failure.BASIC_CANCEL.error:
            self._log("received a 'basic.cancel'")
        elif reason.status == "downstream_channel_down":
            self._warn(f"did not connect locally\n{reason.error}")
        elif was_running:
            self._log(f"disconnected from {upstream}\n{reason.error}")
        else:
            self._warn(f"did not connect to {upstream}. Reason: {reason.error}")
        self._wait(self._backoff.next_wait_s())

    def _wait(self, seconds: float) -> None:
        self._disarm()
        self._timer_at = self._host.now + seconds
        self._timer = self._host.after(seconds, self._wait_is_over)

    def _wait_is_over(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._connect()

    # --- leaving ---

    @property
    def _is_leaving(self) -> bool:
        return self._is_stopping or self._next is not None

    def _leave(self, *, is_removed: bool) -> None:
        session = self.session
        self._disarm()
        if is_removed and session is not None and session.failure is None:
            self._timer_at = self._host.now + CLEAN_UP_S
            self._timer = self._host.after(CLEAN_UP_S, self._left)
            self._follow_flow()
            session.clean_up()
            self._look()
        else:
            self._left()

    def _left(self) -> None:
        self._let_go()
        if self._next is not None and not self._is_stopping:
            self.link, self._next = self._next, None
            self._begin_anew()
        elif not self.is_ended:
            self.is_ended = True
            self._on_ended(self)

    def _begin_anew(self) -> None:
        self._let_go()
        self._lacks_type = False
        self._backoff = self._new_backoff()
        self._connect()

    def _let_go(self) -> None:
        """Close both connections, and listen to them no more."""
        self._disarm()
        self._attempt += 1
        self.session = None
        for client in (self._upstream, self._local):
            if client is not None:
                client.close()
        self._upstream = self._local = None
        self._may_publish = True

    # --- telling ---

    def _report(
        self, status: str, *, error: str = "", local_connection: str = "", uri: str | None = None
    ) -> None:
        shown_uri = self.status.uri if uri is None else uri
        self.status = Status(status, error, local_connection, shown_uri, self._host.wall_s)

    def _shown_upstream(self) -> str:
        of, uri = self.link.key.of, self._uri
        vhost = of.vhost if uri is None else uri.vhost
        return f"{shown(of.kind, self.link.key.upstream_name, vhost)} on {self.status.uri}"

    def _log(self, text: str, *, is_warning: bool = False) -> None:
        of = self.link.key.of
        self._host.log(f"Federation {shown(of.kind, of.name, of.vhost)} {text}", is_warning=is_warning)

    def _warn(self, text: str) -> None:
        self._log(text, is_warning=True)
