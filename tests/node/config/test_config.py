"""Settings from command line, environment and files (management §6.1, §6.2), without a disk."""

import contextlib
import dataclasses
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config import environment
from node.config import keys as config_keys
from node.config.config import Address, Config, LogLevel, Product
from node.config.file import ConfigError
from node.config.load import DEFAULT_FILE, StartOptions, load_config
from node.version import VERSION
from tests.kit.config import MemoryFiles, load

ROOT = Path(__file__).parents[3]


def problems(
    text: str = "", environ: Mapping[str, str] | None = None, options: StartOptions | None = None
) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(text, environ, options=options)
    return caught.value.problems


def value_at(config: Config, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


# ---- defaults ----


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tcp_listeners", (Address("", 5672),)),
        ("tls_listeners", ()),
        ("amqp.channel_max", 2047),
        ("amqp.frame_max_bytes", 131072),
        ("amqp.heartbeat_s", 60),
        ("amqp.initial_frame_max_bytes", 4096),
        ("network.handshake_timeout_s", 10.0),
        ("network.tls_handshake_timeout_s", 5.0),
        ("network.proxy_protocol", False),
        ("auth.loopback_users", frozenset({"guest"})),
        ("auth.mechanisms", ("PLAIN", "AMQPLAIN")),
        ("auth.certificate_login.source", "distinguished_name"),
        ("auth.password_hashing", "rabbit_password_hashing_sha256"),
        ("amqp.max_message_bytes", 134217728),
        ("amqp.consumer_timeout_s", 1800.0),
        ("amqp.channel_tick_interval_s", 60.0),
        ("amqp.default_prefetch_count", 0),
        ("amqp.connection_max", None),
        ("seed.vhost", "/"),
        ("seed.user", "guest"),
        ("seed.password", "guest"),
        ("seed.tags", ("administrator",)),
        ("seed.configure", ".*"),
        ("memory.watermark_relative", 0.4),
        ("memory.watermark_absolute_bytes", None),
        ("memory.paging_ratio", 0.5),
        ("memory.monitor_interval_s", 2.5),
        ("memory.total_override_bytes", None),
        ("memory.calculation_strategy", "rss"),
        ("disk.free_limit_bytes", 50_000_000),
        ("disk.free_limit_relative", None),
        ("store.embed_max_bytes", 4096),
        ("store.store_file_bytes", 16777216),
        ("store.journal_file_bytes", 67108864),
        ("store.segment_entries", 16384),
        ("store.commit_interval_s", 0.025),
        ("store.scrub_rate", 1 << 20),
        ("store.shutdown_timeout_s", 600.0),
        ("socket.backlog", 128),
        ("socket.nodelay", True),
        ("socket.linger", True),
        ("socket.linger_timeout_s", 0),
        ("socket.keepalive", False),
        ("node_name", "rabbit@box"),
        ("cluster_name", "rabbit@box"),
        ("data_dir", "/var/lib/fluffle/rabbit@box"),
        ("product", Product("RabbitMQ", "3.10.8")),
        ("log.file", None),
        ("unused", ()),
    ],
)
def test_default(path: str, expected: object) -> None:
    """amqp-behaviour §11 and management §6.1, row by row."""
    assert value_at(load(), path) == expected


def test_no_file_at_all_is_fine() -> None:
    config = load_config(StartOptions(), {}, MemoryFiles({}), hostname="box")
    assert config.files == ()
    assert config.amqp.heartbeat_s == 60


# ---- single keys ----


