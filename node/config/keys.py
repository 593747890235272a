"""This table has every key that a configuration file may hold.

`KEYS` are the keys that do something; `field` says where in `node.config.config.Config` the value goes. `UNUSED` are
keys that RabbitMQ 3.10 knows and whose feature this version does not have: their values are checked and
otherwise ignored, and the node names them once when it starts. `UNUSED_PREFIXES` are the plug-ins of RabbitMQ
that we do not have. Everything else is unknown and stops the start. A word `$name` in a pattern stands for
any one word.

Source: management §6.1 and the schema files that RabbitMQ 3.10.8 installs.
"""

import difflib
from collections.abc import Iterator
from typing import Final, NamedTuple

from node.config.discovery import DISCOVERY
from node.config.values import (
    AUTH_BACKEND,
    BOOLEAN,
    FILE,
    FLAG,
    FRACTION,
    HEADER,
    HOST,
    HOST_PORT,
    IP,
    LISTENER,
    NETWORK,
    NODE,
    NONE,
    PART,
    PATH,
    PATH_PREFIX,
    PEER_PORT,
    PORT,
    POSITIVE,
    PROPER_FRACTION,
    REGEXP,
    STORAGE,
    TEXT,
    WHOLE,
    ValueType,
    integer,
    meanings,
    milliseconds,
    one_of,
    or_word,
    size,
)

FRAME_MIN_BYTES: Final = 4096
INTEGER_MAX: Final = 0x7FFFFFFF
MESSAGE_MAX_BYTES: Final = 536870912
"""RabbitMQ's own bound for `max_message_size`."""
STORE_FILE_MIN_BYTES: Final = 64 << 10
STORE_FILE_MAX_BYTES: Final = 1 << 30
"""The largest file of the store: files are removed as a whole, so larger ones keep deleted messages for too long."""

HEARTBEAT_MIN_MS: Final = 50
"""The shortest interval of heartbeats: below it they would be most of the work of an idle cluster."""

STATISTICS_INTERVAL_MIN_MS: Final = 100
"""The shortest interval of statistics: below it reading ten thousand queues would be most of the node's work."""

TELEMETRY_INTERVAL_MIN_MS: Final = 500
"""The shortest interval of telemetry: below it records would mostly measure their own writing."""
TELEMETRY_MIN_BYTES: Final = 1 << 20
"""The least room for telemetry: below it the file that is being written would not fit."""

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency", "none")
LOG_CATEGORIES: Final = (
    "default",
    "connection",
    "channel",
    "queue",
    "mirroring",
    "federation",
    "upgrade",
    "ra",
)
ANSWERS_KEPT_MIN_MS: Final = 1000
"""The shortest time for which answers of auth backends are used again: a connection asks again as often."""

_LEVEL: Final = one_of(*LOG_LEVELS)
_PASSWORD_HASHING: Final = one_of(
    *(f"rabbit_password_hashing_{name}" for name in ("sha256", "sha512", "md5"))
)
_CREDENTIAL_VALIDATOR: Final = one_of(
    *(
        f"rabbit_credential_validator_{name}"
        for name in ("accept_everything", "min_password_length", "password_regexp")
    )
)
_TLS_VERSION: Final = one_of("tlsv1.3", "tlsv1.2", "tlsv1.1", "tlsv1")
_TIME_FORMAT: Final = one_of("rfc3339_space", "rfc3339_T", "epoch_usecs", "epoch_secs")
_LEVEL_FORMAT: Final = one_of("lc", "uc", "lc3", "uc3", "lc4", "uc4")
_DEFINITIONS_BACKEND: Final = meanings(
    dict.fromkeys(
        ("local_filesystem", "local", "rabbit_definitions_import_local_filesystem"), "local_filesystem"
    )
)
"""Names of the backend that exists. Without the users that https fetches, a node would seed a guest."""
_FORMATTER: Final = meanings({"plaintext": False, "json": True})


