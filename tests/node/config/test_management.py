"""Settings of the HTTP API, metrics, statistics and definitions (management §6.1, §6.2, §3.2), without a disk."""

import fnmatch
from collections.abc import Mapping

import pytest

from node.config.config import Address, Config, DefinitionsConfig, ExchangeLog, LogFormat, LogLevel
from node.config.file import ConfigError
from node.config.load import DEFAULT_FILE, StartOptions, load_config

CERTIFICATE = "management.ssl.certfile = /pem\n"


class MemoryFiles:
    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = {"/pem": "", **files}

    def read(self, path: str) -> bytes | None:
        text = self.files.get(path)
        return None if text is None else text.encode()

    def expand(self, pattern: str) -> list[str]:
        return sorted(path for path in self.files if fnmatch.fnmatch(path, f"{pattern}/*.conf"))

    def readable(self, path: str) -> bool:
        return path in self.files

    def is_private(self, path: str) -> bool:
        return True


def load(
    text: str = "",
    environ: Mapping[str, str] | None = None,
    plugins: str | None = None,
    **options: object,
) -> Config:
    files = {DEFAULT_FILE: text} | ({} if plugins is None else {"/var/lib/fluffle/enabled_plugins": plugins})
    start = StartOptions(**options)  # type: ignore[arg-type]
    return load_config(start, environ or {}, MemoryFiles(files), hostname="box")


def problems(text: str = "", **arguments: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(text, **arguments)  # type: ignore[arg-type]
    return caught.value.problems


def value_at(config: Config, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


# ---- where ----


@pytest.mark.parametrize(
    ("listen", "management", "prometheus"),
    [
        ((), Address("", 15672), Address("", 15692)),
        (("127.0.0.1:5673",), Address("127.0.0.1", 15673), Address("127.0.0.1", 15693)),
        (("[::1]:5673", "1.2.3.4:6"), Address("::1", 15673), Address("::1", 15693)),
        (("127.0.0.1:0",), None, None),
        ((":55535",), Address("", 65535), None),
        ((":60000",), None, None),
    ],
)
def test_without_settings_ports_follow_the_amqp_port(
    listen: tuple[str, ...], management: Address | None, prometheus: Address | None
) -> None:
    config = load(listen=listen)
    assert (config.management.listen, config.prometheus.listen) == (management, prometheus)
    assert config.management.tls_listen is None
    assert not config.management.is_configured
    assert not config.prometheus.is_configured
    assert config.management.is_on == (management is not None)


def test_a_node_without_amqp_listeners_has_the_usual_ports() -> None:
    config = load("listeners.tcp = none")
    assert config.management.listen == Address("", 15672)


@pytest.mark.parametrize("plugin", ["management", "prometheus"])
@pytest.mark.parametrize(
    ("text", "plain", "tls"),
    [
        ("PLUGIN.tcp.port = 99", Address("", 99), None),
        ("PLUGIN.tcp.ip = ::1\nPLUGIN.tcp.port = 99", Address("::1", 99), None),
        ("PLUGIN.ssl.port = 98\nPLUGIN.ssl.certfile = /pem", None, Address("", 98)),
        (
            "PLUGIN.ssl.port = 98\nPLUGIN.ssl.certfile = /pem\nPLUGIN.tcp.port = 99",
            Address("", 99),
            Address("", 98),
        ),
    ],
)
def test_what_is_configured(plugin: str, text: str, plain: Address, tls: Address) -> None:
    """management §6.1; only TLS configured: no plain listener, as in RabbitMQ."""
    config = value_at(load(text.replace("PLUGIN", plugin)), plugin)
    assert (config.listen, config.tls_listen, config.is_configured) == (plain, tls, True)  # type: ignore[attr-defined]


def test_ports_with_tls_are_one_less() -> None:
    config = load("listeners.tcp.1 = 127.0.0.1:5672\n" + CERTIFICATE)
    assert (config.management.listen, config.management.tls_listen) == (None, Address("127.0.0.1", 15671))


def test_an_address_alone_has_the_usual_port() -> None:
    assert load("management.tcp.ip = 127.0.0.1").management.listen == Address("127.0.0.1", 15672)


def test_the_old_names_of_the_listener() -> None:
    plain = load("management.listener.port = 99\nmanagement.listener.ip = ::1").management
    tls = load(
        "management.listener.port = 99\nmanagement.listener.ssl = true\nmanagement.listener.ssl_opts.certfile = /pem"
    ).management
    assert (plain.listen, plain.tls_listen) == (Address("::1", 99), None)
    assert (tls.listen, tls.tls_listen) == (None, Address("", 99))
    assert tls.tls.certificate_file == "/pem"


def test_tls_options() -> None:
    tls = load(
        CERTIFICATE
        + "management.ssl.keyfile = /pem\nmanagement.ssl.cacertfile = /pem\nmanagement.ssl.password = s3cret\n"
        "management.ssl.verify = verify_peer\nmanagement.ssl.fail_if_no_peer_cert = true\n"
        "management.ssl.versions.2 = tlsv1.2\nmanagement.ssl.versions.1 = tlsv1.3\nmanagement.ssl.ciphers.1 = X"
    ).management.tls
    assert tls.verify_peer
    assert tls.require_peer_certificate
    assert (tls.versions, tls.ciphers) == (("tlsv1.3", "tlsv1.2"), ("X",))
    assert "s3cret" not in repr(tls)


@pytest.mark.parametrize(
    ("management", "api", "metrics"),
    [
        ("off", None, None),
        ("127.0.0.1:99", Address("127.0.0.1", 99), Address("", 15692)),
        ("localhost:99", Address("localhost", 99), Address("", 15692)),
    ],
)
def test_the_command_line(management: str, api: Address | None, metrics: Address | None) -> None:
    config = load(management=management)
    assert (config.management.listen, config.prometheus.listen) == (api, metrics)


def test_the_command_line_wins_over_files() -> None:
    text = "management.tcp.port = 15672\nprometheus.tcp.port = 99"
    assert load(text, management=":7").management.listen == Address("", 7)
    off = load(text, management="off")
    assert not off.management.is_on
    assert off.prometheus.listen == Address("", 99), "somebody asked for it"


# ---- enabled plug-ins ----


@pytest.mark.parametrize(
    ("plugins", "management", "prometheus"),
    [
        (None, True, True),
        ("[].", False, False),
        ("[rabbitmq_management].", True, False),
        ("[rabbitmq_prometheus].", False, True),
        ("[rabbitmq_management,rabbitmq_prometheus,rabbitmq_shovel].", True, True),
    ],
)
def test_the_file_decides_what_is_on(plugins: str | None, management: bool, prometheus: bool) -> None:
    """management §3.2, §6.2."""
    config = load("management.tcp.port = 1", plugins=plugins)
    assert (config.management.is_on, config.prometheus.is_on) == (management, prometheus)


def test_the_file_is_beside_the_data_directory_unless_a_variable_names_it() -> None:
    assert load().enabled_plugins_file == "/var/lib/fluffle/enabled_plugins"
    assert load(data="d").enabled_plugins_file == "./enabled_plugins"
    named = load(environ={"RABBITMQ_ENABLED_PLUGINS_FILE": "/pem"})
    assert (named.enabled_plugins_file, named.enabled_plugins) == ("/pem", ())


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("ALL", ("rabbitmq_management", "rabbitmq_prometheus")),
        ("rabbitmq_prometheus", ("rabbitmq_prometheus",)),
        ("rabbitmq_prometheus, rabbitmq_mqtt", ("rabbitmq_prometheus", "rabbitmq_mqtt")),
    ],
)
def test_a_variable_says_what_is_on(listed: str, names: tuple[str, ...]) -> None:
    config = load(environ={"RABBITMQ_ENABLED_PLUGINS": listed}, plugins="[].")
    assert config.enabled_plugins == names


