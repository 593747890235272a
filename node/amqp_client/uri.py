"""AMQP URIs, as RabbitMQ's Erlang client reads them.

    amqp[s]://[user:password@][host[:port]][/vhost][?key=value&…]

A URI without a host means the broker itself, without a socket. Text may be percent-encoded. A URI holds a password:
`without_password` and `without_credentials` give what may be shown.
Source: https://www.rabbitmq.com/uri-spec.html and uri-query-parameters.html.
"""

import re
from dataclasses import dataclass, field
from typing import Final

PORT: Final = 5672
TLS_PORT: Final = 5671
HEARTBEAT_S: Final = 10
CONNECTION_TIMEOUT_S: Final = 60.0
CHANNEL_MAX: Final = 2047
MECHANISMS: Final = ("PLAIN", "AMQPLAIN")
USER: Final = "guest"
PASSWORD: Final = "guest"

URI_MAX_BYTES: Final = 4096
"""The limit of one URI."""

_PARTS: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?P<userinfo>[^@/?#]*)@)?"
    r"(?P<host>\[[^\]/?#]*\]|[^:/?#@\[\]]*)(?::(?P<port>[0-9]*))?"
    r"(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?"
)
_ENTITY: Final = re.compile(r"%(?![0-9A-Fa-f]{2})(.{0,2})")
_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_MECHANISM_NAMES: Final = {"plain": "PLAIN", "amqplain": "AMQPLAIN", "external": "EXTERNAL"}
HIDDEN: Final = "******"
"""The mark in place of a password."""

_SECRET_PARAMETER: Final = re.compile(r"(?<=[?&])password=[^&#]*")


class InvalidUri(ValueError):
    """A text is no AMQP URI. Its message is RabbitMQ's reason, and never holds the password."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The parameters of `amqps`.   server_name: None for the host's name, empty to send none and check none."""

    verify_peer: bool = False
    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class AmqpUri:
    """A parsed URI.

    host: None for the broker itself.   user: None if the URI names none.   heartbeat_s: 0 for none.
    mechanisms: the SASL mechanisms that may be used, the preferred first.   tls: None for plain TCP.
    """

    text: str = field(repr=False)
    host: str | None = None
    port: int = PORT
    vhost: str = "/"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    heartbeat_s: int = HEARTBEAT_S
    connection_timeout_s: float = CONNECTION_TIMEOUT_S
    channel_max: int = CHANNEL_MAX
    frame_max_bytes: int = 0
    mechanisms: tuple[str, ...] = MECHANISMS
    tls: TlsOptions | None = None

    def shown(self) -> str:
        """Return the URI without user, password and parameters, as RabbitMQ shows it."""
        return without_credentials(self.text)


def parse(text: str, default_vhost: str = "/") -> AmqpUri:
    """Return the parsed URI.   Raises: InvalidUri."""
    parts = _PARTS.fullmatch(text)
    if parts is None or len(text.encode("utf-8", "surrogatepass")) > URI_MAX_BYTES:
        raise InvalidUri("unable_to_parse_uri")
    scheme = parts["scheme"].lower()
    if scheme not in ("amqp", "amqps"):
        raise InvalidUri(f'{{unexpected_uri_scheme,"{scheme}"}}')
    host = _unescaped(parts["host"]).removeprefix("[").removesuffix("]") or None
    port = _port(parts["port"], has_host=host is not None, is_tls=scheme == "amqps")
    user, password = _user_info(parts["userinfo"])
    query = _query(parts["query"] or "")
    given = dict(reversed(query))  # of a parameter that comes twice the first counts
    heartbeat = _integer(given, "heartbeat", HEARTBEAT_S)
    timeout_ms = _integer(given, "connection_timeout", int(CONNECTION_TIMEOUT_S * 1000))
    return AmqpUri(
        text=text,
        host=host,
        port=port,
        vhost=_vhost(parts["path"], default_vhost),
        user=user,
        password=password,
        heartbeat_s=min(max(heartbeat, 0), 0xFFFF),
        connection_timeout_s=max(timeout_ms, 1) / 1000,
        channel_max=min(max(_integer(given, "channel_max", CHANNEL_MAX), 0), 0xFFFF),
        frame_max_bytes=min(max(_integer(given, "frame_max", 0), 0), 0xFFFFFFFF),
        mechanisms=_mechanisms(query),
        tls=_tls_options(given) if scheme == "amqps" else None,
    )