class Key(NamedTuple):
    """One key, or one family of keys when the pattern has a `$name`."""

    pattern: str
    type: ValueType
    field: str = ""
    """The target `section.attribute` of `Config`; of a family, the name that collects its values. Empty: unused."""


def _log_output(output: str) -> Iterator[Key]:
    yield Key(f"log.{output}.level", _LEVEL, f"{output}.level")
    yield Key(f"log.{output}.formatter", _FORMATTER, f"{output}_format.json")
    yield Key(f"log.{output}.formatter.time_format", _TIME_FORMAT, f"{output}_format.time_format")
    yield Key(f"log.{output}.formatter.level_format", _LEVEL_FORMAT, f"{output}_format.level_format")
    yield Key(f"log.{output}.formatter.single_line", FLAG, f"{output}_format.single_line")


def _http_listener(plugin: str) -> Iterator[Key]:
    """Yield the keys of the listeners, plain and TLS, of one of the two plug-ins that serve HTTP."""
    for kind in ("tcp", "ssl"):
        yield Key(f"{plugin}.{kind}.port", PORT, f"{plugin}_{kind}.port")
        yield Key(f"{plugin}.{kind}.ip", IP, f"{plugin}_{kind}.host")
    yield from _http_tls(f"{plugin}.ssl", f"{plugin}_tls")


def _http_tls(start: str, section: str) -> Iterator[Key]:
    yield Key(f"{start}.cacertfile", FILE, f"{section}.ca_file")
    yield Key(f"{start}.certfile", FILE, f"{section}.certificate_file")
    yield Key(f"{start}.keyfile", FILE, f"{section}.key_file")
    yield Key(f"{start}.password", TEXT, f"{section}.key_password")
    yield Key(
        f"{start}.verify", meanings({"verify_peer": True, "verify_none": False}), f"{section}.verify_peer"
    )
    yield Key(f"{start}.fail_if_no_peer_cert", BOOLEAN, f"{section}.require_peer_certificate")
    yield Key(f"{start}.honor_cipher_order", BOOLEAN, f"{section}.honor_cipher_order")
    yield Key(f"{start}.versions.$version", _TLS_VERSION, f"{section}_versions")
    yield Key(f"{start}.ciphers.$cipher", TEXT, f"{section}_ciphers")


