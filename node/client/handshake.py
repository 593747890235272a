"""The handshake of a connection: from the protocol header to connection.open, with login and negotiated limits.

    header ─► start / start-ok ─► [secure / secure-ok] ─► tune / tune-ok ─► open / open-ok

Any fault before tune-ok is answered by silence and, after a pause, a reset; only a refused login is told
to clients with the capability for that.
Source: amqp-behaviour §1.1-1.5.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from node.amqp.connection_state import ConnectionState
from node.amqp.constants import FRAME_MIN_SIZE_BYTES, PROTOCOL_HEADER, ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.methods import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
)
from node.catalogue.access import LoginRefused
from node.catalogue.records import User
from node.client import sasl
from node.client.counters import AMQP
from node.client.login import log_in, open_vhost
from node.client.rights import Rights
from node.client.server_properties import server_properties

if TYPE_CHECKING:
    from node.client.connection import Connection

_HEADER_BYTES: Final = len(PROTOCOL_HEADER)
_ACCEPTED_HEADERS: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")
_KNOWN_MECHANISMS: Final = frozenset({"PLAIN", "AMQPLAIN", "EXTERNAL", "RABBIT-CR-DEMO"})


class Handshake:
    """The handshake of one connection; it is dropped when the connection is open."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._broker = connection.broker
        self._header = b""
        self._mechanism = ""
        self._claimed_user = ""

    def take_header(self, data: bytes) -> bytes:
        """Take the protocol header from the start of the stream; return the bytes behind it, if it is complete."""
        connection = self._connection
        self._header += data
        if len(self._header) < _HEADER_BYTES:
            return b""
        header, rest = self._header[:_HEADER_BYTES], self._header[_HEADER_BYTES:]
        if header not in _ACCEPTED_HEADERS:
            connection.send(PROTOCOL_HEADER)
            self._broker.observer.handshake_failed(connection, f"bad protocol header {header!r}")
            connection.finish()
            return b""
        connection.state = ConnectionState.AWAIT_START_OK
        self._broker.observer.accepted(connection)
        connection.send_method(
            ConnectionStart(
                server_properties=server_properties(self._broker),
                mechanisms=" ".join(self._mechanisms()).encode(),
            )
        )
        return rest

    def handle(self, method: Method) -> None:
        """Handle a method that the connection's state allows. Raises: ProtocolError, see `Connection.fail`."""
        match method:
            case ConnectionStartOk():
                self._start_ok(method)
            case ConnectionSecureOk():
                self._log_in(sasl.cr_demo_answer(self._claimed_user, method.response))
            case ConnectionTuneOk():
                self._tune_ok(method)
            case ConnectionOpen():
                self._open(method)

    def _mechanisms(self) -> list[str]:
        """Return the mechanisms to offer: EXTERNAL only where a certificate can prove something."""
        offered = [name for name in self._broker.settings.mechanisms if name in _KNOWN_MECHANISMS]
        return [name for name in offered if name != "EXTERNAL" or self._connection.peer.is_tls]

    def _start_ok(self, method: ConnectionStartOk) -> None:
        connection = self._connection
        connection.client_properties = method.client_properties
        connection.capabilities = _capabilities(method.client_properties)
        name = method.client_properties.get("connection_name")
        if name is not None and isinstance(name.value, bytes):
            connection.client_name = name.value.decode("utf-8", "backslashreplace")
            self._broker.observer.named_by_client(connection)
        self._mechanism = connection.auth_mechanism = method.mechanism
        if method.mechanism not in self._mechanisms():
            raise ProtocolError(
                ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{method.mechanism}'"
            )
        if method.mechanism == "PLAIN":
            self._log_in(sasl.plain(method.response))
        elif method.mechanism == "AMQPLAIN":
            self._log_in(sasl.amqplain(method.response))
        elif method.mechanism == "RABBIT-CR-DEMO":
            self._claimed_user = method.response.decode("utf-8", "surrogateescape")
            connection.state = ConnectionState.AWAIT_SECURE_OK
            connection.send_method(ConnectionSecure(sasl.CR_DEMO_CHALLENGE))
        elif connection.peer.certificate_user is None:
            self._refuse_login(connection.peer.certificate_problem, "")
        else:
            self._log_in(sasl.Credentials(connection.peer.certificate_user, None))

    def _log_in(self, credentials: sasl.Credentials) -> None:
        log_in(self._connection, credentials, self._mechanism, partial(self._logged_in, credentials.user))

    def _logged_in(self, claimed: str, outcome: User | LoginRefused) -> None:
        settings = self._broker.settings
        if isinstance(outcome, LoginRefused):
            self._refuse_login(outcome.reason, claimed)
            return
        self._broker.observer.login_tried(self._connection, outcome.name, "")
        self._broker.counters.count_login(AMQP, is_good=True)
        self._connection.user = outcome
        self._connection.state = ConnectionState.AWAIT_TUNE_OK
        self._connection.send_method(
            ConnectionTune(settings.channel_max, settings.frame_max_bytes, settings.heartbeat_s)
        )

    def _refuse_login(self, reason: str, user: str) -> None:
        """Refuse the login: at once in words to a client that can take them, and to all by a reset after a pause."""
        connection = self._connection
        self._broker.counters.count_login(AMQP, is_good=False)
        self._broker.observer.login_tried(connection, user, reason)
        self._broker.observer.login_refused(connection, self._mechanism, reason)
        if connection.has_capability("authentication_failure_close"):
            connection.send_close(
                ProtocolError(
                    ReplyCode.ACCESS_REFUSED,
                    f"Login was refused using authentication mechanism {self._mechanism}. "
                    "For details see the broker logfile.",
                )
            )
        connection.fall_silent()

    def _tune_ok(self, method: ConnectionTuneOk) -> None:
        settings, connection = self._broker.settings, self._connection
        _check_negotiated("frame_max", method.frame_max, settings.frame_max_bytes, FRAME_MIN_SIZE_BYTES)
        _check_negotiated("channel_max", method.channel_max, settings.channel_max, 1)
        connection.tune(method.channel_max, method.frame_max, method.heartbeat)
        connection.state = ConnectionState.AWAIT_OPEN

    def _open(self, method: ConnectionOpen) -> None:
        open_vhost(self._connection, method.virtual_host, partial(self._opened, method.virtual_host))

    def _opened(self, vhost: str, rights: Rights | None) -> None:
        self._connection.opened(vhost, rights)
        self._connection.send_method(ConnectionOpenOk())


def _capabilities(client_properties: Table) -> frozenset[str]:
    """Return the capabilities of the client (§1.10)."""
    table = client_properties.get("capabilities")
    if table is None or not isinstance(table.value, dict):
        return frozenset()
    return frozenset(name for name, value in table.value.items() if value.value is True)


def _check_negotiated(name: str, asked: int, ours: int, lowest: int) -> None:
    """Check a limit that the client chose in tune-ok: at most ours, and not 'unlimited' where we have one (§1.4)."""
    if 0 < asked < lowest:
        problem = f"lower than the minimum allowed value ({lowest})"
    elif ours and (asked == 0 or asked > ours):
        problem = f"higher than the maximum allowed value ({ours})"
    else:
        return
    raise ProtocolError(ReplyCode.NOT_ALLOWED, f"negotiated {name} = {asked} is {problem}")
