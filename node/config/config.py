"""The settings of one node, typed: what the rest of the code reads.

`node.config.load` makes a `Config` from command line, environment and files; the defaults stand here,
RabbitMQ 3.10's unless docs/configuration.md says otherwise. Names end in their unit. Source: management §6.1,
amqp-behaviour §11.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from node.config.values import Address, Network
from node.version import COMPATIBLE_VERSION

__all__ = ["Address", "Config", "LogLevel"]

DEFAULT_PORT: Final = 5672
PEER_PORT_OFFSET: Final = 20000
"""From a node's AMQP port to the port where other nodes reach it, as in RabbitMQ."""
DEFAULT_PEER_PORT: Final = DEFAULT_PORT + PEER_PORT_OFFSET
MANAGEMENT_PORT_OFFSET: Final = 10000
"""From a node's AMQP port to that of its HTTP API, and one less with TLS."""
PROMETHEUS_PORT_OFFSET: Final = 10020
"""From a node's AMQP port to that of its metrics, and one less with TLS."""


class LogLevel(IntEnum):
    """RabbitMQ's levels, with the numbers of Python's `logging` where it has them."""

    DEBUG = 10
    INFO = 20
    NOTICE = 25
    WARNING = 30
    ERROR = 40
    CRITICAL = 50
    ALERT = 60
    EMERGENCY = 70
    NONE = 100
    """As a threshold: nothing is written."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """`tcp_listen_options.*`: what every accepted socket gets."""

    backlog: int = 128
    nodelay: bool = True
    keepalive: bool = False
    linger: bool = True
    linger_timeout_s: int = 0
    """0 with `linger`: a close that we force resets the connection (amqp-behaviour §0.3)."""
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """How connections come in, before AMQP."""

    handshake_timeout_s: float | None = 10.0
    """From accept to connection.open; None: for ever."""
    tls_handshake_timeout_s: float = 5.0
    proxy_protocol: bool = False
    proxy_protocol_sources: tuple[Network, ...] = ()
    """Peers whose PROXY header is required and believed; everybody else is an ordinary client."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """`ssl_options.*`. Files are PEM."""

    certificate_file: str = ""
    key_file: str | None = None
    """None: the key is in `certificate_file`."""
    key_password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    dh_file: str | None = None
    verify_peer: bool = False
    require_peer_certificate: bool = False
    versions: tuple[str, ...] = ("tlsv1.3", "tlsv1.2")
    ciphers: tuple[str, ...] = ()
    """OpenSSL names; empty: OpenSSL's own choice."""
    honor_cipher_order: bool = True
    crl_check: Literal[False] = False


@dataclass(frozen=True, slots=True)
class CertificateLogin:
    """Which name in a client's certificate is its user, for EXTERNAL."""

    source: Literal["distinguished_name", "common_name", "subject_alternative_name"] = "distinguished_name"
    san_type: Literal["dns", "ip", "email", "uri"] = "dns"
    san_index: int = 0
    """0-based, among the names of `san_type`."""


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """Who may log in, and how."""

    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    loopback_users: frozenset[str] = frozenset({"guest"})
    """Users that are refused unless they come over a loopback interface."""
    certificate_login: CertificateLogin = CertificateLogin()
    password_hashing: str = "rabbit_password_hashing_sha256"
    password_length_min: int | None = None
    """The credential validator `min_password_length`; None: another one is chosen."""
    password_regexp: str | None = None
    """The credential validator `password_regexp`; None: another one is chosen."""


@dataclass(frozen=True, slots=True)
class Seed:
    """What an empty database is filled with at the first boot, and only then."""

    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    tags: tuple[str, ...] = ("administrator",)
    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


