"""This module reads the environment variables of RabbitMQ that this node can use, and our own.

An empty variable counts as not set. Precedence, as in RabbitMQ: command line, environment, files, defaults;
but listeners in a file win over RABBITMQ_NODE_IP_ADDRESS and RABBITMQ_NODE_PORT. Source: management §6.2,
rabbit_env.erl v3.10.8.
"""

from collections.abc import Mapping
from typing import Any, Final

from node.config.config import LogLevel
from node.config.keys import LOG_CATEGORIES
from node.config.values import NODE, NODE_NAME, PEER_PORT, PORT, Address, address

REMOVED: Final = tuple(
    f"RABBITMQ_{name}"
    for name in (
        "DEFAULT_PASS_FILE",
        "DEFAULT_USER_FILE",
        "MANAGEMENT_SSL_CACERTFILE",
        "MANAGEMENT_SSL_CERTFILE",
        "MANAGEMENT_SSL_DEPTH",
        "MANAGEMENT_SSL_FAIL_IF_NO_PEER_CERT",
        "MANAGEMENT_SSL_KEYFILE",
        "MANAGEMENT_SSL_VERIFY",
        "SSL_CACERTFILE",
        "SSL_CERTFILE",
        "SSL_DEPTH",
        "SSL_FAIL_IF_NO_PEER_CERT",
        "SSL_KEYFILE",
        "SSL_VERIFY",
        "VM_MEMORY_HIGH_WATERMARK",
    )
)
"""Variables with which RabbitMQ's images refuse to start since 3.9, as an operator who sets one expects an effect."""

UNUSED: Final = tuple(
    f"RABBITMQ_{name}"
    for name in (
        "ADVANCED_CONFIG_FILE",
        "CONF_ENV_FILE",
        "DISTRIBUTION_BUFFER_SIZE",
        "FEATURE_FLAGS",
        "IO_THREAD_POOL_SIZE",
        "MAX_NUMBER_OF_PROCESSES",
        "MOTD_FILE",
        "PID_FILE",
        "PLUGINS_DIR",
        "QUORUM_DIR",
        "SERVER_ADDITIONAL_ERL_ARGS",
        "SERVER_ERL_ARGS",
        "STREAM_DIR",
        "UPGRADE_LOG",
    )
)

_FIELDS: Final = {
    "RABBITMQ_DEFAULT_USER": "seed.user",
    "RABBITMQ_DEFAULT_PASS": "seed.password",
    "RABBITMQ_DEFAULT_VHOST": "seed.vhost",
    "RABBITMQ_PRODUCT_NAME": "product.name",
    "RABBITMQ_PRODUCT_VERSION": "product.version",
    "RABBITMQ_LOG_BASE": "log.dir",
}
_LOG_SWITCHES: Final = {"color": "console.colors", "json": "json", "single_line": "single_line"}


def removed(environ: Mapping[str, str]) -> list[str]:
    """Return a problem for each variable that must not be set any more."""
    return [
        f"the environment variable {name} is not supported; use a configuration file"
        for name in REMOVED
        if environ.get(name)
    ]


