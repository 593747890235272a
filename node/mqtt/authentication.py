"""Enhanced authentication: a client of MQTT 5.0 proves who it is in several steps, by a method of an auth backend.

    CONNECT(method, data) ─► node ─► AUTH 0x18(data) ─► client ─► AUTH 0x18(data) ─► node ─► … ─► CONNACK(data)
    AUTH 0x19(method, data) ─► the same once more, while all else goes on ─► AUTH 0x00(data)
Source: MQTT 5.0 chapter 4.12.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from node.mqtt.errors import MqttError, protocol_error
from node.mqtt.packets import Auth
from node.mqtt.properties import AuthProperties
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.steps import Steps
from node.plugins import Authenticated, Challenge, Refusal, Session

STEPS_MAX: Final = 16
"""The challenges of one authentication; a client that needs more is refused."""


class Authentication:
    """The authentications of one client, one at a time.   method: that of its CONNECT.

    write: sends an AUTH.   expect: called when the client's AUTH is waited for.
    """

    def __init__(
        self,
        node: Session,
        method: str,
        write: Callable[[Auth], None],
        expect: Callable[[], None],
    ) -> None:
        self.method = method
        self._node = node
        self._write = write
        self._expect = expect
        self._on_auth: Callable[[Auth], None] | None = None

    @property
    def is_waiting(self) -> bool:
        """True while the client has to answer a challenge."""
        return self._on_auth is not None

    def steps(self, data: bytes) -> Steps[bytes]:
        """Exchange AUTH packets until the client has proved who it is; return the last bytes for it.

        Raises: MqttError.
        """
        for _ in range(STEPS_MAX):
            answer: Challenge | Authenticated | Refusal = yield partial(
                self._node.authenticate, self.method, data
            )
            if isinstance(answer, Refusal):
                raise MqttError(ReasonCode.NOT_AUTHORIZED, answer.text)
            if isinstance(answer, Authenticated):
                return answer.data
            properties = AuthProperties(self.method, answer.data)
            self._write(Auth(ReasonCode.CONTINUE_AUTHENTICATION, properties))
            packet: Auth = yield self._await
            data = packet.properties.authentication_data or b""
        raise MqttError(ReasonCode.NOT_AUTHORIZED, f"the authentication takes more than {STEPS_MAX} steps")

    def _await(self, on_done: Callable[[Auth], None]) -> None:
        self._on_auth = on_done
        self._expect()

    def take(self, packet: Auth) -> None:
        """Take the client's answer to a challenge. Raises: MqttError."""
        on_auth, self._on_auth = self._on_auth, None
        if on_auth is None or packet.code != ReasonCode.CONTINUE_AUTHENTICATION:
            raise protocol_error("an AUTH that answers no challenge")
        self.check(packet)
        on_auth(packet)

    def check(self, packet: Auth) -> None:
        """Check that an AUTH has the method of the CONNECT. Raises: MqttError."""
        if packet.properties.authentication_method != self.method:
            raise protocol_error("an AUTH has another method than the CONNECT [MQTT-4.12.0-5]")

    def let_go(self) -> None:
        """Forget the connection: it is gone."""
        self._on_auth = None
        self._write = lambda packet: None
        self._expect = lambda: None