@dataclass(frozen=True, slots=True)
class AmqpOptions:
    """Limits and times of AMQP connections and channels (amqp-behaviour §1.4, §11)."""

    heartbeat_s: int = 60
    frame_max_bytes: int = 131072
    """Offered in tune; 0: no limit."""
    initial_frame_max_bytes: int = 4096
    """Frames before tune-ok."""
    channel_max: int = 2047
    """Channels open at once on one connection; 0: no limit."""
    connection_max: int | None = None
    """Connections of this node; None: no limit."""
    max_message_bytes: int = 134217728
    consumer_timeout_s: float = 1800.0
    """How long a delivery may stay unacknowledged."""
    channel_tick_interval_s: float = 60.0
    """How often `consumer_timeout_s` is looked at."""
    default_prefetch_count: int = 0
    """The prefetch of who never sent basic.qos; 0: no limit."""
    default_prefetch_global: bool = False
    """Whether that one counts for the whole channel instead of for each consumer."""


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How much memory the node takes before it pages and before it stops reading from publishers."""

    watermark_relative: float = 0.4
    """Of the memory that there is; not above 1.0."""
    watermark_absolute_bytes: int | None = None
    """None: `watermark_relative` holds."""
    paging_ratio: float = 0.5
    """Of the watermark: above it messages go to disk."""
    monitor_interval_s: float = 2.5
    total_override_bytes: int | None = None
    """What counts as the memory that there is; None: what the system says."""
    calculation_strategy: str = "rss"
    """Named in reports only: what counts is the resident set, whatever stands here."""


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """How much of the data directory's file system stays free."""

    free_limit_bytes: int = 50_000_000
    free_limit_relative: float | None = None
    """Of the memory that there is; None: `free_limit_bytes` holds."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How messages are kept on disk."""

    embed_max_bytes: int = 4096
    """Contents of at least this size go to the message store, smaller ones into the indexes of their queues."""
    segment_entries: int = 16384
    """Messages of a queue that share a file of its index. Not to be changed in a data directory that is in use."""
    journal_file_bytes: int = 64 << 20
    """A journal file of this size is followed by a new one."""
    store_file_bytes: int = 16 << 20
    """A file of the message store of this size is followed by a new one."""
    commit_interval_s: float = 0.025
    """What nobody waits for is written after this time at the latest."""
    scrub_rate: int = 1 << 20
    """Bytes in a second that are read to find what has rotted; 0: none."""
    shutdown_timeout_s: float = 600.0
    """How long the disk may take at the end of the node."""


_LOOPBACK_PEER: Final = Address("127.0.0.1", DEFAULT_PEER_PORT)


class SeedNode(NamedTuple):
    """A node that this one looks for when it has no cluster yet."""

    name: str
    address: str
    """`host:port` of its peer listener."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How the node finds other nodes, proves itself to them, and tells that they are gone."""

    listen: Address | None = None
    """Where other nodes reach us. None: nothing asked for a cluster; the node listens only when its data directory
    belongs to one, or when it is told to join one, and then at `default_listen`."""
    default_listen: Address = _LOOPBACK_PEER
    advertised: str = str(_LOOPBACK_PEER)
    """`host:port` that others are told, for `listen`, or for `default_listen` without one. Port 0: the one that the
    listener got."""
    formation_nodes: tuple[SeedNode, ...] = ()
    """In the order of preference: the first makes the cluster when none of them has one."""
    formation_dns_hostname: str | None = None
    """Its addresses are the nodes to look for, at `DEFAULT_PEER_PORT`; then `formation_nodes` is empty."""
    discovery_retry_limit: int = 10
    discovery_retry_interval_s: float = 0.5
    target_size_hint: int = 1
    """How many nodes the cluster is to have. A cluster is made only once more than half as many say that they belong to
    none."""
    node_type: Literal["disc", "ram", "witness"] = "disc"
    """What the node is when it joins; `change_cluster_node_type` changes disc and ram later. "witness" comes from
    `fluffle witness`, never from the configuration."""
    partition_handling: Literal["ignore", "pause_minority", "autoheal", "pause_if_all_down"] = (
        "pause_minority"
    )
    """Named in reports only: what happens is `pause_minority`, whatever stands here."""
    heartbeat_s: float = 0.25
    lease_s: float = 4.0
    """A node that was not heard of for longer counts as down. At least `LEASE_HEARTBEATS_MIN` heartbeats."""
    secret: bytes | None = field(default=None, repr=False)
    """What all nodes of a cluster know; None: certificates, or loopback only."""
    ca_file: str | None = None
    """With `certificate_file` and `key_file`: nodes prove themselves by certificates. PEM; all three or none."""
    certificate_file: str | None = None
    key_file: str | None = None
    queue_master_locator: Literal["client-local", "min-masters", "random"] = "client-local"
    """On which node a queue is made when neither an argument nor a policy says so (amqp-behaviour §9.2)."""
    mirror_flush_s: float = 0.002
    """How long a mirrored queue gathers what its mirrors are told, at a moderate load."""


