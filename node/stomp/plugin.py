"""The plug-in itself: its listener on port 61613, and its settings `stomp.NAME`."""

from typing import Final

from node.override import override
from node.plugins import VERSION, Plugin, ProtocolConnection, ProtocolListener, Session, Settings
from node.stomp.connection import StompConnection
from node.stomp.settings import PREFIX, SETTINGS, stomp_settings


class StompListener(ProtocolListener):
    """The listener for STOMP."""

    name = "stomp"
    protocol = "STOMP"
    default_port = 61613

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._stomp = stomp_settings(settings)

    @override
    def connection(self, session: Session) -> ProtocolConnection:
        return StompConnection(session, self._stomp)


PLUGIN: Final = Plugin(
    "rabbitmq_stomp",
    VERSION,
    "STOMP 1.0, 1.1 and 1.2",
    settings=SETTINGS,
    prefix=PREFIX,
    listeners=(StompListener,),
)
