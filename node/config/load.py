"""`load_config` makes a `Config` from command line, environment and files.

The function has no side effects: it gets the environment and the files as arguments. It checks everything
before it fails, so that an operator sees all mistakes together. Source: management §6.1, §6.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cluster.times import LEASE_HEARTBEATS, LEASE_HEARTBEATS_MIN
from node.config import environment
from node.config import management as config_management
from node.config import telemetry as config_telemetry
from node.config.auth import auth_steps
from node.config.config import (
    DEFAULT_PEER_PORT,
    DEFAULT_PORT,
    PEER_PORT_OFFSET,
    Address,
    AmqpOptions,
    AuthOptions,
    CertificateLogin,
    ClusterOptions,
    Config,
    ConsoleLog,
    DefinitionsConfig,
    DiskOptions,
    ExchangeLog,
    FileLog,
    LogFormat,
    LogLevel,
    LogOptions,
    MemoryOptions,
    NetworkOptions,
    Product,
    Seed,
    SeedNode,
    SocketOptions,
    StorageOptions,
    TlsOptions,
)
from node.config.discovery import CLASSIC_CONFIG, DNS
from node.config.file import ConfigError, parse
from node.config.given import Files, Given, Section
from node.config.values import PORT_MAX, is_loopback
from node.version import VERSION

DEFAULT_FILE: Final = "/etc/fluffle/fluffle.conf"
DEFAULT_FILES: Final = "/etc/fluffle/conf.d"
DEFAULT_DATA_BASE: Final = "/var/lib/fluffle"
DEFAULT_LOG_DIR: Final = "/var/log/fluffle"
SECRET_MIN_BYTES: Final = 8
"""The least length of the secret: an eavesdropper can try secrets offline, and would soon find a shorter one."""
SECRET_MAX_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options of `fluffle start`; None and empty: not given."""

    name: str | None = None
    data: str | None = None
    listen: tuple[str, ...] = ()
    config: str | None = None
    peer: str | None = None
    """The address where other nodes reach this one, HOST:PORT."""
    ram: bool = False
    """True if the node joins as a RAM node."""
    management: str | None = None
    """The address of the HTTP API, HOST:PORT; "off": none, and no metrics unless a file asks for them."""
    telemetry: str | None = None
    """The directory for telemetry, which is on if this is given."""


def load_config(options: StartOptions, environ: Mapping[str, str], files: Files, *, hostname: str) -> Config:
    """Return the settings of the node.

    hostname: this machine's, for the default node name.

    Raises: ConfigError with a line for each problem: file, line number, key and what is allowed.
    """
    values = Given()
    values.problems += environment.removed(environ)
    paths = _read_files(values, options, environ, files)
    values.fields |= environment.overrides(environ, values.problems)
    node_name = environment.node_name(options.name, environ, hostname, values.problems)
    memory = _memory(values)
    tcp_listeners = _tcp_listeners(values, options, environ)
    tls_listeners = () if "listeners.no_tls" in values.fields else values.numbered("tls_listeners")
    amqp_port = next((listener.port for listener in (*tcp_listeners, *tls_listeners)), DEFAULT_PORT)
    cluster = _cluster(values, options, environ, files, node_name=node_name, amqp_port=amqp_port)
    data_dir = _data_dir(options, environ, node_name)
    plugins_file, plugins = config_management.enabled_plugins(values, environ, files, data_dir)
    management, prometheus = config_management.listeners(
        values, options.management, next(iter((*tcp_listeners, *tls_listeners)), None), plugins
    )
    unused = (*values.unused, *(name for name in environment.UNUSED if environ.get(name)))
    config = values.section(
        Config,
        "node",
        node_name=node_name,
        data_dir=data_dir,
        cluster_name=values.fields.get("node.cluster_name", node_name),
        product=_product(values),
        tcp_listeners=tcp_listeners,
        tls_listeners=tls_listeners,
        tls=_tls(values, listening=bool(tls_listeners)),
        network=_network(values),
        socket=values.section(SocketOptions, "socket"),
        auth=_auth(values),
        seed=_seed(values),
        amqp=values.section(AmqpOptions, "amqp"),
        memory=memory,
        cluster=cluster,
        disk=values.section(DiskOptions, "disk"),
        store=values.section(StorageOptions, "store"),
        log=_log(values, node_name),
        management=management,
        prometheus=prometheus,
        statistics=config_management.statistics(values),
        telemetry=config_telemetry.telemetry(values, options.telemetry, data_dir),
        definitions=_definitions(values),
        enabled_plugins_file=plugins_file,
        enabled_plugins=plugins,
        plugin_settings=values.families.get("plugin_settings", {}),
        files=paths,
        unused=unused,
    )
    if values.problems:
        raise ConfigError(values.problems)
    return config


