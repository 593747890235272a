"""Addresses of management HTTP APIs, and the credentials for them, which are never printed and never kept.

In this order: `http://NAME:PASSWORD@host` in the URL; the line of the host in a file of the form of ~/.netrc
(FLUFFLE_NETRC, else that one), readable by its owner only; guest, as RabbitMQ's tools do.
`spark_ops.applying.credentials` does the same for its tool: a broker and spark_ops share no code.
"""

import base64
import netrc
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

DEFAULT_PORTS: Final = {"http": 15672, "https": 15671}
GUEST: Final = "guest"


class AddressError(ValueError):
    """A URL, or the file of credentials, is wrong; the text is one line without a password."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an HTTP API.   shown: without credentials.   authorization: the header, a secret."""

    scheme: str
    host: str
    port: int
    prefix: str
    authorization: str = field(repr=False)

    @property
    def shown(self) -> str:
        """The URL without credentials and without /api."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def address(url: str, environment: Mapping[str, str]) -> Address:
    """Return the address of a URL as an operator writes it: `host`, `host:port`, `https://host/prefix`.

    Raises: AddressError; OSError.
    """
    whole = url if "://" in url else f"http://{url}"
    shown = whole.rpartition("@")[2]
    try:
        parts = urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressError(f"{shown!r} is no URL of a management API") from None
    if parts.scheme not in DEFAULT_PORTS or not host or parts.query or parts.fragment:
        raise AddressError(f"{shown!r} is no URL of a management API: http://HOST:PORT is meant")
    if parts.username is not None:
        name, password = unquote(parts.username), unquote(parts.password or "")
    else:
        name, password = _found(host, environment)
    pair = base64.b64encode(f"{name}:{password}".encode()).decode()
    prefix = parts.path.rstrip("/").removesuffix("/api")
    return Address(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], prefix, f"Basic {pair}")


def _found(host: str, environment: Mapping[str, str]) -> tuple[str, str]:
    given = environment.get("FLUFFLE_NETRC")
    path = Path(given) if given else Path.home() / ".netrc"
    if not given and not path.exists():
        return GUEST, GUEST
    mode = path.stat()
    if mode.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or mode.st_uid not in (os.getuid(), 0):
        raise AddressError(f"{path} has passwords, and others may read it: chmod 600 it")
    try:
        entry = netrc.netrc(str(path)).authenticators(host)
    except (netrc.NetrcParseError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None)
        raise AddressError(f"{path} makes no sense{'' if line is None else f' in line {line}'}") from None
    return (GUEST, GUEST) if entry is None else (entry[0] or GUEST, entry[2] or "")
