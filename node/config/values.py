"""Each type of a setting's value has a parser, and a sentence that says what is allowed.

A parser raises ValueError for anything else; the caller adds file, line and key. Units follow RabbitMQ 3.10,
which has two dialects: `size` (frame_max and its like) reads kB as 1024, `STORAGE` (memory and disk limits)
reads kB as 1000.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORT_MAX: Final = 65535

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_QUANTITY: Final = re.compile(r"([0-9]{1,18})([A-Za-z]*)")
_HOST: Final = re.compile(r"[A-Za-z0-9_.:-]{1,253}")
NODE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9_][A-Za-z0-9_.-]*")
_AUTH_BACKEND: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")
_HEADER: Final = re.compile(r"[ -~]{1,4096}")
_PATH: Final = re.compile(r"/[A-Za-z0-9_.~/-]{0,255}")
_DECIMAL_FRACTION: Final = re.compile(r"[0-9]+\.[0-9]+")


class Address(NamedTuple):
    """The address of a listener. Empty host: every interface, IPv4 and IPv6. Port 0: the system chooses."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ValueType(NamedTuple):
    """One type of value."""

    allowed: str
    """The end of the sentence "allowed: …"."""
    parse: Callable[[str], Any]
    """The parser. Raises ValueError."""
    is_file: bool = False
    """True if the value names a file that must be readable when the node starts."""


def integer(minimum: int, maximum: int | None = None, *, unit: str = "") -> ValueType:
    """Return the type of whole numbers within limits, both included."""
    bounds = f"from {minimum} to {maximum}" if maximum is not None else f"of at least {minimum}"

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(text)
        number = int(text)
        if number < minimum or (maximum is not None and number > maximum):
            raise ValueError(text)
        return number

    return ValueType(f"a whole number {bounds}" + (f", in {unit}" if unit else ""), parse)


def milliseconds(minimum: int, maximum: int | None = None) -> ValueType:
    """Return the type of times that are written in milliseconds and kept in seconds."""
    whole = integer(minimum, maximum, unit="milliseconds")
    return ValueType(whole.allowed, lambda text: whole.parse(text) / 1000)


def or_word(word: str, meaning: object, other: ValueType) -> ValueType:
    """Return the type of another type's values, or of `word`, which stands for `meaning`."""
    return ValueType(
        f"{word}, or {other.allowed}", lambda text: meaning if text == word else other.parse(text)
    )


def meanings(table: Mapping[str, Any]) -> ValueType:
    """Return the type of these words, each kept as its meaning."""

    def parse(text: str) -> object:
        if text not in table:
            raise ValueError(text)
        return table[text]

    return ValueType(" or ".join(table), parse)


def one_of(*words: str) -> ValueType:
    """Return the type of these words, to the letter."""
    return meanings({word: word for word in words})


def _quantity(text: str, units: Mapping[str, int]) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match.group(2) not in units:
        raise ValueError(text)
    return int(match.group(1)) * units[match.group(2)]


def _units(base: int, *suffixes: str) -> dict[str, int]:
    """Return the powers of `base` for k, m and g, in both cases, with each suffix."""
    return {
        letter + suffix: base**power
        for power, letters in enumerate(("kK", "mM", "gG"), start=1)
        for letter in letters
        for suffix in suffixes
    }


_SIZE_UNITS: Final = {"": 1} | _units(1024, "b", "B", "iB")
_STORAGE_UNITS: Final = {"": 1} | _units(1000, "b", "B") | _units(1024, "", "iB")


def size(minimum: int = 0, maximum: int | None = None, *, also: int | None = None) -> ValueType:
    """Return the type of numbers of bytes with an optional unit of 1024. `also`: one allowed outside the limits."""
    bounds = f"from {minimum} to {maximum}" if maximum is not None else f"of at least {minimum}"

    def parse(text: str) -> int:
        number = _quantity(text, _SIZE_UNITS)
        if number != also and (number < minimum or (maximum is not None and number > maximum)):
            raise ValueError(text)
        return number

    extra = f", or {also}" if also is not None else ""
    return ValueType(
        f"a number of bytes {bounds}{extra}; units kB, MB, GB, KiB, MiB, GiB (each of 1024)", parse
    )