@pytest.mark.parametrize(
    ("line", "path", "expected"),
    [
        ("listeners.tcp.default = 5673", "tcp_listeners", (Address("", 5673),)),
        ("listeners.tcp.1 = 127.0.0.1:5673", "tcp_listeners", (Address("127.0.0.1", 5673),)),
        ("listeners.tcp.local_v6 = ::1:5672", "tcp_listeners", (Address("::1", 5672),)),
        ("listeners.tcp.v6 = [::1]:5672", "tcp_listeners", (Address("::1", 5672),)),
        ("listeners.tcp = none", "tcp_listeners", ()),
        ("handshake_timeout = 2500", "network.handshake_timeout_s", 2.5),
        ("handshake_timeout = infinity", "network.handshake_timeout_s", None),
        ("ssl_handshake_timeout = 1000", "network.tls_handshake_timeout_s", 1.0),
        ("loopback_users = none", "auth.loopback_users", frozenset()),
        ("loopback_users.guest = false", "auth.loopback_users", frozenset()),
        ("loopback_users.bob = true", "auth.loopback_users", frozenset({"guest", "bob"})),
        (r"loopback_users.a\.b = true", "auth.loopback_users", frozenset({"guest", "a.b"})),
        ("ssl_options.versions.1 = tlsv1.3", "tls.versions", ("tlsv1.3",)),
        ("ssl_options.honor_cipher_order = false", "tls.honor_cipher_order", False),
        ("auth_mechanisms.1 = EXTERNAL", "auth.mechanisms", ("EXTERNAL",)),
        ("ssl_cert_login_from = common_name", "auth.certificate_login.source", "common_name"),
        (
            "ssl_cert_login_from = subject_alt_name",
            "auth.certificate_login.source",
            "subject_alternative_name",
        ),
        ("ssl_cert_login_san_type = email", "auth.certificate_login.san_type", "email"),
        ("ssl_cert_login_san_index = 1", "auth.certificate_login.san_index", 1),
        ("default_vhost = app", "seed.vhost", "app"),
        ("default_user = bob", "seed.user", "bob"),
        ("default_pass = 'a#b'", "seed.password", "a#b"),
        ("default_permissions.write = ^app", "seed.write", "^app"),
        ("default_user_tags.monitoring = true", "seed.tags", ("monitoring",)),
        ("default_user_tags.administrator = false", "seed.tags", ()),
        (
            "password_hashing_module = rabbit_password_hashing_sha512",
            "auth.password_hashing",
            "rabbit_password_hashing_sha512",
        ),
        ("heartbeat = 0", "amqp.heartbeat_s", 0),
        ("frame_max = 256KB", "amqp.frame_max_bytes", 262144),
        ("frame_max = 0", "amqp.frame_max_bytes", 0),
        ("initial_frame_max = 8192", "amqp.initial_frame_max_bytes", 8192),
        ("channel_max = 0", "amqp.channel_max", 0),
        ("connection_max = 10", "amqp.connection_max", 10),
        ("connection_max = infinity", "amqp.connection_max", None),
        ("max_message_size = 536870912", "amqp.max_message_bytes", 536870912),
        ("max_message_size = 16MiB", "amqp.max_message_bytes", 16777216),
        ("consumer_timeout = 5000", "amqp.consumer_timeout_s", 5.0),
        ("channel_tick_interval = 1000", "amqp.channel_tick_interval_s", 1.0),
        ("default_consumer_prefetch = 250", "amqp.default_prefetch_count", 250),
        ("default_consumer_prefetch.global = true", "amqp.default_prefetch_global", True),
        ("vm_memory_high_watermark.relative = 0.6", "memory.watermark_relative", 0.6),
        ("vm_memory_high_watermark.relative = 1.5", "memory.watermark_relative", 1.0),
        ("vm_memory_high_watermark.relative = 0.0", "memory.watermark_relative", 0.0),
        ("vm_memory_high_watermark.absolute = 2GB", "memory.watermark_absolute_bytes", 2_000_000_000),
        ("vm_memory_high_watermark.absolute = 2GiB", "memory.watermark_absolute_bytes", 2 << 30),
        ("vm_memory_high_watermark.absolute = 1024M", "memory.watermark_absolute_bytes", 1 << 30),
        ("vm_memory_high_watermark_paging_ratio = 0.75", "memory.paging_ratio", 0.75),
        ("memory_monitor_interval = 500", "memory.monitor_interval_s", 0.5),
        ("total_memory_available_override_value = 4GB", "memory.total_override_bytes", 4_000_000_000),
        ("vm_memory_calculation_strategy = rss", "unused", ()),
        ("vm_memory_calculation_strategy = legacy", "unused", ("vm_memory_calculation_strategy",)),
        ("disk_free_limit.absolute = 50000", "disk.free_limit_bytes", 50_000),
        ("disk_free_limit.absolute = 500kB", "disk.free_limit_bytes", 500_000),
        ("disk_free_limit.relative = 2.0", "disk.free_limit_relative", 2.0),
        ("queue_index_embed_msgs_below = 0", "store.embed_max_bytes", 0),
        ("queue_index_embed_msgs_below = 8kb", "store.embed_max_bytes", 8192),
        ("msg_store_file_size_limit = 32MB", "store.store_file_bytes", 32 << 20),
        ("message_store_shutdown_timeout = 5000", "store.shutdown_timeout_s", 5.0),
        ("store.journal_file_size = 128MiB", "store.journal_file_bytes", 128 << 20),
        ("store.commit_interval = 0", "store.commit_interval_s", 0.0),
        ("store.scrub_rate = 0", "store.scrub_rate", 0),
        ("store.scrub_rate = 4MB", "store.scrub_rate", 4 << 20),
        ("credit_flow_default_credit = {400, 200}", "unused", ("credit_flow_default_credit",)),
        ("mirroring_flow_control = true", "unused", ("mirroring_flow_control",)),
        ("slave_wait_timeout = 15000", "unused", ("slave_wait_timeout",)),
        ("tcp_listen_options.backlog = 4096", "socket.backlog", 4096),
        ("tcp_listen_options.nodelay = false", "socket.nodelay", False),
        ("tcp_listen_options.linger.on = false", "socket.linger", False),
        ("tcp_listen_options.linger.timeout = 3", "socket.linger_timeout_s", 3),
        ("tcp_listen_options.keepalive = true", "socket.keepalive", True),
        ("tcp_listen_options.sndbuf = 65536", "socket.send_buffer_bytes", 65536),
        ("tcp_listen_options.recbuf = 65536", "socket.receive_buffer_bytes", 65536),
        ("cluster_name = prod", "cluster_name", "prod"),
        ("identity = own", "product", Product("Fluffle", VERSION)),
        ("product.name = Acme", "product", Product("Acme", "3.10.8")),
        ("product.version = 9.9", "product", Product("RabbitMQ", "9.9")),
        ("log.console.stdio = stdout", "log.console.stream", "stdout"),
        ("log.console.level = debug", "log.console.level", LogLevel.DEBUG),
        ("log.console.formatter = json", "log.console.format.json", True),
        ("log.console.use_colors = on", "log.console.colors", True),
        ("log.console = false", "log.console", None),
        ("log.dir = /l", "log.file.path", "/l/rabbit@box.log"),
        ("log.file = /x/y.log", "log.file.path", "/x/y.log"),
        ("log.file = y.log", "log.file.path", "/var/log/fluffle/y.log"),
        ("log.file = y.log", "log.console", None),
        ("log.connection.level = debug", "log.category_levels", {"connection": LogLevel.DEBUG}),
        ("log.default.level = error", "log.console.level", LogLevel.ERROR),
    ],
)
def test_key(line: str, path: str, expected: object) -> None:
    """management §6.1, row by row."""
    assert value_at(load(line), path) == expected


