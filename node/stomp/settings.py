"""The settings of the plug-in, under the names that they have in RabbitMQ's configuration: `stomp.default_user`."""

from dataclasses import dataclass
from typing import Final

from node.plugins import Setting, Settings

PREFIX: Final = "stomp"

NO_EFFECT: Final = "accepted, without effect here"

SETTINGS: Final = (
    Setting("default_user", "guest", "the user of a client that names none; empty: it is refused"),
    Setting("default_pass", "guest", "the password of a client that names none"),
    Setting("default_vhost", "/", "the vhost of a client that names none by the header host"),
    Setting("default_topic_exchange", "amq.topic", "the exchange of destinations /topic"),
    Setting("default_nack_requeue", True, "what NACK does without the header requeue"),
    Setting("implicit_connect", False, "a client may leave out CONNECT and is the default user"),
    Setting("ssl_cert_login", False, "a client that names no user is the one of its certificate"),
    Setting("hide_server_info", False, "CONNECTED has no header server"),
    Setting("login_timeout", 10000, "milliseconds until a client has to be logged in", minimum=1),
    Setting("close_after_error", True, "the connection ends after each ERROR frame; false: as RabbitMQ"),
    Setting("proxy_protocol", False, NO_EFFECT + ": the node's own key proxy_protocol counts"),
    Setting("num_acceptors.$name", "", NO_EFFECT),
    Setting("tcp_listen_options", "", NO_EFFECT),
    Setting("tcp_listen_options.$name", "", NO_EFFECT),
    Setting("tcp_listen_options.linger.$name", "", NO_EFFECT),
)


@dataclass(frozen=True, slots=True)
class StompSettings:
    """The settings as values.   default_user: None if a client has to name its user."""

    default_user: str | None = "guest"
    default_pass: str = "guest"
    default_vhost: str = "/"
    topic_exchange: str = "amq.topic"
    nack_requeues: bool = True
    connects_implicitly: bool = False
    uses_certificates: bool = False
    hides_server: bool = False
    login_timeout_s: float = 10.0
    closes_after_error: bool = True


def stomp_settings(settings: Settings, prefix: str = "") -> StompSettings:
    """Return the settings that the node has read.   prefix: of their keys, with a dot at its end."""
    settings = {key.removeprefix(prefix): value for key, value in settings.items()}
    return StompSettings(
        default_user=str(settings["default_user"]) or None,
        default_pass=str(settings["default_pass"]),
        default_vhost=str(settings["default_vhost"]),
        topic_exchange=str(settings["default_topic_exchange"]),
        nack_requeues=bool(settings["default_nack_requeue"]),
        connects_implicitly=bool(settings["implicit_connect"]),
        uses_certificates=bool(settings["ssl_cert_login"]),
        hides_server=bool(settings["hide_server_info"]),
        login_timeout_s=float(settings["login_timeout"]) / 1000,
        closes_after_error=bool(settings["close_after_error"]),
    )
