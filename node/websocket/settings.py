"""The settings of a protocol over WebSocket, under the names that RabbitMQ's web plug-ins have for them.

Source: RabbitMQ 3.10.8, rabbitmq_web_stomp.schema, rabbitmq_web_mqtt.schema.
"""

from collections.abc import Sequence
from typing import Final

from node.plugins import Setting, Settings

_NO_EFFECT: Final = "taken and not used"

_UNUSED: Final = (
    "cowboy_opts.$name",
    "max_connections",
    "num_acceptors.$name",
    "proxy_protocol",
    "ssl.backlog",
    "ssl.cacertfile",
    "ssl.certfile",
    "ssl.ciphers.$cipher",
    "ssl.client_renegotiation",
    "ssl.crl_check",
    "ssl.depth",
    "ssl.honor_cipher_order",
    "ssl.honor_ecc_order",
    "ssl.keyfile",
    "ssl.password",
    "ssl.reuse_sessions",
    "ssl.secure_renegotiate",
    "ssl.versions.$version",
    "tcp.backlog",
    "ws_opts.idle_timeout",
    "ws_opts.max_frame_size",
)
"""RabbitMQ's settings that change nothing: the node's own settings of sockets, limits and TLS hold."""

WEB_SETTINGS: Final = (
    Setting("ws_path", "/ws", "the path of the WebSocket"),
    Setting("allow_origins", "", "origins of pages that may open it, with commas between; empty: any"),
    Setting("ws_opts.compress", True, "messages are compressed for a client that offers it"),
    *(Setting(key, "", _NO_EFFECT) for key in _UNUSED),
)

_TCP: Final = "tcp."
_SSL: Final = "ssl."
_NONE: Final = "none"


def port_settings(default_port: int) -> tuple[Setting, ...]:
    """Return the settings that say where a protocol over WebSocket listens."""
    return (
        Setting("tcp.port", default_port, "the port"),
        Setting("tcp.ip", "", "the address; empty: all"),
        Setting("tcp.listener", "", "IP:PORT in their place; none: no listener"),
        Setting("port", 0, "an older name of tcp.port, which counts if both are there"),
        Setting("ssl.port", 0, "the port with TLS; 0: none"),
        Setting("ssl.ip", "", "the address with TLS; empty: all"),
        Setting("ssl.listener", "", "IP:PORT in their place; none: no listener"),
    )


def addresses(settings: Settings) -> Sequence[tuple[str, bool]]:
    """Return where it listens: each `PORT` or `IP:PORT`, and whether it does so with TLS."""
    plain = _address(settings, _TCP, settings["port"] or settings["tcp.port"])
    secure = _address(settings, _SSL, settings["ssl.port"])
    return [(text, is_tls) for text, is_tls in ((plain, False), (secure, True)) if text]


def _address(settings: Settings, prefix: str, port: object) -> str:
    """Return where it listens; an empty text: nowhere."""
    whole = str(settings[f"{prefix}listener"])
    if whole:
        return "" if whole == _NONE else whole
    if not port:
        return ""
    ip = str(settings[f"{prefix}ip"])
    if ":" in ip:
        ip = f"[{ip}]"
    return f"{ip}:{port}" if ip else str(port)