def test_several_listeners_come_in_the_order_of_their_numbers() -> None:
    config = load("listeners.tcp.10 = 3\nlisteners.tcp.name = 4\nlisteners.tcp.2 = 1\n")
    assert [listener.port for listener in config.tcp_listeners] == [1, 3, 4]


def test_lists_are_sorted_by_number_not_by_text() -> None:
    text = "auth_mechanisms.10 = AMQPLAIN\nauth_mechanisms.9 = EXTERNAL\nauth_mechanisms.1 = PLAIN"
    assert load(text).auth.mechanisms == ("PLAIN", "EXTERNAL", "AMQPLAIN")


def test_tls() -> None:
    text = (
        "listeners.ssl.default = 5671\nssl_options.cacertfile = /ca\nssl_options.certfile = /cert\n"
        "ssl_options.keyfile = /key\nssl_options.password = s3cret\nssl_options.verify = verify_peer\n"
        "ssl_options.fail_if_no_peer_cert = true\n"
    )
    config = load(text, files={"/ca": "", "/cert": "", "/key": ""})
    assert config.tls_listeners == (Address("", 5671),)
    assert (config.tls.ca_file, config.tls.certificate_file, config.tls.key_file) == ("/ca", "/cert", "/key")
    assert (config.tls.verify_peer, config.tls.require_peer_certificate) == (True, True)
    assert config.tls.key_password == "s3cret"