def _read_files(
    values: Given, options: StartOptions, environ: Mapping[str, str], files: Files
) -> tuple[str, ...]:
    """Take the settings of every file: the main one, then the others by name. Returns their paths."""
    main = options.config or environ.get("RABBITMQ_CONFIG_FILE")
    if main and not options.config and not main.endswith((".conf", ".config")):
        main += ".conf"
    # A file on the command line is the whole configuration: files in /etc must not surprise a developer.
    others = environ.get("RABBITMQ_CONFIG_FILES") or (None if options.config else DEFAULT_FILES)
    paths = [main or DEFAULT_FILE, *(files.expand(others) if others else ())]
    read: list[str] = []
    for path in paths:
        if path.endswith(".config"):
            values.problems.append(
                f"{path}: files of Erlang terms are not supported; allowed: the rabbitmq.conf format"
            )
            continue
        try:
            content = files.read(path)
            settings = parse(content, path) if content is not None else []
        except OSError as error:
            values.problems.append(f"{path}: cannot be read: {error.strerror}")
            continue
        except ConfigError as error:
            values.problems += error.problems
            continue
        if content is None:
            if path == main:
                values.problems.append(f"{path}: there is no such file")
            continue
        read.append(path)
        for setting in settings:
            values.take(setting, files)
    return tuple(read)


def _data_dir(options: StartOptions, environ: Mapping[str, str], node_name: str) -> str:
    base = environ.get("RABBITMQ_MNESIA_BASE") or DEFAULT_DATA_BASE
    return options.data or environ.get("RABBITMQ_MNESIA_DIR") or f"{base}/{node_name}"


def _product(values: Given) -> Product:
    own = values.fields.pop("node.identity", "rabbitmq") == "own"
    return replace(
        Product("Fluffle", VERSION) if own else Product(),
        **{
            name: values.fields[f"product.{name}"]
            for name in ("name", "version")
            if f"product.{name}" in values.fields
        },
    )


def _tcp_listeners(values: Given, options: StartOptions, environ: Mapping[str, str]) -> tuple[Address, ...]:
    if options.listen:
        addresses = (values.listen_address("--listen", text) for text in options.listen)
        return tuple(address for address in addresses if address is not None)
    if "listeners.no_tcp" in values.fields:
        return ()
    return values.numbered("tcp_listeners") or (
        environment.tcp_listener(environ, DEFAULT_PORT, values.problems),
    )


def _tls(values: Given, *, listening: bool) -> TlsOptions:
    given = {
        name: values.numbered(f"tls_{name}")
        for name in ("versions", "ciphers")
        if f"tls_{name}" in values.families
    }
    tls = values.section(TlsOptions, "tls", **given)
    if listening:
        values.require(
            bool(tls.certificate_file), "tls_listeners", "a TLS listener needs ssl_options.certfile"
        )
    values.require(
        not tls.verify_peer or tls.ca_file is not None,
        "tls.verify_peer",
        "verify_peer needs ssl_options.cacertfile",
    )
    values.require(
        not tls.require_peer_certificate or tls.verify_peer,
        "tls.require_peer_certificate",
        "true needs ssl_options.verify = verify_peer",
    )
    return tls


def _network(values: Given) -> NetworkOptions:
    network = values.section(
        NetworkOptions, "network", proxy_protocol_sources=values.numbered("proxy_protocol_sources")
    )
    values.require(
        not network.proxy_protocol or bool(network.proxy_protocol_sources),
        "network.proxy_protocol",
        "true needs proxy_protocol_sources.1 = NETWORK, the balancers whose word is taken for an address",
    )
    return network


def _auth(values: Given) -> AuthOptions:
    given: dict[str, Any] = {"certificate_login": values.section(CertificateLogin, "certificate_login")}
    if "auth_mechanisms" in values.families:
        given["mechanisms"] = tuple(dict.fromkeys(values.numbered("auth_mechanisms")))
    # RabbitMQ opens guest to the network as soon as another user is named; here guest itself must be.
    loopback = {"guest": True} | values.families.get("loopback_users", {})
    if "loopback.none" in values.fields:
        loopback = {}
    loopback_users = frozenset(user for user, is_bound in loopback.items() if is_bound)
    backend = values.fields.get("credentials.backend", "").removeprefix("rabbit_credential_validator_")
    for name, needed, argument in (
        ("min_password_length", "min_length", "password_length_min"),
        ("password_regexp", "regexp", "password_regexp"),
    ):
        if backend == name:
            given[argument] = values.fields.get(f"credentials.{needed}")
            needs = f"{backend} needs credential_validator.{needed}"
            values.require(given[argument] is not None, "credentials.backend", needs)
    given["steps"] = auth_steps(values)
    return values.section(AuthOptions, "auth", loopback_users=loopback_users, **given)