LEASE_HEARTBEATS_MIN: Final = 4
"""A lease survives this many lost heartbeats, less one."""
LEASE_HEARTBEATS: Final = 16
"""How many heartbeats a lease is when nothing says how long it is."""


@dataclass(frozen=True, slots=True)
class LogFormat:
    """How one output writes its lines."""

    json: bool = False
    time_format: Literal["rfc3339_space", "rfc3339_T", "epoch_usecs", "epoch_secs"] = "rfc3339_space"
    level_format: Literal["lc", "uc", "lc3", "uc3", "lc4", "uc4"] = "lc"
    single_line: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleLog:
    """Log lines on the terminal."""

    stream: Literal["stdout", "stderr"] = "stderr"
    """RabbitMQ has stdout; ours carries the ready line, and who reads only that must not miss logs."""
    colors: bool = False
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat()


@dataclass(frozen=True, slots=True)
class FileLog:
    """Log lines in a file."""

    path: str
    rotation_bytes: int = 0
    """0: the file is never turned over by us, and is opened anew when somebody else moved it away."""
    rotation_count: int = 0
    """How many old files stay."""
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat()


@dataclass(frozen=True, slots=True)
class ExchangeLog:
    """Log lines as messages to the exchange `amq.rabbitmq.log` of the default virtual host."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Where log lines go."""

    console: ConsoleLog | None = ConsoleLog()
    file: FileLog | None = None
    exchange: ExchangeLog | None = None
    category_levels: Mapping[str, LogLevel] = field(default_factory=dict)
    """Categories with a level of their own; the others have the output's."""


@dataclass(frozen=True, slots=True)
class ManagementConfig:
    """`management.*`: the HTTP API and the UI (management §1.0, §2.6). Off when both listeners are None."""

    listen: Address | None = None
    """Plain HTTP; None: no such listener."""
    tls_listen: Address | None = None
    tls: TlsOptions = TlsOptions()
    """Read only with `tls_listen`."""
    is_configured: bool = False
    """Whether somebody asked for an address. If not, a port that is taken is worth a warning only."""
    compress: bool = True
    """Whether answers are compressed for who accepts that."""
    idle_timeout_s: float = 60.0
    """How long a connection may stay without a request."""
    path_prefix: str = ""
    """What all paths begin with: empty, or `/…` without a slash at its end."""
    max_body_bytes: int = 10_000_000
    http_log_dir: str | None = None
    """Where requests are logged; None: nowhere."""
    cors_allow_origins: tuple[str, ...] = ()
    """Origins whose pages may use the API; `*`: any."""
    cors_max_age_s: int = 1800
    csp_policy: str = "default-src 'self'"
    """The header `content-security-policy`; stricter than RabbitMQ's, as our UI has no inline scripts."""
    hsts_policy: str | None = None
    """The header `strict-transport-security`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of every answer: `x-content-type-options`, `x-xss-protection`, `x-frame-options`."""
    login_session_timeout_min: int | None = None
    """How long the UI remembers who logged in; None: eight hours."""
    disable_basic_auth: bool = False
    disable_stats: bool = False
    """Whether lists say what is there and not what it is doing, asked for or not."""
    enable_queue_totals: bool = False
    """Whether queues tell their counts nevertheless."""
    disable_operator_policy_changes: bool = False

    @property
    def is_on(self) -> bool:
        """Whether there is a listener."""
        return self.listen is not None or self.tls_listen is not None


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """`prometheus.*`: where metrics are read (management §5). Off when both listeners are None."""

    listen: Address | None = None
    """Plain HTTP; None: no such listener."""
    tls_listen: Address | None = None
    tls: TlsOptions = TlsOptions()
    """Read only with `tls_listen`."""
    is_configured: bool = False
    """As `ManagementConfig.is_configured`."""
    path: str = "/metrics"
    return_per_object_metrics: bool = False
    """Whether `path` itself has a row for each queue, channel and connection."""
    filter_aggregated_queue_metrics_pattern: str | None = None
    """A regular expression: queues whose names match don't count in the sums."""

    @property
    def is_on(self) -> bool:
        """Whether there is a listener."""
        return self.listen is not None or self.tls_listen is not None


