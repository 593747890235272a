"""A configuration file of RabbitMQ's plug-ins for MQTT and STOMP is taken, and says where the node listens."""

import pytest

from node.extension.setting import SettingError, read_settings
from node.mqtt.constants import NEVER_EXPIRES
from node.mqtt.plugin import PLUGIN, MqttListener
from node.mqtt.settings import mqtt_settings
from node.mqtt.web_plugin import PLUGIN as WEB_PLUGIN
from node.plugins import Plugin
from node.stomp.plugin import PLUGIN as STOMP_PLUGIN
from node.stomp.web_plugin import PLUGIN as WEB_STOMP_PLUGIN

TCP_OPTIONS = [
    "backlog",
    "nodelay",
    "buffer",
    "delay_send",
    "dontroute",
    "exit_on_close",
    "fd",
    "high_msgq_watermark",
    "high_watermark",
    "keepalive",
    "low_msgq_watermark",
    "low_watermark",
    "port",
    "priority",
    "recbuf",
    "send_timeout",
    "send_timeout_close",
    "sndbuf",
    "tos",
    "linger.on",
    "linger.timeout",
]

WEB_KEYS = [
    "num_acceptors.tcp",
    "num_acceptors.ssl",
    "max_connections",
    "tcp.backlog",
    "tcp.ip",
    "ws_path",
    "ssl.backlog",
    "ssl.ip",
    "ssl.certfile",
    "ssl.keyfile",
    "ssl.cacertfile",
    "ssl.password",
    "ssl.honor_cipher_order",
    "ssl.honor_ecc_order",
    "ssl.reuse_sessions",
    "ssl.secure_renegotiate",
    "ssl.client_renegotiation",
    "ssl.crl_check",
    "ssl.depth",
    "ssl.versions.1",
    "ssl.ciphers.1",
    "cowboy_opts.max_empty_lines",
    "cowboy_opts.max_keepalive",
    "cowboy_opts.timeout",
    "cowboy_opts.idle_timeout",
    "ws_opts.max_frame_size",
    "ws_opts.idle_timeout",
    "proxy_protocol",
]

MQTT_KEYS = [
    "default_user",
    "default_pass",
    "vhost",
    "exchange",
    "retained_message_store",
    "retained_message_store_dets_sync_interval",
    "proxy_protocol",
    "num_acceptors.ssl",
    "num_acceptors.tcp",
    "durable_queue_type",
    "tcp_listen_options",
]

STOMP_KEYS = [
    "default_user",
    "default_pass",
    "default_vhost",
    "default_topic_exchange",
    "num_acceptors.tcp",
    "tcp_listen_options",
]


@pytest.mark.parametrize(
    ("plugin", "keys"),
    [
        (PLUGIN, [*MQTT_KEYS, *(f"tcp_listen_options.{each}" for each in TCP_OPTIONS)]),
        (STOMP_PLUGIN, [*STOMP_KEYS, *(f"tcp_listen_options.{each}" for each in TCP_OPTIONS)]),
        (WEB_PLUGIN, WEB_KEYS),
        (WEB_STOMP_PLUGIN, WEB_KEYS),
    ],
)
def test_keys_of_rabbitmqs_schema_are_taken(plugin: Plugin, keys: list[str]) -> None:
    """Source: the schemas of RabbitMQ 3.10.8's plug-ins."""
    prefix = plugin.settings_prefix
    read_settings(prefix, plugin.all_settings, {f"{prefix}.{key}": "any" for key in keys})
    with pytest.raises(SettingError):
        read_settings(prefix, plugin.all_settings, {f"{prefix}.no_such_key": "any"})


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ({}, [("1883", False)]),
        ({"listeners.tcp.default": "1"}, [("1", False)]),
        ({"listeners.tcp.1": "127.0.0.1:1", "listeners.tcp.2": "2"}, [("127.0.0.1:1", False), ("2", False)]),
        ({"listeners.tcp.1": "1", "listeners.ssl.1": "2"}, [("1", False), ("2", True)]),
        ({"listeners.tcp": "none", "listeners.ssl.default": "8883"}, [("8883", True)]),
        ({"listeners.tcp": "none", "listeners.tcp.1": "1"}, []),
        ({"listeners.tcp.default": "none"}, []),
        ({"listeners.ssl": "none", "listeners.ssl.1": "8883"}, [("1883", False)]),
    ],
)
def test_where_it_listens(given: dict[str, str], addresses: list[tuple[str, bool]]) -> None:
    """A listener that is named takes the place of the default one, as in RabbitMQ."""
    settings = PLUGIN.listener_settings({f"mqtt.{key}": value for key, value in given.items()})
    assert MqttListener.addresses(settings) == addresses


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("86400000", 86_400), ("1", 1), ("infinity", NEVER_EXPIRES), ("undefined", NEVER_EXPIRES)],
)
def test_the_time_of_sessions(text: str, seconds: int) -> None:
    settings = PLUGIN.listener_settings({"mqtt.subscription_ttl": text})
    assert mqtt_settings(settings).subscription_ttl_s == seconds
