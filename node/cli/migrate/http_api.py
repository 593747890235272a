"""A client of the management HTTP API of a broker at one or several addresses.

An address that does not answer is passed over. All requests are idempotent, so that one may be sent again
to another node.
"""

import http.client
import json
import ssl
from collections.abc import Sequence
from typing import Any, Final

from node.cli.migrate.addresses import Address

TIMEOUT_S: Final = 60.0
"""For connecting, and for each piece of an answer: RabbitMQ needs long for lists of many queues."""

BODY_MAX: Final = 1 << 28
"""The largest answer in bytes: a list of 100,000 queues has some 100 MB."""

REASON_MAX: Final = 500

UNSURE: Final = (429, 500, 502, 503, 504)
"""Answers of a node that starts, stops or is cut off: another one may do better."""


class ApiFailed(Exception):
    """A broker refused a request, or none answered; the text is one line.   status: 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """The API of one broker."""

    def __init__(self, addresses: Sequence[Address], *, ca_file: str | None = None) -> None:
        """Make a client. ca_file: of the certificate authorities; None: the system's. Raises: OSError."""
        assert addresses
        self._addresses = list(addresses)
        self._tls: ssl.SSLContext | None = None
        if any(address.scheme == "https" for address in addresses):
            self._tls = ssl.create_default_context(cafile=ca_file)

    @property
    def shown(self) -> str:
        """The first address without credentials."""
        return self._addresses[0].shown

    @property
    def all_shown(self) -> tuple[str, ...]:
        """All addresses without credentials."""
        return tuple(address.shown for address in self._addresses)

    @property
    def host(self) -> str:
        """The host of the first address."""
        return self._addresses[0].host

    def get(self, path: str) -> Any:
        """Return the JSON of a resource. Raises: ApiFailed.   path: below /api, encoded."""
        return self.request("GET", path)

    def put(self, path: str, body: Any) -> None:
        """Create or replace a resource. Raises: ApiFailed."""
        self.request("PUT", path, body)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> bool:
        """Delete a resource; False if it is not there. Raises: ApiFailed."""
        try:
            self.request("DELETE", path, headers=headers)
        except ApiFailed as failed:
            if failed.status == 404:
                return False
            raise
        return True

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Send a request to the first node that answers. Returns: the JSON of the answer. Raises: ApiFailed."""
        failures: list[str] = []
        for address in list(self._addresses):
            try:
                status, raw = self._ask(address, method, path, body, headers or {})
            except ApiFailed as failed:
                failures.append(str(failed))
                continue
            text = f"{address.shown}: {method} {_short(path)}: {_reason(status, raw)}"
            if status in UNSURE:
                failures.append(text)
                continue
            self._addresses.remove(address)
            self._addresses.insert(0, address)
            if status >= 300:
                raise ApiFailed(text, status)
            return _json(raw)
        raise ApiFailed("; ".join(failures))

    def _ask(
        self, address: Address, method: str, path: str, body: Any, more: dict[str, str]
    ) -> tuple[int, bytes]:
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=TIMEOUT_S, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
        headers = {"authorization": address.authorization, "accept": "application/json", **more}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, f"{address.prefix}/api{path}", content, headers)
            response = connection.getresponse()
            raw = response.read(BODY_MAX + 1)
        except ssl.SSLError as error:
            raise ApiFailed(f"{address.shown}: {error.reason or 'TLS failed'}") from None
        except TimeoutError:
            raise ApiFailed(f"{address.shown} does not answer within {TIMEOUT_S:g} s") from None
        except OSError as error:
            raise ApiFailed(f"{address.shown}: {error.strerror or error}") from None
        except http.client.HTTPException as error:
            raise ApiFailed(f"{address.shown} does not speak HTTP: {type(error).__name__}") from None
        finally:
            connection.close()
        if len(raw) > BODY_MAX:
            raise ApiFailed(f"{address.shown} answers {_short(path)} with more than {BODY_MAX >> 20} MiB")
        return response.status, raw


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None


def _short(path: str) -> str:
    return path.partition("?")[0]


def _reason(status: int, raw: bytes) -> str:
    """Return why a request was refused. URIs in the reason may have a password, so that they are cut out."""
    answer = _json(raw)
    reason = answer.get("reason") if isinstance(answer, dict) else None
    if status == 401:
        why = reason if isinstance(reason, str) else "not authorised"
        return f"401, {why}: an administrator's name and password are needed"
    shown = reason if isinstance(reason, str) else ""
    words = ("…" if "://" in word else word for word in shown.split())
    return f"{status} {' '.join(words)[:REASON_MAX]}".rstrip()