@pytest.mark.parametrize("first", ["relative = 0.6", "absolute = 1GB"])
def test_a_relative_watermark_wins_over_an_absolute_one(first: str) -> None:
    """rabbit.schema of 3.10.8, whatever the order; the disk's limits are told apart in node.io.resources."""
    second = "absolute = 1GB" if first.startswith("relative") else "relative = 0.6"
    memory = load(f"vm_memory_high_watermark.{first}\nvm_memory_high_watermark.{second}").memory
    assert (memory.watermark_relative, memory.watermark_absolute_bytes) == (0.6, None)


def test_proxy_sources() -> None:
    text = "proxy_protocol = true\nproxy_protocol_sources.1 = 10.0.0.0/8\nproxy_protocol_sources.2 = ::1"
    network = load(text).network
    assert network.proxy_protocol
    assert network.proxy_protocol_sources == (
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_network("::1/128"),
    )


def test_a_credential_validator_brings_its_argument() -> None:
    start = "credential_validator.validation_backend = rabbit_credential_validator_"
    auth = load(f"{start}min_password_length\ncredential_validator.min_length = 12").auth
    assert (auth.password_length_min, auth.password_regexp) == (12, None)
    auth = load(f"{start}password_regexp\ncredential_validator.regexp = ^.{{9}}").auth
    assert (auth.password_length_min, auth.password_regexp) == (None, "^.{9}")
    # As in RabbitMQ, an argument of a validator that is not chosen does nothing.
    assert load("credential_validator.min_length = 12").auth.password_length_min is None


# ---- files ----


def test_conf_d_is_read_in_name_order_and_the_later_wins() -> None:
    files = {
        "/etc/fluffle/conf.d/20.conf": "heartbeat = 20",
        "/etc/fluffle/conf.d/10.conf": "heartbeat = 10\nchannel_max = 5",
        "/etc/fluffle/conf.d/30.txt": "heartbeat = 30",
    }
    config = load("heartbeat = 1\nframe_max = 8192", files=files)
    assert (config.amqp.heartbeat_s, config.amqp.channel_max, config.amqp.frame_max_bytes) == (20, 5, 8192)
    assert config.files == (DEFAULT_FILE, "/etc/fluffle/conf.d/10.conf", "/etc/fluffle/conf.d/20.conf")


def test_within_a_file_the_later_wins() -> None:
    assert load("heartbeat = 1\nheartbeat = 2").amqp.heartbeat_s == 2


def test_config_on_the_command_line_is_the_whole_configuration() -> None:
    files = {"/etc/fluffle/conf.d/10.conf": "heartbeat = 10", "my.conf": "channel_max = 7"}
    config = load("frame_max = 8192", files=files, options=StartOptions(config="my.conf"))
    assert config.files == ("my.conf",)
    assert (config.amqp.heartbeat_s, config.amqp.channel_max, config.amqp.frame_max_bytes) == (60, 7, 131072)


def test_a_named_file_must_exist() -> None:
    assert problems(options=StartOptions(config="no.conf")) == ("no.conf: there is no such file",)
    assert problems(environ={"RABBITMQ_CONFIG_FILE": "/no"}) == ("/no.conf: there is no such file",)