Retention = tuple[tuple[int, int], ...]
"""How long samples are kept, from fine to coarse: (seconds, seconds between two of them)."""


@dataclass(frozen=True, slots=True)
class StatisticsConfig:
    """How counters are followed over time (management §1.0)."""

    interval_s: float = 5.0
    rates_mode: Literal["basic", "detailed", "none"] = "basic"
    retention_global: Retention = ((600, 5), (3600, 60), (28800, 600), (86400, 1800))
    retention_basic: Retention = ((600, 5), (3600, 60))
    retention_detailed: Retention = ((600, 5),)


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """`telemetry.*`: records of what the node does, in files for `spark_ops` (docs/telemetry.md)."""

    is_on: bool = False
    directory: str = ""
    """The node makes a directory of its name in it. With `is_on` never empty."""
    interval_s: float = 10.0
    max_bytes: int = 1 << 30
    """Of files that nobody has collected; then the oldest go."""
    zone: str | None = None
    """Where the node stands, for plans that spread copies."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DefinitionsConfig:
    """What is imported at each start (management §2.2)."""

    path: str | None = None
    """A file, or a directory whose files are imported in the order of their names. With one, an empty database is not
    seeded."""
    skip_if_unchanged: bool = False
    hashing_algorithm: Literal["sha", "sha224", "sha256", "sha384", "sha512"] = "sha256"
    """By which digest the node remembers what it imported, for `skip_if_unchanged`."""


@dataclass(frozen=True, slots=True)
class Product:
    """What clients and the HTTP API are told we are (architecture §4)."""

    name: str = "RabbitMQ"
    version: str = COMPATIBLE_VERSION


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that was decided before the node starts; nothing in it changes while the node runs."""

    node_name: str
    data_dir: str
    cluster_name: str
    product: Product = Product()
    tcp_listeners: tuple[Address, ...] = (Address("", DEFAULT_PORT),)
    tls_listeners: tuple[Address, ...] = ()
    tls: TlsOptions = TlsOptions()
    """Read only when there are `tls_listeners`."""
    network: NetworkOptions = NetworkOptions()
    socket: SocketOptions = SocketOptions()
    auth: AuthOptions = AuthOptions()
    seed: Seed = Seed()
    amqp: AmqpOptions = AmqpOptions()
    memory: MemoryOptions = MemoryOptions()
    disk: DiskOptions = DiskOptions()
    store: StorageOptions = StorageOptions()
    cluster: ClusterOptions = ClusterOptions()
    log: LogOptions = field(default_factory=LogOptions)
    management: ManagementConfig = ManagementConfig()
    prometheus: PrometheusConfig = PrometheusConfig()
    statistics: StatisticsConfig = StatisticsConfig()
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    definitions: DefinitionsConfig = DefinitionsConfig()
    enabled_plugins_file: str = ""
    enabled_plugins: tuple[str, ...] | None = None
    """What that file, or a variable, enables, in its order. None: neither says anything, and all of ours are on."""
    files: tuple[str, ...] = ()
    """The files that were read, in order."""
    unused: tuple[str, ...] = ()
    """Keys and variables that were given and have no effect in this version."""
