"""From command line, environment and files to a `Config`.

`load_config` touches nothing: it gets the environment and the files as arguments. It looks at everything
before it gives up, so that an operator sees all mistakes at once. Source: management §6.1, §6.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from node import config_environment, config_keys
from node.config import (
    DEFAULT_PORT,
    Address,
    AmqpOptions,
    AuthOptions,
    CertificateLogin,
    Config,
    ConsoleLog,
    DiskOptions,
    FileLog,
    LogFormat,
    LogLevel,
    LogOptions,
    MemoryOptions,
    NetworkOptions,
    Product,
    Seed,
    SocketOptions,
    StorageOptions,
    TlsOptions,
)
from node.config_file import ConfigError, Setting, parse
from node.config_values import PORT
from node.version import VERSION

DEFAULT_FILE: Final = "/etc/fluffle/fluffle.conf"
DEFAULT_FILES: Final = "/etc/fluffle/conf.d"
DEFAULT_DATA_BASE: Final = "/var/lib/fluffle"
DEFAULT_LOG_DIR: Final = "/var/log/fluffle"

_Section = TypeVar("_Section")


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What `fluffle start` was told; None and empty: nothing."""

    name: str | None = None
    data: str | None = None
    listen: tuple[str, ...] = ()
    config: str | None = None


class Files(Protocol):
    """What is asked of the disk."""

    def read(self, path: str) -> bytes | None:
        """The content, None when there is no such file. Raises OSError."""

    def expand(self, pattern: str) -> list[str]:
        """The `.conf` files in a directory, or that a shell pattern matches, in the order of their names."""

    def readable(self, path: str) -> bool:
        """Whether the node could read the file."""