def _memory(values: Given) -> MemoryOptions:
    # As in RabbitMQ, the relative watermark wins over the absolute one; `DiskOptions` says the same of its limits.
    if "memory.watermark_relative" in values.fields:
        values.fields.pop("memory.watermark_absolute_bytes", None)
    memory = values.section(MemoryOptions, "memory")
    if memory.calculation_strategy != MemoryOptions().calculation_strategy:
        values.unused["vm_memory_calculation_strategy"] = None
    return memory


def _cluster(
    values: Given,
    options: StartOptions,
    environ: Mapping[str, str],
    files: Files,
    *,
    node_name: str,
    amqp_port: int,
) -> ClusterOptions:
    given: dict[str, Any] = _formation(values, environ)
    if options.ram:
        given["node_type"] = "ram"
    given["secret"] = _secret(values, environ, files)
    given.update(_certificates(values))
    heartbeat_s = values.fields.get("cluster.heartbeat_s", ClusterOptions().heartbeat_s)
    lease_s = values.fields.get("cluster.lease_s", heartbeat_s * LEASE_HEARTBEATS)
    given["lease_s"] = lease_s
    values.require(
        lease_s >= heartbeat_s * LEASE_HEARTBEATS_MIN,
        "cluster.lease_s",
        f"it is shorter than {LEASE_HEARTBEATS_MIN} times cluster_keepalive_interval",
    )
    is_guarded = given["secret"] is not None or "cluster.certificate_file" in values.fields
    given |= _peer_listener(
        values, options, environ, host=node_name.partition("@")[2], amqp_port=amqp_port, is_guarded=is_guarded
    )
    cluster = values.section(ClusterOptions, "cluster", **given)
    if cluster.partition_handling != ClusterOptions().partition_handling:
        values.unused["cluster_partition_handling"] = None
    return cluster


