"""A client of the HTTP API of one or several nodes of a cluster: a node that does not answer is passed over.

Requests may be sent twice, to different nodes: all requests of this package are idempotent. A node that answers is
asked first the next time. Safe for several threads.
"""

import http.client
import json
import ssl
import threading
from collections.abc import Sequence
from typing import Any, Final

from spark_ops.applying.asking import Answer, Silence
from spark_ops.applying.credentials import Address
from spark_ops.planning.strict import Malformed, loaded

TIMEOUT_S: Final = 10.0
BODY_MAX: Final = 1 << 30
"""The largest answer in octets: a topology of a million queues has some 400 MB."""


class Client:
    """The client.   timeout_s: for connecting, and for each piece of an answer."""

    def __init__(
        self, addresses: Sequence[Address], *, timeout_s: float = TIMEOUT_S, ca_file: str | None = None
    ) -> None:
        """Make a client. ca_file: of the nodes' certificate authorities; None: the system's. Raises: OSError."""
        assert addresses
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        if any(address.scheme == "https" for address in addresses):
            self._tls = ssl.create_default_context(cafile=ca_file)

    def request(self, method: str, path: str, body: Any = None) -> Answer | Silence:
        """Ask the nodes one after the other until one gives a definite answer.

        path: below /api, encoded.   Returns: the first definite answer, else the last one (429 or 5xx); Silence if no
        node answers.
        """
        with self._lock:
            order = list(self._addresses)
        last: Answer | Silence = Silence("no node was asked")
        for address in order:
            found = self._ask(address, method, path, body)
            if isinstance(found, Answer) and not found.is_unsure:
                self._prefer(address)
                return found
            if isinstance(found, Answer) or isinstance(last, Silence):
                last = found
        return last

    def get(self, path: str) -> Answer | Silence:
        """Send a GET request."""
        return self.request("GET", path)

    def _prefer(self, address: Address) -> None:
        with self._lock:
            if self._addresses[0] is not address:
                self._addresses.remove(address)
                self._addresses.insert(0, address)

    def _ask(self, address: Address, method: str, path: str, body: Any) -> Answer | Silence:
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=self._timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=self._timeout_s)
        headers = {"authorization": address.authorization, "accept": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, f"{address.prefix}/api{path}", content, headers)
            response = connection.getresponse()
            raw = response.read(BODY_MAX + 1)
        except ssl.SSLError as error:
            return Silence(f"{address.shown}: {error.reason or 'TLS failed'}")
        except TimeoutError:
            return Silence(f"{address.shown} does not answer within {self._timeout_s:g} s")
        except OSError as error:
            return Silence(f"{address.shown}: {error.strerror or error}")
        except http.client.HTTPException as error:
            return Silence(f"{address.shown} does not speak HTTP: {type(error).__name__}")
        finally:
            connection.close()
        if len(raw) > BODY_MAX:
            return Silence(f"{address.shown} answers with more than {BODY_MAX >> 20} MiB")
        return Answer(response.status, _json(raw))


def _json(raw: bytes) -> Any:
    try:
        return loaded(raw) if raw else None
    except Malformed:
        return None