class _Values:
    """What the files and the environment say, before it is put into a `Config`."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.families: dict[str, dict[str, Any]] = {}
        self.places: dict[str, str] = {}
        self.unused: dict[str, None] = {}
        self.problems: list[str] = []

    def take(self, setting: Setting, files: Files) -> None:
        """Check one setting and remember what it says; a later one replaces an earlier one."""
        start = f"{setting.place}: {setting.key}:"
        key = config_keys.find(setting.words)
        if key is None:
            closest = config_keys.closest(setting.key)
            hint = f"; did you mean {closest}?" if closest else ""
            self.problems.append(f"{start} there is no such setting{hint}")
            return
        try:
            value = key.type.parse(setting.value)
        except ValueError:
            self.problems.append(f"{start} {setting.value!r} is not allowed; allowed: {key.type.allowed}")
            return
        if key.type.is_file and not files.readable(value):
            self.problems.append(
                f"{start} {value!r} does not exist or cannot be read; allowed: {key.type.allowed}"
            )
            return
        if not key.field:
            self.unused[setting.key] = None
            return
        self.places[key.field] = f"{setting.place}: {setting.key}"
        if "$" in key.pattern:
            prefix = key.pattern.partition("$")[0].count(".")
            self.families.setdefault(key.field, {})[".".join(setting.words[prefix:])] = value
        else:
            self.fields[key.field] = value

    def section(self, kind: type[_Section], name: str, **given: Any) -> _Section:
        """A `kind` with what is known of it; the rest keeps its default."""
        known = {
            field.partition(".")[2]: value
            for field, value in self.fields.items()
            if field.startswith(f"{name}.")
        }
        return kind(**(known | given))

    def numbered(self, family: str) -> tuple[Any, ...]:
        """The values of a list such as `auth_mechanisms.1`, in the order of the numbers, names after them."""

        def order(name: str) -> tuple[bool, int, str]:
            return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)

        values = self.families.get(family, {})
        return tuple(values[name] for name in sorted(values, key=order))

    def require(self, condition: bool, family: str, needs: str) -> None:
        """Complain about `family` where it was set, unless `condition`."""
        if not condition:
            self.problems.append(f"{self.places.get(family, family)}: {needs}")


def load_config(options: StartOptions, environ: Mapping[str, str], files: Files, *, hostname: str) -> Config:
    """The settings of the node.

    hostname: this machine's, for the default node name.
    Raises: ConfigError with a line for each problem: file, line number, key and what is allowed.
    """
    values = _Values()
    values.problems += config_environment.removed(environ)
    paths = _read_files(values, options, environ, files)
    values.fields |= config_environment.overrides(environ, values.problems)
    node_name = config_environment.node_name(options.name, environ, hostname, values.problems)
    memory = _memory(values)
    unused = (*values.unused, *(name for name in config_environment.UNUSED if environ.get(name)))
    tcp_listeners = _tcp_listeners(values, options, environ)
    tls_listeners = () if "listeners.no_tls" in values.fields else values.numbered("tls_listeners")
    config = values.section(
        Config,
        "node",
        node_name=node_name,
        data_dir=_data_dir(options, environ, node_name),
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
        disk=values.section(DiskOptions, "disk"),
        store=values.section(StorageOptions, "store"),
        log=_log(values, node_name),
        files=paths,
        unused=unused,
    )
    if values.problems:
        raise ConfigError(values.problems)
    return config


def _read_files(
    values: _Values, options: StartOptions, environ: Mapping[str, str], files: Files
) -> tuple[str, ...]:
    """Take the settings of every file: the main one, then the others by name. Returns their paths."""
    main = options.config or environ.get("RABBITMQ_CONFIG_FILE")
    if main and not options.config and not main.endswith((".conf", ".config")):
        main += ".conf"
    # A file on the command line is the whole configuration: what lies in /etc must not surprise a developer.
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


def _product(values: _Values) -> Product:
    own = values.fields.pop("node.identity", "rabbitmq") == "own"
    return replace(
        Product("Fluffle", VERSION) if own else Product(),
        **{
            name: values.fields[f"product.{name}"]
            for name in ("name", "version")
            if f"product.{name}" in values.fields
        },
    )


def _tcp_listeners(values: _Values, options: StartOptions, environ: Mapping[str, str]) -> tuple[Address, ...]:
    if options.listen:
        return tuple(_listen_address(text, values.problems) for text in options.listen)
    if "listeners.no_tcp" in values.fields:
        return ()
    return values.numbered("tcp_listeners") or (
        config_environment.tcp_listener(environ, DEFAULT_PORT, values.problems),
    )


def _listen_address(text: str, problems: list[str]) -> Address:
    """`HOST:PORT`, `[IPv6]:PORT`, `:PORT` or `PORT`; unlike in a file, the host may be a name."""
    host, _, port = text.rpartition(":")
    try:
        return Address(host.removeprefix("[").removesuffix("]"), PORT.parse(port))
    except ValueError:
        problems.append(f"--listen {text}: not allowed; allowed: HOST:PORT with {PORT.allowed}")
        return Address("", 0)


def _tls(values: _Values, *, listening: bool) -> TlsOptions:
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


def _network(values: _Values) -> NetworkOptions:
    network = values.section(
        NetworkOptions, "network", proxy_protocol_sources=values.numbered("proxy_protocol_sources")
    )
    values.require(
        not network.proxy_protocol or bool(network.proxy_protocol_sources),
        "network.proxy_protocol",
        "true needs proxy_protocol_sources.1 = NETWORK, the balancers whose word is taken for an address",
    )
    return network


def _auth(values: _Values) -> AuthOptions:
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
    return values.section(AuthOptions, "auth", loopback_users=loopback_users, **given)


def _memory(values: _Values) -> MemoryOptions:
    # As in RabbitMQ, the relative watermark wins over the absolute one; `DiskOptions` says the same of its limits.
    if "memory.watermark_relative" in values.fields:
        values.fields.pop("memory.watermark_absolute_bytes", None)
    memory = values.section(MemoryOptions, "memory")
    if memory.calculation_strategy != MemoryOptions().calculation_strategy:
        values.unused["vm_memory_calculation_strategy"] = None
    return memory


def _seed(values: _Values) -> Seed:
    tags = values.families.get("default_user_tags")
    given = {} if tags is None else {"tags": tuple(tag for tag, has in tags.items() if has)}
    return values.section(Seed, "seed", **given)


def _log(values: _Values, node_name: str) -> LogOptions:
    fields = values.fields
    levels = {
        field.partition(".")[2]: LogLevel[name.upper()]
        for field, name in fields.items()
        if field.startswith("log_levels.")
    }
    default = levels.get("default", LogLevel.INFO)

    def output(kind: type[_Section], name: str, **given: Any) -> _Section:
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
        category_levels={name: level for name, level in levels.items() if name != "default"},
    )