KEYS: Final = (
    # listeners and sockets
    Key("listeners.tcp", NONE, "listeners.no_tcp"),
    Key("listeners.tcp.$name", LISTENER, "tcp_listeners"),
    Key("listeners.ssl", NONE, "listeners.no_tls"),
    Key("listeners.ssl.$name", LISTENER, "tls_listeners"),
    Key("handshake_timeout", or_word("infinity", None, milliseconds(1)), "network.handshake_timeout_s"),
    Key("ssl_handshake_timeout", milliseconds(1), "network.tls_handshake_timeout_s"),
    Key("proxy_protocol", BOOLEAN, "network.proxy_protocol"),
    Key("proxy_protocol_sources.$number", NETWORK, "proxy_protocol_sources"),
    Key("tcp_listen_options.backlog", POSITIVE, "socket.backlog"),
    Key("tcp_listen_options.nodelay", BOOLEAN, "socket.nodelay"),
    Key("tcp_listen_options.keepalive", BOOLEAN, "socket.keepalive"),
    Key("tcp_listen_options.linger.on", BOOLEAN, "socket.linger"),
    Key("tcp_listen_options.linger.timeout", WHOLE, "socket.linger_timeout_s"),
    Key("tcp_listen_options.sndbuf", POSITIVE, "socket.send_buffer_bytes"),
    Key("tcp_listen_options.recbuf", POSITIVE, "socket.receive_buffer_bytes"),
    # TLS
    Key("ssl_options.cacertfile", FILE, "tls.ca_file"),
    Key("ssl_options.certfile", FILE, "tls.certificate_file"),
    Key("ssl_options.keyfile", FILE, "tls.key_file"),
    Key("ssl_options.dhfile", FILE, "tls.dh_file"),
    Key("ssl_options.password", TEXT, "tls.key_password"),
    Key("ssl_options.verify", meanings({"verify_peer": True, "verify_none": False}), "tls.verify_peer"),
    Key("ssl_options.fail_if_no_peer_cert", BOOLEAN, "tls.require_peer_certificate"),
    Key("ssl_options.versions.$version", _TLS_VERSION, "tls_versions"),
    Key("ssl_options.ciphers.$cipher", TEXT, "tls_ciphers"),
    Key("ssl_options.honor_cipher_order", BOOLEAN, "tls.honor_cipher_order"),
    # Revocation lists are not read, so asking for the check must not pass in silence.
    Key("ssl_options.crl_check", meanings({"false": False}), "tls.crl_check"),
    # who may log in
    Key("auth_mechanisms.$number", one_of("PLAIN", "AMQPLAIN", "EXTERNAL"), "auth_mechanisms"),
    Key("auth_backends.$number", AUTH_BACKEND, "auth_backends"),
    Key("auth_backends.$number.authn", AUTH_BACKEND, "auth_backends"),
    Key("auth_backends.$number.authz", AUTH_BACKEND, "auth_backends"),
    Key("auth_cache.cached_backend", AUTH_BACKEND, "auth_cached.both"),
    Key("auth_cache.cached_backend.authn", AUTH_BACKEND, "auth_cached.authn"),
    Key("auth_cache.cached_backend.authz", AUTH_BACKEND, "auth_cached.authz"),
    Key("auth_cache.cache_ttl", milliseconds(ANSWERS_KEPT_MIN_MS), "auth.answers_kept_s"),
    Key("loopback_users", NONE, "loopback.none"),
    Key("loopback_users.$user", BOOLEAN, "loopback_users"),
    Key(
        "ssl_cert_login_from",
        meanings(
            {
                "distinguished_name": "distinguished_name",
                "common_name": "common_name",
                "subject_alternative_name": "subject_alternative_name",
                "subject_alt_name": "subject_alternative_name",
            }
        ),
        "certificate_login.source",
    ),
    Key("ssl_cert_login_san_type", one_of("dns", "ip", "email", "uri"), "certificate_login.san_type"),
    Key("ssl_cert_login_san_index", WHOLE, "certificate_login.san_index"),
    Key("password_hashing_module", _PASSWORD_HASHING, "auth.password_hashing"),
    Key("credential_validator.validation_backend", _CREDENTIAL_VALIDATOR, "credentials.backend"),
    Key("credential_validator.min_length", WHOLE, "credentials.min_length"),
    Key("credential_validator.regexp", REGEXP, "credentials.regexp"),
    # what an empty database is seeded with
    Key("default_vhost", TEXT, "seed.vhost"),
    Key("default_user", TEXT, "seed.user"),
    Key("default_pass", TEXT, "seed.password"),
    Key("default_permissions.configure", REGEXP, "seed.configure"),
    Key("default_permissions.write", REGEXP, "seed.write"),
    Key("default_permissions.read", REGEXP, "seed.read"),
    Key("default_user_tags.$tag", BOOLEAN, "default_user_tags"),
    # AMQP
    Key("heartbeat", integer(0, 65535, unit="seconds"), "amqp.heartbeat_s"),
    Key("frame_max", size(FRAME_MIN_BYTES, INTEGER_MAX, also=0), "amqp.frame_max_bytes"),
    Key("initial_frame_max", size(FRAME_MIN_BYTES, INTEGER_MAX), "amqp.initial_frame_max_bytes"),
    Key("channel_max", integer(0, 65535), "amqp.channel_max"),
    Key("connection_max", or_word("infinity", None, WHOLE), "amqp.connection_max"),
    Key("max_message_size", size(1, MESSAGE_MAX_BYTES), "amqp.max_message_bytes"),
    Key("consumer_timeout", milliseconds(1), "amqp.consumer_timeout_s"),
    Key("channel_tick_interval", milliseconds(1), "amqp.channel_tick_interval_s"),
    Key("default_consumer_prefetch", integer(0, 65535), "amqp.default_prefetch_count"),
    Key("default_consumer_prefetch.global", BOOLEAN, "amqp.default_prefetch_global"),
    # memory and disk
    Key("vm_memory_high_watermark.relative", PART, "memory.watermark_relative"),
    Key("vm_memory_high_watermark.absolute", STORAGE, "memory.watermark_absolute_bytes"),
    Key("vm_memory_high_watermark_paging_ratio", PROPER_FRACTION, "memory.paging_ratio"),
    Key(
        "vm_memory_calculation_strategy",
        one_of("rss", "erlang", "allocated", "legacy"),
        "memory.calculation_strategy",
    ),
    Key("memory_monitor_interval", milliseconds(1), "memory.monitor_interval_s"),
    Key("total_memory_available_override_value", STORAGE, "memory.total_override_bytes"),
    Key("disk_free_limit.absolute", STORAGE, "disk.free_limit_bytes"),
    Key("disk_free_limit.relative", FRACTION, "disk.free_limit_relative"),
    Key("queue_index_embed_msgs_below", size(), "store.embed_max_bytes"),
    Key(
        "msg_store_file_size_limit",
        size(STORE_FILE_MIN_BYTES, STORE_FILE_MAX_BYTES),
        "store.store_file_bytes",
    ),
    Key("message_store_shutdown_timeout", milliseconds(1), "store.shutdown_timeout_s"),
    Key(
        "store.journal_file_size",
        size(STORE_FILE_MIN_BYTES, STORE_FILE_MAX_BYTES),
        "store.journal_file_bytes",
    ),
    Key("store.commit_interval", milliseconds(0, 10000), "store.commit_interval_s"),
    Key("store.scrub_rate", size(), "store.scrub_rate"),
    # the cluster
    Key("cluster_formation.peer_discovery_backend", DISCOVERY, "formation.backend"),
    Key("cluster_formation.classic_config.nodes.$node", NODE, "formation_nodes"),
    Key("cluster_formation.dns.hostname", HOST, "formation.dns_hostname"),
    Key(
        "cluster_formation.node_type",
        meanings({"disc": "disc", "disk": "disc", "ram": "ram"}),
        "cluster.node_type",
    ),
    Key("cluster_formation.discovery_retry_limit", POSITIVE, "cluster.discovery_retry_limit"),
    Key("cluster_formation.discovery_retry_interval", milliseconds(1), "cluster.discovery_retry_interval_s"),
    Key("cluster_formation.target_cluster_size_hint", POSITIVE, "cluster.target_size_hint"),
    Key("distribution.listener.interface", IP, "peer.interface"),
    Key("distribution.listener.port_range.min", PEER_PORT, "peer.port_min"),
    Key("distribution.listener.port_range.max", PEER_PORT, "peer.port_max"),
    Key(
        "cluster_partition_handling",
        one_of("ignore", "pause_minority", "autoheal", "pause_if_all_down"),
        "cluster.partition_handling",
    ),
    Key("cluster_keepalive_interval", milliseconds(HEARTBEAT_MIN_MS, 60000), "cluster.heartbeat_s"),
    Key(
        "queue_master_locator",
        one_of("client-local", "min-masters", "random"),
        "cluster.queue_master_locator",
    ),
    Key("cluster.advertised_address", HOST_PORT, "peer.advertised"),
    Key("cluster.lease", milliseconds(1, 600000), "cluster.lease_s"),
    Key("cluster.mirror_flush_interval", milliseconds(0, 1000), "cluster.mirror_flush_s"),
    Key("cluster.secret_file", FILE, "peer.secret_file"),
    Key("cluster.ssl_options.cacertfile", FILE, "cluster.ca_file"),
    Key("cluster.ssl_options.certfile", FILE, "cluster.certificate_file"),
    Key("cluster.ssl_options.keyfile", FILE, "cluster.key_file"),
    # the node
    Key("identity", one_of("rabbitmq", "own"), "node.identity"),
    Key("product.name", TEXT, "product.name"),
    Key("product.version", TEXT, "product.version"),
    Key("cluster_name", TEXT, "node.cluster_name"),
    # the HTTP API and metrics
    *_http_listener("management"),
    Key("management.listener.port", PORT, "management_legacy.port"),
    Key("management.listener.ip", IP, "management_legacy.host"),
    Key("management.listener.ssl", BOOLEAN, "management_legacy.ssl"),
    *_http_tls("management.listener.ssl_opts", "management_tls"),
    Key("management.tcp.compress", BOOLEAN, "management.compress"),
    Key("management.tcp.idle_timeout", milliseconds(1), "management.idle_timeout_s"),
    Key("management.path_prefix", PATH_PREFIX, "management.path_prefix"),
    Key("management.http.max_body_size", size(), "management.max_body_bytes"),
    Key("management.http_log_dir", TEXT, "management.http_log_dir"),
    Key("management.cors.allow_origins", NONE, "management_cors.none"),
    Key("management.cors.allow_origins.$name", HEADER, "management_origins"),
    Key("management.cors.max_age", WHOLE, "management.cors_max_age_s"),
    Key("management.csp.policy", HEADER, "management.csp_policy"),
    Key("management.hsts.policy", HEADER, "management.hsts_policy"),
    Key("management.headers.content_type_options", HEADER, "management_headers.x-content-type-options"),
    Key("management.headers.xss_protection", HEADER, "management_headers.x-xss-protection"),
    Key("management.headers.frame_options", HEADER, "management_headers.x-frame-options"),
    Key("management.login_session_timeout", WHOLE, "management.login_session_timeout_min"),
    Key("management.disable_basic_auth", BOOLEAN, "management.disable_basic_auth"),
    Key("management.disable_stats", BOOLEAN, "management.disable_stats"),
    Key("management_agent.disable_metrics_collector", BOOLEAN, "management_agent.disable_stats"),
    Key("management.enable_queue_totals", BOOLEAN, "management.enable_queue_totals"),
    Key(
        "management.restrictions.operator_policy_changes.disabled",
        BOOLEAN,
        "management.disable_operator_policy_changes",
    ),
    Key("management.rates_mode", one_of("basic", "detailed", "none"), "statistics.rates_mode"),
    Key("management.sample_retention_policies.$section.$interval", POSITIVE, "retention"),
    Key("collect_statistics_interval", milliseconds(STATISTICS_INTERVAL_MIN_MS), "statistics.interval_s"),
    *_http_listener("prometheus"),
    Key("prometheus.path", PATH, "prometheus.path"),
    Key("prometheus.return_per_object_metrics", BOOLEAN, "prometheus.return_per_object_metrics"),
    Key(
        "prometheus.filter_aggregated_queue_metrics_pattern",
        REGEXP,
        "prometheus.filter_aggregated_queue_metrics_pattern",
    ),
    # telemetry
    Key("telemetry.enabled", BOOLEAN, "telemetry.is_on"),
    Key("telemetry.directory", TEXT, "telemetry.directory"),
    Key("telemetry.interval", milliseconds(TELEMETRY_INTERVAL_MIN_MS, 3_600_000), "telemetry.interval_s"),
    Key("telemetry.max_bytes", size(TELEMETRY_MIN_BYTES), "telemetry.max_bytes"),
    Key("telemetry.zone", TEXT, "telemetry.zone"),
    Key("telemetry.label.$name", TEXT, "telemetry_labels"),
    # definitions
    Key("load_definitions", TEXT, "definitions_path.main"),
    Key("definitions.local.path", TEXT, "definitions_path.local"),
    Key("management.load_definitions", TEXT, "definitions_path.management"),
    Key("definitions.import_backend", _DEFINITIONS_BACKEND, "definitions_backend.name"),
    Key("definitions.skip_if_unchanged", BOOLEAN, "definitions.skip_if_unchanged"),
    Key(
        "definitions.hashing.algorithm",
        one_of("sha", "sha224", "sha256", "sha384", "sha512"),
        "definitions.hashing_algorithm",
    ),
    # logs
    Key("log.dir", TEXT, "log.dir"),
    Key("log.console", BOOLEAN, "log.console"),
    Key("log.console.stdio", one_of("stdout", "stderr"), "console.stream"),
    Key("log.console.use_colors", FLAG, "console.colors"),
    *_log_output("console"),
    Key("log.file", or_word("false", False, TEXT), "log.file"),
    Key("log.file.rotation.size", WHOLE, "file.rotation_bytes"),
    Key("log.file.rotation.count", WHOLE, "file.rotation_count"),
    *_log_output("file"),
    Key("log.exchange", BOOLEAN, "log.exchange"),
    *_log_output("exchange"),
    *(Key(f"log.{category}.level", _LEVEL, f"log_levels.{category}") for category in LOG_CATEGORIES),
)