def test_a_file_that_cannot_be_read_is_named() -> None:
    class Locked(MemoryFiles):
        def read(self, path: str) -> bytes | None:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(ConfigError, match=r"fluffle\.conf: cannot be read: Permission denied"):
        load_config(StartOptions(), {}, Locked({}), hostname="h")


# ---- what stops the start ----


def test_an_unknown_key_names_file_line_key_and_the_closest_known() -> None:
    assert problems("# c\nheartbeet = 5") == (
        f"{DEFAULT_FILE}:2: heartbeet: there is no such setting; did you mean heartbeat?",
    )


@pytest.mark.parametrize(
    ("key", "closest"),
    [
        ("listener.tcp.default", "listeners.tcp.default"),
        ("default_password", "default_pass"),
        ("ssl_options.cacert_file", "ssl_options.cacertfile"),
        ("auth_mechanism.1", "auth_mechanisms.1"),
        ("log.consol.level", "log.console.level"),
    ],
)
def test_the_closest_known_key(key: str, closest: str) -> None:
    (problem,) = problems(f"{key} = 1")
    assert problem.endswith(f"did you mean {closest}?")


def test_nothing_is_suggested_for_what_resembles_nothing() -> None:
    assert problems("zzzzzz = 1") == (f"{DEFAULT_FILE}:1: zzzzzz: there is no such setting",)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("heartbeat = x", "a whole number from 0 to 65535, in seconds"),
        ("heartbeat = -1", "a whole number from 0 to 65535, in seconds"),
        ("heartbeat = 70000", "a whole number from 0 to 65535, in seconds"),
        ("frame_max = 100", "a number of bytes from 4096 to 2147483647, or 0"),
        ("frame_max = 10 MB", "a number of bytes"),
        ("frame_max = 10MBB", "a number of bytes"),
        ("max_message_size = 0", "a number of bytes from 1 to 536870912"),
        ("max_message_size = 536870913", "a number of bytes from 1 to 536870912"),
        ("consumer_timeout = 0", "a whole number of at least 1, in milliseconds"),
        ("proxy_protocol = yes", "true or false"),
        ("listeners.tcp.1 = localhost:5672", "a port from 0 to 65535, or IP:PORT"),
        ("listeners.tcp.1 = 65536", "a port from 0 to 65535, or IP:PORT"),
        ("listeners.tcp = all", "none"),
        ("auth_mechanisms.1 = SCRAM", "PLAIN or AMQPLAIN or EXTERNAL"),
        ("auth_backends.1 = LDAP", "a name such as internal, http or cache"),
        ("ssl_options.verify = peer", "verify_peer or verify_none"),
        ("ssl_options.crl_check = true", "false"),
        ("ssl_options.certfile = /no/such", "a file that the node can read"),
        ("ssl_cert_login_san_type = other_name", "dns or ip or email or uri"),
        ("default_permissions.read = (", "a regular expression"),
        ("log.console.level = loud", "debug or info or notice"),
        ("proxy_protocol_sources.1 = 10.1.2.3/8", "an IP address or network, such as 10.0.0.0/8"),
        ("vm_memory_high_watermark.relative = 1", "a number with a decimal point, such as 0.4"),
        ("vm_memory_high_watermark.absolute = 40%", "a number of bytes; units k, M, G"),
        ("vm_memory_high_watermark_paging_ratio = 1.0", "a number with a decimal point between 0.0 and 1.0"),
        ("vm_memory_high_watermark_paging_ratio = 0.0", "a number with a decimal point between 0.0 and 1.0"),
        ("vm_memory_calculation_strategy = vsz", "rss or erlang or allocated or legacy"),
        ("memory_monitor_interval = 0", "a whole number of at least 1, in milliseconds"),
        ("disk_free_limit.absolute = 1TB", "a number of bytes"),
        ("disk_free_limit.relative = 1", "a number with a decimal point, such as 0.4"),
        ("queue_index_embed_msgs_below = -1", "a number of bytes of at least 0"),
        ("msg_store_file_size_limit = 1000", "a number of bytes from 65536 to 1073741824"),
        ("store.journal_file_size = 2GB", "a number of bytes from 65536 to 1073741824"),
        ("store.commit_interval = 10001", "a whole number from 0 to 10000, in milliseconds"),
        ("cluster_partition_handling = always", "ignore or pause_minority or autoheal or pause_if_all_down"),
    ],
)
def test_a_bad_value_names_file_line_key_and_what_is_allowed(line: str, allowed: str) -> None:
    (problem,) = problems(f"\n\n{line}")
    key, _, value = line.partition(" = ")
    assert problem.startswith(f"{DEFAULT_FILE}:3: {key}: {value!r} ")
    assert f"; allowed: {allowed}" in problem