def without_credentials(text: str) -> str:
    """Return a URI without user, password and parameters; a text that is no URI loses all up to its last `@`."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        shown = _without_credentials(text, "")
    else:
        shown = text.replace(f"://{parts['userinfo']}@", "://", 1)
    return shown.partition("?")[0]


def without_password(text: str) -> str:
    """Return a URI with asterisks in place of the password, and of that of a key for TLS.

    In a text that is no URI, they stand in place of all between `://` and the last `@`.
    """
    parts = _PARTS.fullmatch(text)
    if parts is None:
        shown = _without_credentials(text, f"{HIDDEN}@")
    else:
        user, colon, _ = (parts["userinfo"] or "").partition(":")
        shown = text.replace(f"://{parts['userinfo']}@", f"://{user}:{HIDDEN}@", 1) if colon else text
    return _SECRET_PARAMETER.sub(f"password={HIDDEN}", shown)


def _without_credentials(text: str, instead: str) -> str:
    """Return a text that is no URI without the part in which a password may stand.

    A character that has to be encoded in a password, and is not, is what mostly makes a URI invalid.
    """
    head, mark, rest = text.partition("://") if "://" in text else ("", "", text)
    end = rest.rfind("@") + 1
    return f"{head}{mark}{instead}{rest[end:]}" if end else text


def _unescaped(text: str) -> str:
    if fault := _ENTITY.search(text):
        kind = "invalid_entitiy" if len(fault[1]) == 2 else "unterminated_entity"
        raise InvalidUri(kind)
    raw = _ENCODED.sub(
        lambda found: bytes.fromhex(found[1].decode()), text.encode("utf-8", "surrogateescape")
    )
    return raw.decode("utf-8", "surrogateescape")


def _query(text: str) -> list[tuple[str, str]]:
    """Return the parameters of a query in their order; a plus stays one, as in RabbitMQ."""
    pairs = (part.partition("=") for part in text.split("&") if part)
    return [(_unescaped(key), _unescaped(value)) for key, _, value in pairs]


def _port(text: str | None, *, has_host: bool, is_tls: bool) -> int:
    if not text:
        return TLS_PORT if is_tls else PORT
    if not has_host:
        raise InvalidUri("port_requires_host")
    if len(text) > 5 or not 0 < int(text) <= 65535:
        raise InvalidUri(f"{{port_out_of_range,{text[:20]}}}")
    return int(text)


def _vhost(path: str | None, default: str) -> str:
    if path is None:
        return default
    if "/" in path[1:]:
        raise InvalidUri(f'{{invalid_vhost,"{path[1:]}"}}')
    return _unescaped(path[1:])


def _user_info(text: str | None) -> tuple[str | None, str | None]:
    if not text:
        return None, None
    user, colon, password = text.partition(":")
    return _unescaped(user), _unescaped(password) if colon else None


def _integer(given: dict[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise InvalidUri(f'{{invalid_amqp_params_parameter,{name},"{text}",{{not_an_integer,"{text}"}}}}')
    return int(text)


def _mechanisms(query: list[tuple[str, str]]) -> tuple[str, ...]:
    names = [value.removeprefix("amqp_auth_mechanisms:") for key, value in query if key == "auth_mechanism"]
    for name in names:
        if name not in _MECHANISM_NAMES:
            raise InvalidUri(f'{{unknown_mechanism,"{name}"}}')
    return tuple(_MECHANISM_NAMES[name] for name in names) or MECHANISMS


def _tls_options(given: dict[str, str]) -> TlsOptions:
    verify = given.get("verify", "verify_none")
    if verify not in ("verify_none", "verify_peer"):
        reason = f'{{invalid_atom_parameter,"{verify}"}}'
        raise InvalidUri(f'{{invalid_ssl_parameter,verify,"{verify}",{reason}}}')
    name = given.get("server_name_indication")
    return TlsOptions(
        verify_peer=verify == "verify_peer",
        cacertfile=given.get("cacertfile"),
        certfile=given.get("certfile"),
        keyfile=given.get("keyfile"),
        key_password=given.get("password"),
        server_name="" if name == "disable" else name,
    )