_UNUSED_BY_TYPE: Final[tuple[tuple[ValueType, str], ...]] = (
    (
        BOOLEAN,
        """
        reverse_dns_lookups background_gc_enabled hipe_compile
        ssl_allow_poodle_attack ssl_options.client_renegotiation ssl_options.secure_renegotiate
        ssl_options.reuse_sessions ssl_options.log_alert ssl_options.honor_ecc_order
        ssl_options.bypass_pem_cache tcp_listen_options.exit_on_close tcp_listen_options.delay_send
        tcp_listen_options.dontroute tcp_listen_options.send_timeout_close
        quorum_queue.compute_checksums management.enable_uaa log.journald log.syslog log.file.rotation.compress
        cluster_formation.node_cleanup.only_log_warning
        """,
    ),
    (
        NONE,
        """
        ssl_options tcp_listen_options management.listener.ssl_opts
        """,
    ),
    (
        POSITIVE,
        """
        num_acceptors.tcp num_acceptors.ssl tcp_listen_options.send_timeout
        net_ticktime mnesia_table_loading_retry_timeout
        mnesia_table_loading_retry_limit background_gc_target_interval classic_queue.default_version
        cluster_formation.internal_lock_retries
        cluster_formation.lock_retry_limit cluster_formation.lock_retry_timeout
        raft.segment_max_entries raft.wal_max_size_bytes raft.wal_max_entries
        raft.wal_hibernate_after raft.wal_max_batch_size raft.snapshot_chunk_size
        """,
    ),
    (
        WHOLE,
        """
        queue_index_max_journal_entries queue_index_segment_entry_count msg_store_io_batch_size
        delegate_count default_worker_pool_size ssl_options.depth tcp_listen_options.buffer
        tcp_listen_options.fd tcp_listen_options.high_msgq_watermark
        tcp_listen_options.high_watermark tcp_listen_options.low_msgq_watermark
        tcp_listen_options.low_watermark tcp_listen_options.priority tcp_listen_options.tos
        management.db_cache_multiplier
        cluster_formation.randomized_startup_delay_range.min
        cluster_formation.randomized_startup_delay_range.max cluster_formation.node_cleanup.interval
        cluster_formation.k8s.port
        """,
    ),
    (PORT, "tcp_listen_options.port"),
    (one_of("none", "coarse", "fine"), "collect_statistics"),
    (size(1, 1000000), "mirroring_sync_batch_size"),
    (STORAGE, "mirroring_sync_max_throughput"),
    (or_word("off", None, WHOLE), "socket_writer.gc_threshold"),
    (one_of("ignore", "autoheal"), "cluster_partition_handling.pause_if_all_down.recover"),
    (one_of("stop_node", "continue", "transient", "persistent"), "vhost_restart_strategy"),
    (one_of("client-local", "balanced"), "queue_leader_locator"),
    (_LEVEL, "log.journald.level log.syslog.level"),
    (
        TEXT,
        """
        cluster_partition_handling.pause_if_all_down.nodes.$name
        cluster_formation.proxy.http_proxy
        cluster_formation.proxy.https_proxy cluster_formation.proxy.proxy_exclusions.$name
        definitions.https.url motd_file raft.data_dir
        management.uaa_client_id management.uaa_location
        management_agent.filter_aggregated_queue_metrics_pattern ssl_options.cacerts.$name
        ssl_options.cert ssl_options.dh ssl_options.key.$type ssl_options.log_level
        ssl_options.psk_identity log.console.color_esc_seqs.$level
        log.console.formatter.plaintext.format log.console.formatter.json.field_map
        log.console.formatter.json.verbosity_map log.file.formatter.plaintext.format
        log.file.formatter.json.field_map log.file.formatter.json.verbosity_map
        log.file.rotation.date log.exchange.formatter.plaintext.format log.exchange.formatter.json.field_map
        log.exchange.formatter.json.verbosity_map log.syslog.formatter log.journald.fields
        credit_flow_default_credit msg_store_credit_disc_bound mirroring_flow_control slave_wait_timeout
        """,
    ),
)
UNUSED: Final = tuple(
    Key(pattern, value_type) for value_type, patterns in _UNUSED_BY_TYPE for pattern in patterns.split()
) + tuple(
    Key(f"log.{category}.{rest}", value_type)
    for category in LOG_CATEGORIES
    for rest, value_type in (
        ("file", TEXT),
        ("rotation.date", TEXT),
        ("rotation.compress", BOOLEAN),
        ("rotation.size", WHOLE),
        ("rotation.count", WHOLE),
    )
)

