"""This module makes the settings of the HTTP API, of metrics and of statistics from the given values.

Which listeners there are follows RabbitMQ: a plain one unless only TLS is configured. Where nothing says their
port, it is as far from the AMQP port as RabbitMQ's, on the interface of the AMQP listener; where that is no port, or
the AMQP port is any, there is none. Source: management
§1.0, §3.2, §5, §6.1, §6.2.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from node.config import plugins as config_plugins
from node.config.config import (
    DEFAULT_PORT,
    MANAGEMENT_PORT_OFFSET,
    PROMETHEUS_PORT_OFFSET,
    Address,
    ManagementConfig,
    PrometheusConfig,
    Retention,
    StatisticsConfig,
    TlsOptions,
)
from node.config.given import Files, Given
from node.config.values import PORT_MAX

OFF: Final = "off"
PLUGINS_FILE: Final = "enabled_plugins"

SAMPLES_MAX: Final = 2000
"""The most samples of one interval of a retention policy: each changing counter of each object keeps as many."""
_INTERVALS: Final = {"minute": 60, "hour": 3600, "day": 86400}
RETENTION_MAX_S: Final = 30 * 86400


class _Listeners(NamedTuple):
    listen: Address | None = None
    tls_listen: Address | None = None
    is_configured: bool = False


def enabled_plugins(
    given: Given, environ: Mapping[str, str], files: Files, data_dir: str
) -> tuple[str, tuple[str, ...] | None]:
    """Return the path of the file that enables plug-ins, and the enabled ones: RABBITMQ_ENABLED_PLUGINS's, else the
    file's, else None.
    """
    directory = data_dir.rstrip("/").rpartition("/")[0]
    path = environ.get("RABBITMQ_ENABLED_PLUGINS_FILE") or f"{directory or '.'}/{PLUGINS_FILE}"
    listed = environ.get("RABBITMQ_ENABLED_PLUGINS")
    if listed:
        names = (
            config_plugins.DEFAULT if listed == "ALL" else filter(None, listed.replace(" ", "").split(","))
        )
        return path, tuple(dict.fromkeys(names))
    try:
        content = files.read(path)
        return path, None if content is None else config_plugins.parse(content)
    except OSError as error:
        given.problems.append(f"{path}: cannot be read: {error.strerror}")
    except ValueError as error:
        given.problems.append(f"{path}: this is no list of plug-ins; {error}")
    return path, None


def listeners(
    given: Given, option: str | None, amqp: Address | None, plugins: tuple[str, ...] | None
) -> tuple[ManagementConfig, PrometheusConfig]:
    """Return the settings of the HTTP API and of the metrics.

    option: the command line's option for the API. amqp: the first AMQP listener. plugins: those that are enabled.
    """
    amqp = amqp or Address("", DEFAULT_PORT)
    _take_legacy_listener(given)
    # Metrics are off, too, when the command line switches the API off, unless they were configured.
    is_prometheus_wanted = option != OFF or plugins is not None or _says(given, "prometheus_")
    management = prometheus = _Listeners()
    if option not in (None, OFF):
        address = given.listen_address("--management", option or "")
        tls = _configured(given, "management", amqp, MANAGEMENT_PORT_OFFSET).tls_listen
        management = _Listeners(address, tls, is_configured=True)
    elif option is None and config_plugins.is_on(config_plugins.MANAGEMENT, plugins):
        management = _configured(given, "management", amqp, MANAGEMENT_PORT_OFFSET)
    if is_prometheus_wanted and config_plugins.is_on(config_plugins.PROMETHEUS, plugins):
        prometheus = _configured(given, "prometheus", amqp, PROMETHEUS_PORT_OFFSET)
    return (
        given.section(ManagementConfig, "management", **_management(given), **management._asdict()),
        given.section(PrometheusConfig, "prometheus", tls=_tls(given, "prometheus"), **prometheus._asdict()),
    )


def _says(given: Given, start: str) -> bool:
    return any(
        field.startswith(f"{start}{kind}.") for kind in ("tcp", "ssl", "tls") for field in given.places
    )


def _take_legacy_listener(given: Given) -> None:
    """Use `management.listener.*`, which is older than separate TLS listeners, where the newer keys are not set."""
    is_tls = given.fields.get("management_legacy.ssl", False)
    for name in ("port", "host"):
        if f"management_legacy.{name}" in given.fields:
            field = f"management_{'ssl' if is_tls else 'tcp'}.{name}"
            given.fields.setdefault(field, given.fields[f"management_legacy.{name}"])
            given.places.setdefault(field, given.places[f"management_legacy.{name}"])


def _configured(given: Given, plugin: str, amqp: Address, offset: int) -> _Listeners:
    """Return the configured listeners. Their default port follows the AMQP port; without one there is no listener."""

    def address(kind: str, default_port: int) -> Address | None:
        host = given.fields.get(f"{plugin}_{kind}.host")
        port = given.fields.get(f"{plugin}_{kind}.port")
        if port is None:
            port = default_port
            if port > PORT_MAX or not amqp.port:
                given.require(
                    host is None,
                    f"{plugin}_{kind}.host",
                    f"AMQP port {amqp.port} and {offset} is no port; needs {plugin}.{kind}.port",
                )
                return None
        elif host is None:
            host = ""  # as in RabbitMQ: a port alone is every interface
        return Address(amqp.host if host is None else host, port)

    names = [field for field in given.places if field.startswith(f"{plugin}_")]
    has_plain = any(field.startswith(f"{plugin}_tcp.") for field in names)
    has_tls = any(field.startswith((f"{plugin}_ssl.", f"{plugin}_tls.")) for field in names)
    if has_tls:
        field = next(name for name in names if name.startswith((f"{plugin}_ssl.", f"{plugin}_tls.")))
        given.require(
            f"{plugin}_tls.certificate_file" in given.fields,
            field,
            f"a TLS listener needs {plugin}.ssl.certfile",
        )
    return _Listeners(
        listen=address("tcp", amqp.port + offset) if has_plain or not has_tls else None,
        tls_listen=address("ssl", amqp.port + offset - 1) if has_tls else None,
        is_configured=has_plain or has_tls,
    )


def _tls(given: Given, plugin: str) -> TlsOptions:
    section = f"{plugin}_tls"
    lists: dict[str, Any] = {
        name: given.numbered(f"{section}_{name}")
        for name in ("versions", "ciphers")
        if f"{section}_{name}" in given.families
    }
    tls = given.section(TlsOptions, section, **lists)
    given.require(
        not tls.verify_peer or tls.ca_file is not None,
        f"{section}.verify_peer",
        f"verify_peer needs {plugin}.ssl.cacertfile",
    )
    given.require(
        not tls.require_peer_certificate or tls.verify_peer,
        f"{section}.require_peer_certificate",
        f"true needs {plugin}.ssl.verify = verify_peer",
    )
    return tls


def _management(given: Given) -> dict[str, Any]:
    headers = {
        field.partition(".")[2]: value
        for field, value in given.fields.items()
        if field.startswith("management_headers.")
    }
    origins = () if "management_cors.none" in given.fields else given.numbered("management_origins")
    has_no_statistics = any(
        given.fields.get(f"{section}.disable_stats", False) for section in ("management", "management_agent")
    )
    return {
        "tls": _tls(given, "management"),
        "headers": headers,
        "cors_allow_origins": origins,
        "disable_stats": has_no_statistics,
    }


def statistics(given: Given) -> StatisticsConfig:
    """Return the statistics' settings; `management.sample_retention_policies.*` replace their section's policy."""
    policies: dict[str, dict[int, int]] = {}
    for name, step_s in given.families.get("retention", {}).items():
        section, _, interval = name.partition(".")
        key = f"management.sample_retention_policies.{name}"
        if section not in ("global", "basic", "detailed"):
            given.problems.append(f"{key}: allowed as the section: global, basic, detailed")
            continue
        is_number = (
            interval.isascii() and interval.isdecimal() and len(interval) < len(str(RETENTION_MAX_S)) + 1
        )
        seconds = _INTERVALS.get(interval, int(interval) if is_number else 0)
        if not 0 < seconds <= RETENTION_MAX_S:
            given.problems.append(
                f"{key}: allowed as the interval: minute, hour, day, or seconds up to {RETENTION_MAX_S}"
            )
        elif seconds > step_s * SAMPLES_MAX:
            given.problems.append(
                f"{key}: a sample every {step_s} s; allowed: no more than {SAMPLES_MAX} samples"
            )
        else:
            policies.setdefault(section, {})[seconds] = step_s
    retention: dict[str, Retention] = {
        f"retention_{section}": tuple(sorted(policy.items())) for section, policy in policies.items()
    }
    return given.section(StatisticsConfig, "statistics", **retention)