@pytest.mark.parametrize(
    ("text", "key", "needs"),
    [
        ("listeners.ssl.1 = 5671", "listeners.ssl.1", "ssl_options.certfile"),
        ("ssl_options.verify = verify_peer", "ssl_options.verify", "ssl_options.cacertfile"),
        ("ssl_options.fail_if_no_peer_cert = true", "ssl_options.fail_if_no_peer_cert", "verify_peer"),
        ("proxy_protocol = true", "proxy_protocol", "proxy_protocol_sources.1"),
        (
            "credential_validator.validation_backend = rabbit_credential_validator_min_password_length",
            "credential_validator.validation_backend",
            "credential_validator.min_length",
        ),
    ],
)
def test_settings_that_need_another(text: str, key: str, needs: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"{DEFAULT_FILE}:1: {key}: ")
    assert needs in problem


def test_all_problems_are_told_at_once() -> None:
    found = problems("nope = 1\nheartbeat = x\n", environ={"RABBITMQ_NODE_PORT": "y"})
    assert len(found) == 3


@given(st.binary(max_size=200))
def test_any_bytes_give_a_config_or_problems(content: bytes) -> None:
    class Raw(MemoryFiles):
        def read(self, path: str) -> bytes | None:
            return content

    with contextlib.suppress(ConfigError):
        load_config(StartOptions(), {}, Raw({}), hostname="h")


@given(st.sampled_from([*config_keys.KEYS, *config_keys.UNUSED]), st.text(max_size=30))
def test_any_value_of_any_key_gives_a_config_or_problems(key: config_keys.Key, value: str) -> None:
    name = re.sub(r"\$\w+", "1", key.pattern)
    with contextlib.suppress(ConfigError):
        load(f"{name} = '{value}'")


# ---- keys without effect ----


def test_keys_of_features_to_come_are_accepted_and_listed() -> None:
    config = load(
        "management.db_cache_multiplier = 5\nvm_memory_high_watermark.relative = 0.4\n"
        "queue_index_max_journal_entries = 32768\n"
        "net_ticktime = 60\nstream.frame_max = x\nheartbeat = 5\n"
        "cluster_partition_handling = pause_minority\nlog.connection.file = c.log\n"
    )
    assert config.unused == (
        "management.db_cache_multiplier",
        "queue_index_max_journal_entries",
        "net_ticktime",
        "stream.frame_max",
        "log.connection.file",
    )


def test_no_key_is_listed_twice() -> None:
    patterns = [key.pattern for key in (*config_keys.KEYS, *config_keys.UNUSED)]
    assert len(patterns) == len(set(patterns))


@pytest.mark.parametrize("key", [*config_keys.KEYS, *config_keys.UNUSED], ids=lambda key: key.pattern)
def test_every_key_finds_itself(key: config_keys.Key) -> None:
    words = tuple("1" if word[0] == "$" else word for word in key.pattern.split("."))
    assert config_keys.find(words) == key


# ---- environment ----


