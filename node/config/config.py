"""These records are the typed settings of one node, which the rest of the code reads.

`node.config.load` makes a `Config` from command line, environment and files; the defaults stand here,
RabbitMQ 3.10's unless docs/configuration.md says otherwise. Names end in their unit. Source: management §6.1,
amqp-behaviour §11.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from cluster.times import HEARTBEAT_S, LEASE_S
from node.config.auth import INTERNAL_ALONE, AuthStep
from node.config.values import Address, Network
from node.version import COMPATIBLE_VERSION

__all__ = ["Address", "Config", "LogLevel"]

DEFAULT_PORT: Final = 5672
PEER_PORT_OFFSET: Final = 20000
"""The difference from a node's AMQP port to the port where other nodes reach it, as in RabbitMQ."""
DEFAULT_PEER_PORT: Final = DEFAULT_PORT + PEER_PORT_OFFSET
MANAGEMENT_PORT_OFFSET: Final = 10000
"""The difference from a node's AMQP port to that of its HTTP API; one less with TLS."""
PROMETHEUS_PORT_OFFSET: Final = 10020
"""The difference from a node's AMQP port to that of its metrics; one less with TLS."""


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
    """The threshold above all levels: nothing is written."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """The options of every accepted socket (`tcp_listen_options.*`)."""

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
    """The options of connections before AMQP begins."""

    handshake_timeout_s: float | None = 10.0
    """The time from accept to connection.open; None: no limit."""
    tls_handshake_timeout_s: float = 5.0
    proxy_protocol: bool = False
    proxy_protocol_sources: tuple[Network, ...] = ()
    """Peers whose PROXY header is required and believed; all others are ordinary clients."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The options of TLS (`ssl_options.*`). Files are PEM."""

    certificate_file: str = ""
    key_file: str | None = None
    """The file of the key; None: the key is in `certificate_file`."""
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
    """The choice of the name in a client's certificate that is its user, for EXTERNAL."""

    source: Literal["distinguished_name", "common_name", "subject_alternative_name"] = "distinguished_name"
    san_type: Literal["dns", "ip", "email", "uri"] = "dns"
    san_index: int = 0
    """The 0-based index among the names of `san_type`."""


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """The options of logins."""

    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    loopback_users: frozenset[str] = frozenset({"guest"})
    """Users that are refused unless they come over a loopback interface."""
    certificate_login: CertificateLogin = CertificateLogin()
    steps: tuple[AuthStep, ...] = INTERNAL_ALONE
    """The auth backends, in the order in which a login tries them."""
    answers_kept_s: float = 15.0
    """The time for which an answer of a plug-in's auth backend is used again."""
    password_hashing: str = "rabbit_password_hashing_sha256"
    password_length_min: int | None = None
    """The minimum of the credential validator `min_password_length`; None: another one is chosen."""
    password_regexp: str | None = None
    """The pattern of the credential validator `password_regexp`; None: another one is chosen."""