def overrides(environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Return the fields (see `keys.Key.field`) that variables set. Adds invalid values to `problems`."""
    fields: dict[str, Any] = {field: environ[name] for name, field in _FIELDS.items() if environ.get(name)}
    logs = environ.get("RABBITMQ_LOGS")
    if logs in ("-", "-stderr"):
        fields |= {"log.console": True, "log.file": False}
        fields["console.stream"] = "stdout" if logs == "-" else "stderr"
    elif logs and logs.startswith(("exchange:", "syslog:")):
        problems.append(
            "RABBITMQ_LOGS: exchange: and syslog: are not supported; allowed: -, -stderr or a file name"
        )
    elif logs:
        fields |= {"log.console": False, "log.file": logs}
    if environ.get("RABBITMQ_LOG"):
        fields |= _log_levels(environ["RABBITMQ_LOG"], problems)
    return fields


def _log_levels(text: str, problems: list[str]) -> dict[str, Any]:
    """Return the fields that RABBITMQ_LOG sets.

    Its parts, with commas between: LEVEL, CATEGORY=LEVEL, CATEGORY, ±color, ±json, ±single_line.
    """
    levels = {level.name.lower() for level in LogLevel}
    fields: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        category, _, level = part.partition("=")
        if part[0] in "+-" and part[1:] in _LOG_SWITCHES:
            field = _LOG_SWITCHES[part[1:]]
            for name in [field] if "." in field else [f"console_format.{field}", f"file_format.{field}"]:
                fields[name] = part[0] == "+"
        elif part in levels:
            fields |= {"console.level": part, "file.level": part}
        elif category in LOG_CATEGORIES and (level or "info") in levels:
            fields[f"log_levels.{category}"] = level or "info"
        else:
            problems.append(
                f"RABBITMQ_LOG: {part!r} is not allowed; allowed: a level ({', '.join(sorted(levels))}), "
                f"CATEGORY=LEVEL with a category of {', '.join(LOG_CATEGORIES)}, +json, +color, +single_line"
            )
    return fields


def tcp_listener(environ: Mapping[str, str], default_port: int, problems: list[str]) -> Address:
    """Return the AMQP listener for the case that no file and no argument names one."""
    host = environ.get("RABBITMQ_NODE_IP_ADDRESS") or "auto"
    port = environ.get("RABBITMQ_NODE_PORT") or str(default_port)
    try:
        PORT.parse(port)
    except ValueError:
        problems.append(f"RABBITMQ_NODE_PORT: {port!r} is not allowed; allowed: {PORT.allowed}")
        port = "0"
    try:
        return address(port if host == "auto" else f"{host}:{port}")
    except ValueError:
        problems.append(f"RABBITMQ_NODE_IP_ADDRESS: {host!r} is not allowed; allowed: auto, or an IP address")
        return Address("", 0)


def peer_port(environ: Mapping[str, str], problems: list[str]) -> int | None:
    """Return the port of RABBITMQ_DIST_PORT, where other nodes reach this one; None if it is not set."""
    text = environ.get("RABBITMQ_DIST_PORT")
    if not text:
        return None
    try:
        port: int = PEER_PORT.parse(text)
    except ValueError:
        problems.append(f"RABBITMQ_DIST_PORT: {text!r} is not allowed; allowed: {PEER_PORT.allowed}")
        return None
    return port


def formation_nodes(environ: Mapping[str, str], problems: list[str]) -> list[tuple[str, str | None]]:
    """Return the nodes of FLUFFLE_CLUSTER_NODES, which have commas between them, as `values.node_address` does."""
    nodes = []
    for text in filter(None, environ.get("FLUFFLE_CLUSTER_NODES", "").split(",")):
        try:
            nodes.append(NODE.parse(text.strip()))
        except ValueError:
            problems.append(f"FLUFFLE_CLUSTER_NODES: {text!r} is not allowed; allowed: {NODE.allowed}")
    return nodes


def cluster_secret(environ: Mapping[str, str]) -> tuple[str, str, bool] | None:
    """Return the variable with the cluster's secret, its value, and whether that is a file; None if none is set."""
    for name in ("FLUFFLE_CLUSTER_SECRET", "FLUFFLE_CLUSTER_SECRET_FILE", "RABBITMQ_ERLANG_COOKIE"):
        if environ.get(name):
            return name, environ[name], name.endswith("_FILE")
    return None


def node_name(given: str | None, environ: Mapping[str, str], hostname: str, problems: list[str]) -> str:
    """Return `name@host`. Without a host it is this machine's, cut at its first dot unless long names are wanted."""
    name = given or environ.get("RABBITMQ_NODENAME") or "rabbit"
    long_names = environ.get("RABBITMQ_USE_LONGNAME", "").lower() in ("1", "yes", "true")
    if "@" not in name:
        name = f"{name}@{hostname if long_names else hostname.partition('.')[0]}"
    if not NODE_NAME.fullmatch(name):
        problems.append(
            f"the node name {name!r} is not allowed; allowed: name@host of letters, digits, `_`, `-`, `.`"
        )
    return name
