"""The settings of a broker that an operator may change; `node.config.config` fills them in.

Source: amqp-behaviour §11, management §6.1.
"""

from dataclasses import dataclass, field

from node.amqp.field_table import Table


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Limits, time-outs and identity of one node.

    *_s are seconds, *_ms milliseconds, *_bytes bytes.
    server_properties: of connection.start.
    initial_frame_max_bytes: the most that a client may send in one frame before tune-ok.
    auth_failure_delay_s: how long a refused client is kept waiting, so that guessing is slow.
    channel_tick_s: how often consumer_timeout is looked at.
    default_prefetch, default_prefetch_limit: of channels that set none, for each consumer and for all
        together; 0: no limit.
    queue_master_locator: where queues go that say nothing about it: client-local, min-masters or random.
    closing_s_max: how long a closed connection waits for the peer at most; its heartbeat interval if that is
        shorter.
    """

    node_name: str = "rabbit@localhost"
    server_properties: Table = field(default_factory=dict)
    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    loopback_users: frozenset[str] = frozenset({"guest"})
    frame_max_bytes: int = 131072
    initial_frame_max_bytes: int = 4096
    channel_max: int = 2047
    heartbeat_s: int = 60
    connection_max: int | None = None
    handshake_timeout_s: float | None = 10.0
    auth_failure_delay_s: float = 3.0
    closing_s_max: float = 30.0
    message_max_bytes: int = 134217728
    consumer_timeout_ms: int | None = 1800000
    channel_tick_s: float = 60.0
    default_prefetch: int = 0
    default_prefetch_limit: int = 0
    queue_master_locator: str = "client-local"