@pytest.mark.parametrize(
    ("environ", "path", "expected"),
    [
        ({"RABBITMQ_NODENAME": "n1@h1"}, "node_name", "n1@h1"),
        ({"RABBITMQ_NODENAME": "n1"}, "node_name", "n1@box"),
        ({"RABBITMQ_USE_LONGNAME": "true"}, "node_name", "rabbit@box.example.org"),
        ({"RABBITMQ_NODE_PORT": "5999"}, "tcp_listeners", (Address("", 5999),)),
        ({"RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1"}, "tcp_listeners", (Address("127.0.0.1", 5672),)),
        (
            {"RABBITMQ_NODE_IP_ADDRESS": "::1", "RABBITMQ_NODE_PORT": "7"},
            "tcp_listeners",
            (Address("::1", 7),),
        ),
        ({"RABBITMQ_NODE_IP_ADDRESS": "auto"}, "tcp_listeners", (Address("", 5672),)),
        ({"RABBITMQ_DEFAULT_USER": "u"}, "seed.user", "u"),
        ({"RABBITMQ_DEFAULT_PASS": "p"}, "seed.password", "p"),
        ({"RABBITMQ_DEFAULT_VHOST": "v"}, "seed.vhost", "v"),
        ({"RABBITMQ_DEFAULT_USER": ""}, "seed.user", "guest"),
        ({"RABBITMQ_MNESIA_BASE": "/b"}, "data_dir", "/b/rabbit@box"),
        ({"RABBITMQ_MNESIA_DIR": "/d", "RABBITMQ_MNESIA_BASE": "/b"}, "data_dir", "/d"),
        ({"RABBITMQ_PRODUCT_NAME": "X", "RABBITMQ_PRODUCT_VERSION": "2"}, "product", Product("X", "2")),
        ({"RABBITMQ_LOG_BASE": "/l"}, "log.file.path", "/l/rabbit@box.log"),
        ({"RABBITMQ_LOGS": "-"}, "log.console.stream", "stdout"),
        ({"RABBITMQ_LOGS": "-stderr"}, "log.console.stream", "stderr"),
        ({"RABBITMQ_LOGS": "-", "RABBITMQ_LOG_BASE": "/l"}, "log.file", None),
        ({"RABBITMQ_LOGS": "/l/x.log"}, "log.file.path", "/l/x.log"),
        ({"RABBITMQ_LOGS": "/l/x.log"}, "log.console", None),
        ({"RABBITMQ_LOG": "debug"}, "log.console.level", LogLevel.DEBUG),
        ({"RABBITMQ_LOG": "connection=error"}, "log.category_levels", {"connection": LogLevel.ERROR}),
        ({"RABBITMQ_LOG": "connection,debug"}, "log.category_levels", {"connection": LogLevel.INFO}),
        ({"RABBITMQ_LOG": "+json"}, "log.console.format.json", True),
        ({"RABBITMQ_LOG": "+color"}, "log.console.colors", True),
        ({"RABBITMQ_PID_FILE": "/p"}, "unused", ("RABBITMQ_PID_FILE",)),
    ],
)
def test_variable(environ: Mapping[str, str], path: str, expected: object) -> None:
    """management §6.2."""
    assert value_at(load(environ=environ), path) == expected


def test_listeners_in_a_file_win_over_the_port_variable_as_in_rabbitmq() -> None:
    config = load("listeners.tcp.1 = 1234", environ={"RABBITMQ_NODE_PORT": "5999"})
    assert config.tcp_listeners == (Address("", 1234),)


def test_other_variables_win_over_files() -> None:
    assert load("default_user = f", environ={"RABBITMQ_DEFAULT_USER": "e"}).seed.user == "e"


def test_config_file_variables() -> None:
    files = {"/c/r.conf": "heartbeat = 3", "/c/d/1.conf": "channel_max = 3", "/c/d/2.conf": "channel_max = 4"}
    environ = {"RABBITMQ_CONFIG_FILE": "/c/r", "RABBITMQ_CONFIG_FILES": "/c/d"}
    config = load("frame_max = 8192", environ, files)
    assert config.files == ("/c/r.conf", "/c/d/1.conf", "/c/d/2.conf")
    assert (
        load(environ=environ | {"RABBITMQ_CONFIG_FILES": "/c/d/1*.conf"}, files=files).amqp.channel_max == 3
    )