UNUSED_PREFIXES: Final = (
    "amqp1_0.",
    "auth_cache.",
    "auth_ldap.",
    "auth_oauth2.",
    "aws.",
    "cluster_formation.aws.",
    "cluster_formation.consul.",
    "cluster_formation.etcd.",
    "cluster_formation.k8s.",
    "definitions.tls.",
    "erlang.",
    "event_exchange.",
    "log.syslog.",
    "management.listener.",
    "management.oauth_",
    "management.ssl.",
    "management.tcp.",
    "prometheus.ssl.",
    "prometheus.tcp.",
    "stream.",
    "sysmon_handler.",
    "trust_store.",
)
"""Prefixes of families of keys whose values are not checked."""

PLUGIN_PREFIXES: Final = ("auth_http.", "mqtt.", "plugin.", "shovel.", "stomp.", "web_mqtt.", "web_stomp.")
"""Prefixes of the settings of plug-ins: each plug-in checks its own."""

_EXACT: Final = {key.pattern: key for key in (*KEYS, *UNUSED) if "$" not in key.pattern}
_FAMILIES: Final = tuple(
    (tuple(key.pattern.split(".")), key) for key in (*KEYS, *UNUSED) if "$" in key.pattern
)


def find(words: tuple[str, ...]) -> Key | None:
    """Return the key that a setting's words name; None when there is no such key."""
    name = ".".join(words)
    if name in _EXACT:
        return _EXACT[name]
    for pattern, key in _FAMILIES:
        if len(pattern) == len(words) and all(
            p == w or p[0] == "$" for p, w in zip(pattern, words, strict=True)
        ):
            return key
    if name.startswith(PLUGIN_PREFIXES):
        return Key("$key", TEXT, "plugin_settings")
    if name.startswith(UNUSED_PREFIXES):
        return Key(name, TEXT)
    return None


def closest(name: str) -> str | None:
    """Return the known key that is most like `name`, for "did you mean"; None when none is near."""
    words = name.split(".")
    candidates = list(_EXACT)
    for pattern, _ in _FAMILIES:
        # The user's own words stand where the family allows any, so that only the fixed words count.
        if len(pattern) == len(words):
            candidates.append(".".join(w if p[0] == "$" else p for p, w in zip(pattern, words, strict=True)))
        else:
            candidates.append(".".join(pattern))
    matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
    return matches[0] if matches else None