def _formation(values: Given, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the nodes to look for: the variable's, the DNS name's, the list's, or the plug-in that knows them."""
    hostname = values.fields.get("formation.dns_hostname")
    nodes = environment.formation_nodes(environ, values.problems)
    backend = values.fields.get("formation.backend", CLASSIC_CONFIG)
    if not nodes and backend == DNS:
        values.require(hostname is not None, "formation.backend", "dns needs cluster_formation.dns.hostname")
        return {"formation_dns_hostname": hostname}
    if hostname is not None:
        values.unused["cluster_formation.dns.hostname"] = None
    if not nodes and backend != CLASSIC_CONFIG:
        return {"formation_plugin": backend}
    seeds: dict[str, SeedNode] = {}
    for name, address in nodes or values.numbered("formation_nodes"):
        seeds.setdefault(name, SeedNode(name, address or f"{name.partition('@')[2]}:{DEFAULT_PEER_PORT}"))
    return {"formation_nodes": tuple(seeds.values())}


def _secret(values: Given, environ: Mapping[str, str], files: Files) -> bytes | None:
    variable = environment.cluster_secret(environ)
    if variable is not None:
        place, text, is_file = variable
    elif "peer.secret_file" in values.fields:
        place, text, is_file = values.places["peer.secret_file"], values.fields["peer.secret_file"], True
    else:
        return None
    secret = text.encode(errors="surrogateescape")
    if is_file:
        try:
            if not files.is_private(text):
                values.problems.append(f"{place}: {text!r} can be used by others; allowed: mode 0400 or 0600")
                return None
            secret = files.read(text) or b""
        except OSError as error:
            values.problems.append(f"{place}: {text!r} cannot be read: {error.strerror}")
            return None
    secret = secret.strip()
    if not SECRET_MIN_BYTES <= len(secret) <= SECRET_MAX_BYTES:
        values.problems.append(
            f"{place}: the secret has {len(secret)} bytes; allowed: from {SECRET_MIN_BYTES} to {SECRET_MAX_BYTES}"
        )
        return None
    return secret


def _certificates(values: Given) -> dict[str, Any]:
    """Check that authorities and certificate are both given or neither; the key may be in the certificate's file."""
    authorities, certificate = (
        values.fields.get(f"cluster.{name}") for name in ("ca_file", "certificate_file")
    )
    for field, file in (("ca_file", authorities), ("certificate_file", certificate), ("key_file", None)):
        if file is not None or f"cluster.{field}" in values.places:
            values.require(
                authorities is not None and certificate is not None,
                f"cluster.{field}",
                "it needs cluster.ssl_options.cacertfile and cluster.ssl_options.certfile",
            )
    return {} if certificate is None else {"key_file": values.fields.get("cluster.key_file", certificate)}


def _peer_listener(
    values: Given,
    options: StartOptions,
    environ: Mapping[str, str],
    *,
    host: str,
    amqp_port: int,
    is_guarded: bool,
) -> dict[str, Any]:
    """Return the addresses of the peer listener. Beyond loopback it is allowed only when nodes can authenticate each
    other.

    host: the node's, from its name.
    """
    fields = values.fields
    port_min, port_max = fields.get("peer.port_min"), fields.get("peer.port_max")
    values.require(
        port_max is None or (port_min is not None and port_min <= port_max),
        "peer.port_max",
        "it needs a distribution.listener.port_range.min that is not higher",
    )
    port = environment.peer_port(environ, values.problems) or port_min
    is_wanted = is_guarded or options.ram or options.peer is not None or port is not None
    is_wanted = is_wanted or bool(environ.get("FLUFFLE_CLUSTER_NODES"))
    is_wanted = is_wanted or any(
        f": {family}" in place
        for place in values.places.values()
        for family in ("cluster_formation.", "distribution.listener.")
    )
    if port is None:
        port = amqp_port + PEER_PORT_OFFSET if amqp_port else 0
        if port > PORT_MAX and is_wanted and options.peer is None:
            values.problems.append(
                f"AMQP port {amqp_port} and {PEER_PORT_OFFSET} is no port for other nodes; "
                "needs distribution.listener.port_range.min"
            )
        if port > PORT_MAX:
            port = 0
    address = Address(fields.get("peer.interface", "" if is_guarded else "127.0.0.1"), port)
    if options.peer is not None:
        given = values.listen_address("--peer", options.peer)
        is_wanted = given is not None
        address = given or address
    if is_wanted and not is_guarded and not is_loopback(address.host):
        values.problems.append(
            f"a listener for other nodes on {address} needs cluster.secret_file or cluster.ssl_options: "
            "without one only loopback is allowed"
        )
    is_everywhere = address.host in ("", "0.0.0.0", "::")
    default = Address(host if is_everywhere else address.host, address.port)
    return {
        "listen": address if is_wanted else None,
        "default_listen": address,
        "advertised": fields.get("peer.advertised", str(default)),
    }


def _seed(values: Given) -> Seed:
    tags = values.families.get("default_user_tags")
    given = {} if tags is None else {"tags": tuple(tag for tag, has in tags.items() if has)}
    return values.section(Seed, "seed", **given)


def _definitions(values: Given) -> DefinitionsConfig:
    fields = values.fields
    sources = (fields.get(f"definitions_path.{name}") for name in ("main", "local", "management"))
    return values.section(
        DefinitionsConfig, "definitions", path=next((path for path in sources if path is not None), None)
    )


def _log(values: Given, node_name: str) -> LogOptions:
    fields = values.fields
    levels = {
        field.partition(".")[2]: LogLevel[name.upper()]
        for field, name in fields.items()
        if field.startswith("log_levels.")
    }
    default = levels.get("default", LogLevel.INFO)

    def output(kind: type[Section], name: str, **given: Any) -> Section:
        level = LogLevel[fields[f"{name}.level"].upper()] if f"{name}.level" in fields else default
        return values.section(
            kind, name, level=level, format=values.section(LogFormat, f"{name}_format"), **given
        )

    file = fields.get("log.file", f"{node_name}.log" if "log.dir" in fields else False)
    directory = fields.get("log.dir", DEFAULT_LOG_DIR)
    path = file if file is False or file.startswith("/") else f"{directory}/{file}"
    return LogOptions(
        console=output(ConsoleLog, "console") if fields.get("log.console", file is False) else None,
        file=output(FileLog, "file", path=path) if path else None,
        exchange=output(ExchangeLog, "exchange") if fields.get("log.exchange", False) else None,
        category_levels={name: level for name, level in levels.items() if name != "default"},
    )
