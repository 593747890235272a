"""The plug-in `rabbitmq_web_stomp`: STOMP over WebSocket, on port 15674, with its settings `web_stomp.NAME`.

Users, vhosts and all that STOMP itself needs are set as for RabbitMQ's plug-in: by the settings `stomp.NAME`.
Source: RabbitMQ 3.10.8, `rabbit_web_stomp_handler`.
"""

from dataclasses import replace
from typing import Final

from node.override import override
from node.plugins import VERSION, Plugin, ProtocolConnection, Session, Setting, Settings
from node.stomp.connection import StompConnection
from node.stomp.plugin import StompListener
from node.stomp.settings import PREFIX as STOMP_PREFIX
from node.stomp.settings import SETTINGS as STOMP_SETTINGS
from node.stomp.settings import stomp_settings
from node.websocket.connection import BINARY, TEXT, WebSocketListener
from node.websocket.handshake import Request, basic_credentials
from node.websocket.settings import WEB_SETTINGS

LABEL: Final = "Web STOMP"


class WebStompListener(WebSocketListener):
    """The listener for STOMP over WebSocket."""

    name = "http/web-stomp"
    protocol = LABEL
    default_port = 15674
    subprotocols = ("v12.stomp", "v11.stomp", "v10.stomp")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, str(settings["ws_frame"]))
        self._stomp = replace(stomp_settings(settings, f"{STOMP_PREFIX}."), connects_implicitly=False)
        self._uses_http = bool(settings["use_http_auth"])

    @override
    def connection_within(self, session: Session, request: Request) -> ProtocolConnection:
        credentials = None
        if self._uses_http:
            default = self._stomp.default_user, self._stomp.default_pass.encode()
            credentials = basic_credentials(request) or default
        return StompConnection(session, self._stomp, LABEL, credentials)


PLUGIN: Final = Plugin(
    "rabbitmq_web_stomp",
    VERSION,
    "STOMP over WebSocket",
    settings=(
        *WEB_SETTINGS,
        Setting("ws_frame", TEXT, "the kind of frames that the node sends", choices=(TEXT, BINARY)),
        Setting(
            "use_http_auth", False, "the header Authorization of HTTP counts, and CONNECT's login does not"
        ),
    ),
    prefix="web_stomp",
    listeners=(WebStompListener,),
    borrowed=(STOMP_PREFIX, STOMP_SETTINGS + StompListener.port_settings()),
)