@dataclass(frozen=True, slots=True)
class Seed:
    """The content of an empty database after the first boot; later boots ignore it."""

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
    """The limit offered in tune; 0: no limit."""
    initial_frame_max_bytes: int = 4096
    """The limit of frames before tune-ok."""
    channel_max: int = 2047
    """The most open channels of one connection; 0: no limit."""
    connection_max: int | None = None
    """The most connections of this node; None: no limit."""
    max_message_bytes: int = 134217728
    consumer_timeout_s: float = 1800.0
    """The time that a delivery may stay unacknowledged."""
    channel_tick_interval_s: float = 60.0
    """The interval at which `consumer_timeout_s` is checked."""
    default_prefetch_count: int = 0
    """The prefetch of a client that never sent basic.qos; 0: no limit."""
    default_prefetch_global: bool = False
    """True if the default prefetch counts for the whole channel instead of for each consumer."""


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The limits of memory above which the node pages messages out, and above which it blocks publishers."""

    watermark_relative: float = 0.4
    """The limit as a part of the available memory; not above 1.0."""
    watermark_absolute_bytes: int | None = None
    """The limit in bytes; None: `watermark_relative` holds."""
    paging_ratio: float = 0.5
    """The part of the watermark above which messages go to disk."""
    monitor_interval_s: float = 2.5
    total_override_bytes: int | None = None
    """The available memory; None: the system's figure."""
    calculation_strategy: str = "rss"
    """The strategy that reports name; in any case the resident set counts."""


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """The space that must stay free in the data directory's file system."""

    free_limit_bytes: int = 50_000_000
    free_limit_relative: float | None = None
    """The limit as a part of the available memory; None: `free_limit_bytes` holds."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """The options of the message store."""

    embed_max_bytes: int = 4096
    """Contents of at least this size go to the message store, smaller ones into the indexes of their queues."""
    segment_entries: int = 16384
    """Messages of a queue that share a file of its index. It must not be changed in a data directory that is in use."""
    journal_file_bytes: int = 64 << 20
    """A journal file of this size is followed by a new one."""
    store_file_bytes: int = 16 << 20
    """A file of the message store of this size is followed by a new one."""
    commit_interval_s: float = 0.025
    """The time after which writes that no confirm waits for are written at the latest."""
    scrub_rate: int = 1 << 20
    """Bytes per second that are read to find damage; 0: none."""
    shutdown_timeout_s: float = 600.0
    """The time that the disk may take at the end of the node."""


_LOOPBACK_PEER: Final = Address("127.0.0.1", DEFAULT_PEER_PORT)


class SeedNode(NamedTuple):
    """A node that this one asks for a cluster while it has none."""

    name: str
    address: str
    """The `host:port` of the node's peer listener."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of finding other nodes, of authentication between nodes, and of failure detection."""

    listen: Address | None = None
    """The address where other nodes reach this one.

    None: nothing asked for a cluster; the node listens only when its data directory belongs to one, or when it is
    told to join one, and then at `default_listen`.
    """
    default_listen: Address = _LOOPBACK_PEER
    advertised: str = str(_LOOPBACK_PEER)
    """The `host:port` that other nodes are told, for `listen`, or for `default_listen` without one. Port 0: the one
    that the listener got.
    """
    formation_nodes: tuple[SeedNode, ...] = ()
    """The nodes to ask, in the order of preference: the first creates the cluster when none of them has one."""
    formation_dns_hostname: str | None = None
    """The name whose addresses are the nodes to ask, at `DEFAULT_PEER_PORT`; then `formation_nodes` is empty."""
    formation_plugin: str | None = None
    """The peer discovery of a plug-in that knows the nodes to ask; then the two above are empty."""
    discovery_retry_limit: int = 10
    discovery_retry_interval_s: float = 0.5
    target_size_hint: int = 1
    """The intended number of nodes. A cluster is created only once more than half as many belong to none."""
    node_type: Literal["disc", "ram", "witness"] = "disc"
    """The type of the node when it joins; `change_cluster_node_type` changes disc and ram later.

    "witness" comes from `fluffle witness`, never from the configuration.
    """
    partition_handling: Literal["ignore", "pause_minority", "autoheal", "pause_if_all_down"] = (
        "pause_minority"
    )
    """The mode that reports name; in any case the node does `pause_minority`."""
    heartbeat_s: float = HEARTBEAT_S
    lease_s: float = LEASE_S
    """The time for which a node without contact to a majority may serve. At least `LEASE_HEARTBEATS_MIN` heartbeats."""
    secret: bytes | None = field(default=None, repr=False)
    """The secret of all nodes of a cluster; None: certificates, or loopback only."""
    ca_file: str | None = None
    """The PEM file of the authorities for certificates between nodes. This, `certificate_file` and `key_file` are all
    set or none.
    """
    certificate_file: str | None = None
    key_file: str | None = None
    queue_master_locator: Literal["client-local", "min-masters", "random"] = "client-local"
    """The choice of the node for a queue when neither an argument nor a policy makes it (amqp-behaviour §9.2)."""
    mirror_flush_s: float = 0.002
    """The time for which a mirrored queue gathers changes for its mirrors, at a moderate load."""


@dataclass(frozen=True, slots=True)
class LogFormat:
    """The format of one output's lines."""

    json: bool = False
    time_format: Literal["rfc3339_space", "rfc3339_T", "epoch_usecs", "epoch_secs"] = "rfc3339_space"
    level_format: Literal["lc", "uc", "lc3", "uc3", "lc4", "uc4"] = "lc"
    single_line: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleLog:
    """The output of log lines to the terminal."""

    stream: Literal["stdout", "stderr"] = "stderr"
    """The stream. RabbitMQ has stdout; ours carries the ready line, and a reader of only that must not miss logs."""
    colors: bool = False
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat()


@dataclass(frozen=True, slots=True)
class FileLog:
    """The output of log lines to a file."""

    path: str
    rotation_bytes: int = 0
    """The size at which the file is rotated; 0: never, but it is opened anew when another program has moved it away."""
    rotation_count: int = 0
    """The number of old files that are kept."""
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat()


@dataclass(frozen=True, slots=True)
class ExchangeLog:
    """The output of log lines as messages to the exchange `amq.rabbitmq.log` of the default virtual host."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The outputs of the log."""

    console: ConsoleLog | None = ConsoleLog()
    file: FileLog | None = None
    exchange: ExchangeLog | None = None
    category_levels: Mapping[str, LogLevel] = field(default_factory=dict)
    """Categories with a level of their own; the others have the output's."""