def address(text: str) -> Address:
    """Parse `PORT`, `IP:PORT` or `[IP]:PORT`. Raises ValueError."""
    host, separator, port_text = text.rpartition(":")
    port: int = PORT.parse(port_text)
    if not separator:
        return Address("", port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Address(str(ipaddress.ip_address(host)), port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def node_address(text: str) -> tuple[str, str | None]:
    """Parse `NAME@HOST`, or `NAME@HOST:PORT` as `(NAME@HOST, HOST:PORT)`. Raises ValueError."""
    name, separator, port = text.rpartition(":")
    if not separator:
        name = text
    if not NODE_NAME.fullmatch(name):
        raise ValueError(text)
    return name, f"{name.partition('@')[2]}:{PEER_PORT.parse(port)}" if separator else None


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError(text)
    return text


def _host_port(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if not separator or not _HOST.fullmatch(host.removeprefix("[").removesuffix("]")):
        raise ValueError(text)
    return f"{host}:{PEER_PORT.parse(port)}"


def _fraction(text: str) -> float:
    if not _DECIMAL_FRACTION.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _proper_fraction(text: str) -> float:
    number = _fraction(text)
    if not 0 < number < 1:
        raise ValueError(text)
    return number


def _regexp(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    return text


def _auth_backend(text: str) -> str:
    if _AUTH_BACKEND.fullmatch(text) is None:
        raise ValueError
    return text.removeprefix("rabbit_auth_backend_")


def _header(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError(text)
    return text


def _path(text: str) -> str:
    path = f"/{text.strip('/')}"
    if not _PATH.fullmatch(path):
        raise ValueError(text)
    return path


TEXT: Final = ValueType("any text", str)
HEADER: Final = ValueType("printable ASCII, as headers are", _header)
PATH: Final = ValueType("a path of letters, digits and -._~/", _path)
PATH_PREFIX: Final = ValueType(
    "a path of letters, digits and -._~/, or nothing", lambda text: _path(text).rstrip("/")
)
FILE: Final = ValueType("a file that the node can read", str, is_file=True)
AUTH_BACKEND: Final = ValueType("a name such as internal, http or cache", _auth_backend)
REGEXP: Final = ValueType("a regular expression", _regexp)
BOOLEAN: Final = meanings({"true": True, "false": False})
FLAG: Final = meanings({"on": True, "off": False})
NONE: Final = meanings({"none": True})
PORT: Final = integer(0, PORT_MAX)
PEER_PORT: Final = integer(1, PORT_MAX)
WHOLE: Final = integer(0)
POSITIVE: Final = integer(1)
FRACTION: Final = ValueType("a number with a decimal point, such as 0.4", _fraction)
PART: Final = ValueType(
    "a number with a decimal point, such as 0.4 (more than 1.0 counts as 1.0)",
    lambda text: min(_fraction(text), 1.0),
)
PROPER_FRACTION: Final = ValueType(
    "a number with a decimal point between 0.0 and 1.0, such as 0.5", _proper_fraction
)
STORAGE: Final = ValueType(
    "a number of bytes; units k, M, G, kiB, MiB, GiB (of 1024), kB, MB, GB (of 1000)",
    lambda text: _quantity(text, _STORAGE_UNITS),
)
LISTENER: Final = ValueType("a port from 0 to 65535, or IP:PORT", address)
NODE: Final = ValueType("NAME@HOST, or NAME@HOST:PORT", node_address)
HOST: Final = ValueType("a host name", _host)
HOST_PORT: Final = ValueType("HOST:PORT", _host_port)
IP: Final = ValueType("an IP address", lambda text: str(ipaddress.ip_address(text)))
NETWORK: Final = ValueType("an IP address or network, such as 10.0.0.0/8", ipaddress.ip_network)