def test_a_file_of_erlang_terms_is_refused() -> None:
    (problem,) = problems(environ={"RABBITMQ_CONFIG_FILE": "/c/rabbitmq.config"})
    assert "Erlang terms are not supported" in problem


@pytest.mark.parametrize("name", environment.REMOVED)
def test_removed_container_variables_refuse_to_start(name: str) -> None:
    """management §6.2."""
    assert problems(environ={name: "x"}) == (
        f"the environment variable {name} is not supported; use a configuration file",
    )


@pytest.mark.parametrize(
    "environ",
    [
        {"RABBITMQ_NODE_PORT": "http"},
        {"RABBITMQ_NODE_IP_ADDRESS": "localhost"},
        {"RABBITMQ_NODENAME": "a/../b@h"},
        {"RABBITMQ_LOG": "loud"},
        {"RABBITMQ_LOG": "connection=loud"},
        {"RABBITMQ_LOGS": "syslog:x"},
    ],
)
def test_a_bad_variable_says_what_is_allowed(environ: Mapping[str, str]) -> None:
    (problem,) = problems(environ=environ)
    assert "allowed: " in problem


# ---- command line ----


def test_the_command_line_wins() -> None:
    environ = {"RABBITMQ_NODENAME": "e@e", "RABBITMQ_MNESIA_DIR": "/e", "RABBITMQ_NODE_PORT": "1"}
    options = StartOptions(
        name="n1", data="/d", listen=("127.0.0.1:5999", ":1", "[::1]:2", "localhost:3", "4")
    )
    config = load("listeners.tcp.1 = 9", environ, options=options)
    assert (config.node_name, config.data_dir) == ("n1@box", "/d")
    assert config.tcp_listeners == (
        Address("127.0.0.1", 5999),
        Address("", 1),
        Address("::1", 2),
        Address("localhost", 3),
        Address("", 4),
    )


def test_listen_leaves_tls_listeners_alone() -> None:
    text = "listeners.ssl.1 = 5671\nssl_options.certfile = /cert"
    config = load(text, files={"/cert": ""}, options=StartOptions(listen=(":1",)))
    assert config.tls_listeners == (Address("", 5671),)


@pytest.mark.parametrize("text", ["localhost", "h:p", "h:70000", ""])
def test_a_bad_listen_argument(text: str) -> None:
    (problem,) = problems(options=StartOptions(listen=(text,)))
    assert problem.startswith(f"--listen {text}: not allowed; allowed: HOST:PORT")


# ---- secrets, documents ----


def test_a_config_shows_no_secret() -> None:
    config = load("default_pass = s3cret\nssl_options.password = s3cret")
    assert config.seed.password == "s3cret"
    assert config.tls.key_password == "s3cret"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(dataclasses.replace(config, unused=("x",)))


def test_problems_show_no_secret() -> None:
    assert "s3cret" not in str(problems("default_pass = s3cret\nssl_options.password = s3cret\nnope = 1"))


def test_every_key_and_variable_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    keys = [key.pattern for key in (*config_keys.KEYS, *config_keys.UNUSED)]
    names = [*environment.REMOVED, *environment.UNUSED]
    categories = "|".join(config_keys.LOG_CATEGORIES)
    missing = []
    for name in [*keys, *config_keys.UNUSED_PREFIXES, *names]:
        plain = re.sub(rf"^log\.({categories})\.(level|file|rotation)", r"log.CATEGORY.\2", name)
        plain = re.sub(r"^log\.(console|file|exchange)\.(level|formatter)", r"log.OUTPUT.\2", plain)
        plain = re.sub(r"^(management|prometheus)\.(tcp|ssl)\.(port|ip|\w*file)$", r"PLUGIN.\2.\3", plain)
        plain = re.sub(r"^(management|prometheus)\.ssl\.(\w+)", r"PLUGIN.ssl.\2", plain)
        plain = re.sub(r"\$(\w+)", lambda m: m[1].upper(), plain)
        if f"`{plain}`" not in text:
            missing.append(plain)
    assert not missing


def test_our_version_is_the_packages() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert package["project"]["version"] == VERSION