@dataclass(frozen=True, slots=True)
class ManagementConfig:
    """The options of the HTTP API and the UI (`management.*`, management §1.0, §2.6). Off without a listener."""

    listen: Address | None = None
    """The address for plain HTTP; None: no such listener."""
    tls_listen: Address | None = None
    tls: TlsOptions = TlsOptions()
    """The options of TLS, read only with `tls_listen`."""
    is_configured: bool = False
    """True if an address was configured. Otherwise a port that is taken only causes a warning."""
    compress: bool = True
    """True if answers are compressed for clients that accept that."""
    idle_timeout_s: float = 60.0
    """The time that a connection may stay without a request."""
    path_prefix: str = ""
    """The beginning of all paths: empty, or `/…` without a slash at its end."""
    max_body_bytes: int = 10_000_000
    http_log_dir: str | None = None
    """The directory for the log of requests; None: there is none."""
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
    """The time in minutes for which the UI remembers a login; None: eight hours."""
    disable_basic_auth: bool = False
    disable_stats: bool = False
    """True if lists have no statistics, only the objects."""
    enable_queue_totals: bool = False
    """True if queues have their counts even with `disable_stats`."""
    disable_operator_policy_changes: bool = False

    @property
    def is_on(self) -> bool:
        """True if there is a listener."""
        return self.listen is not None or self.tls_listen is not None


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """The options of the metrics (`prometheus.*`, management §5). Off when both listeners are None."""

    listen: Address | None = None
    """The address for plain HTTP; None: no such listener."""
    tls_listen: Address | None = None
    tls: TlsOptions = TlsOptions()
    """The options of TLS, read only with `tls_listen`."""
    is_configured: bool = False
    """True if an address was configured, as `ManagementConfig.is_configured`."""
    path: str = "/metrics"
    return_per_object_metrics: bool = False
    """True if `path` itself has a row for each queue, channel and connection."""
    filter_aggregated_queue_metrics_pattern: str | None = None
    """A regular expression: queues whose names match are left out of the sums."""

    @property
    def is_on(self) -> bool:
        """True if there is a listener."""
        return self.listen is not None or self.tls_listen is not None


Retention = tuple[tuple[int, int], ...]
"""The periods for which samples are kept, from fine to coarse: (seconds, seconds between two samples)."""


@dataclass(frozen=True, slots=True)
class StatisticsConfig:
    """The options of the statistics, which follow counters over time (management §1.0)."""

    interval_s: float = 5.0
    rates_mode: Literal["basic", "detailed", "none"] = "basic"
    retention_global: Retention = ((600, 5), (3600, 60), (28800, 600), (86400, 1800))
    retention_basic: Retention = ((600, 5), (3600, 60))
    retention_detailed: Retention = ((600, 5),)


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """The options of telemetry (`telemetry.*`): records for `spark_ops` in files (docs/telemetry.md)."""

    is_on: bool = False
    directory: str = ""
    """The directory in which the node makes one with its own name. With `is_on` it is never empty."""
    interval_s: float = 10.0
    max_bytes: int = 1 << 30
    """The most bytes of files that were not collected; beyond that the oldest are removed."""
    zone: str | None = None
    """The zone of the node, for plans that spread copies."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DefinitionsConfig:
    """The definitions that are imported at each start (management §2.2)."""

    path: str | None = None
    """A file, or a directory whose files are imported in the order of their names. With one, an empty database is not
    seeded."""
    skip_if_unchanged: bool = False
    hashing_algorithm: Literal["sha", "sha224", "sha256", "sha384", "sha512"] = "sha256"
    """The digest by which the node recognises its last import, for `skip_if_unchanged`."""


@dataclass(frozen=True, slots=True)
class Product:
    """The product name and version that clients and the HTTP API get.

    Source: docs/differences.md, "Connections and frames".
    """

    name: str = "RabbitMQ"
    version: str = COMPATIBLE_VERSION


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration of a node; nothing in it changes while the node runs."""

    node_name: str
    data_dir: str
    cluster_name: str
    product: Product = Product()
    tcp_listeners: tuple[Address, ...] = (Address("", DEFAULT_PORT),)
    tls_listeners: tuple[Address, ...] = ()
    tls: TlsOptions = TlsOptions()
    """The options of TLS, read only when there are `tls_listeners`."""
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
    plugin_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of all settings of plug-ins by their whole keys; each plug-in checks its own when it is enabled."""
    """The plug-ins that the file or a variable enables, in its order. None: neither exists, and all are on."""
    files: tuple[str, ...] = ()
    """The files that were read, in order."""
    unused: tuple[str, ...] = ()
    """Keys and variables that were given and have no effect in this version."""