def test_a_file_that_is_no_list_stops_the_start() -> None:
    assert problems(plugins="rabbitmq_management") == (
        "/var/lib/fluffle/enabled_plugins: this is no list of plug-ins; "
        "allowed: [NAME,NAME]. as rabbitmq-plugins writes it",
    )


def test_the_command_line_wins_over_the_file() -> None:
    config = load(plugins="[].", management="127.0.0.1:99")
    assert config.management.is_on
    assert not config.prometheus.is_on


# ---- the rest ----


@pytest.mark.parametrize(
    ("line", "path", "expected"),
    [
        ("", "management.path_prefix", ""),
        ("management.path_prefix = /a/b/", "management.path_prefix", "/a/b"),
        ("management.path_prefix = a", "management.path_prefix", "/a"),
        ("", "management.max_body_bytes", 10_000_000),
        ("management.http.max_body_size = 5", "management.max_body_bytes", 5),
        ("management.http_log_dir = /l", "management.http_log_dir", "/l"),
        ("", "management.cors_allow_origins", ()),
        ("management.cors.allow_origins.1 = *", "management.cors_allow_origins", ("*",)),
        (
            "management.cors.allow_origins.2 = https://b\nmanagement.cors.allow_origins.1 = https://a",
            "management.cors_allow_origins",
            ("https://a", "https://b"),
        ),
        (
            "management.cors.allow_origins = none\nmanagement.cors.allow_origins.1 = *",
            "management.cors_allow_origins",
            (),
        ),
        ("", "management.cors_max_age_s", 1800),
        ("management.cors.max_age = 3", "management.cors_max_age_s", 3),
        ("management.csp.policy = script-src 'self'", "management.csp_policy", "script-src 'self'"),
        ("management.hsts.policy = max-age=5", "management.hsts_policy", "max-age=5"),
        (
            "management.headers.content_type_options = nosniff\nmanagement.headers.frame_options = DENY",
            "management.headers",
            {"x-content-type-options": "nosniff", "x-frame-options": "DENY"},
        ),
        ("management.headers.xss_protection = 1", "management.headers", {"x-xss-protection": "1"}),
        ("management.login_session_timeout = 60", "management.login_session_timeout_min", 60),
        ("management.disable_basic_auth = true", "management.disable_basic_auth", True),
        ("management.disable_stats = true", "management.disable_stats", True),
        ("management_agent.disable_metrics_collector = true", "management.disable_stats", True),
        ("management.enable_queue_totals = true", "management.enable_queue_totals", True),
        (
            "management.restrictions.operator_policy_changes.disabled = true",
            "management.disable_operator_policy_changes",
            True,
        ),
        ("management.tcp.compress = false", "management.compress", False),
        ("management.tcp.idle_timeout = 1500", "management.idle_timeout_s", 1.5),
        ("", "statistics.rates_mode", "basic"),
        ("management.rates_mode = detailed", "statistics.rates_mode", "detailed"),
        ("", "statistics.interval_s", 5.0),
        ("collect_statistics_interval = 1000", "statistics.interval_s", 1.0),
        ("", "statistics.retention_basic", ((600, 5), (3600, 60))),
        (
            "management.sample_retention_policies.global.hour = 60\n"
            "management.sample_retention_policies.global.minute = 5",
            "statistics.retention_global",
            ((60, 5), (3600, 60)),
        ),
        ("management.sample_retention_policies.detailed.10 = 5", "statistics.retention_detailed", ((10, 5),)),
        ("prometheus.path = /m/", "prometheus.path", "/m"),
        ("prometheus.return_per_object_metrics = true", "prometheus.return_per_object_metrics", True),
        (
            "prometheus.filter_aggregated_queue_metrics_pattern = ^a",
            "prometheus.filter_aggregated_queue_metrics_pattern",
            "^a",
        ),
        ("", "definitions", DefinitionsConfig()),
        ("load_definitions = /d", "definitions.path", "/d"),
        ("definitions.local.path = /d", "definitions.path", "/d"),
        ("management.load_definitions = /d", "definitions.path", "/d"),
        ("management.load_definitions = /d\nload_definitions = /e", "definitions.path", "/e"),
        ("definitions.import_backend = local\nload_definitions = /e", "definitions.path", "/e"),
        ("definitions.skip_if_unchanged = true", "definitions.skip_if_unchanged", True),
        ("definitions.hashing.algorithm = sha512", "definitions.hashing_algorithm", "sha512"),
        ("", "log.exchange", None),
        ("log.exchange = true", "log.exchange", ExchangeLog()),
        ("log.exchange = false\nlog.exchange.level = error", "log.exchange", None),
        (
            "log.exchange = true\nlog.exchange.level = error\nlog.exchange.formatter = json",
            "log.exchange",
            ExchangeLog(LogLevel.ERROR, LogFormat(json=True)),
        ),
    ],
)
def test_key(line: str, path: str, expected: object) -> None:
    """management §6.1."""
    config = load(line)
    assert value_at(config, path) == expected
    assert config.unused == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("management.tcp.port = x", ":1: management.tcp.port: 'x' is not allowed; allowed: a whole number from 0"),
        ("management.tcp.ip = localhost", "allowed: an IP address"),
        ("management.path_prefix = /a b", "allowed: a path of letters, digits and -._~/, or nothing"),
        ("management.csp.policy = ä", "allowed: printable ASCII"),
        ("management.headers.nope = x", "there is no such setting"),
        ("management.rates_mode = fine", "allowed: basic or detailed or none"),
        ("management.ssl.certfile = /nowhere", "'/nowhere' does not exist or cannot be read"),
        ("management.ssl.port = 15671", "management.ssl.port: a TLS listener needs management.ssl.certfile"),
        ("prometheus.ssl.port = 15671", "prometheus.ssl.port: a TLS listener needs prometheus.ssl.certfile"),
        (CERTIFICATE + "management.ssl.verify = verify_peer", "verify_peer needs management.ssl.cacertfile"),
        (CERTIFICATE + "management.ssl.fail_if_no_peer_cert = true", "true needs management.ssl.verify = verify_peer"),
        ("listeners.tcp.1 = 60000\nmanagement.tcp.ip = ::1", "needs management.tcp.port"),
        ("management.sample_retention_policies.all.minute = 5", "allowed as the section: global, basic, detailed"),
        ("management.sample_retention_policies.basic.week = 5", "allowed as the interval: minute, hour, day"),
        ("management.sample_retention_policies.basic.99999999999 = 5", "allowed as the interval"),
        ("management.sample_retention_policies.basic.day = 5", "allowed: no more than 2000 samples"),
        ("management.sample_retention_policies.basic.day = 0", "a whole number of at least 1"),
        ("collect_statistics_interval = 10", "a whole number of at least 100, in milliseconds"),
        ("definitions.import_backend = https", "definitions.import_backend: 'https' is not allowed"),
        ("prometheus.filter_aggregated_queue_metrics_pattern = (", "allowed: a regular expression"),
    ],
)  # fmt: skip
def test_a_bad_value_says_where_and_what_is_allowed(text: str, says: str) -> None:
    assert any(says in problem for problem in problems(text))


def test_a_bad_management_argument() -> None:
    assert problems(management="nowhere") == (
        "--management nowhere: not allowed; allowed: HOST:PORT with a whole number from 0 to 65535",
    )
