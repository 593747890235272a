"""A client of the HTTP API that hides nothing, also for invalid requests.

Paths go out as they are written, and what comes back is kept whole: status, headers, text.
"""

import base64
import http.client
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

TIMEOUT_S: Final = 30.0
"""An answer may take this long, since the machine may be busy; only a failing test waits so long."""

JSON: Final = "application/json"
GUEST: Final = "guest"


class Managed(Protocol):
    """A server whose management is on: `start_server(with_management=True)`, or a node of such a cluster."""

    @property
    def management_url(self) -> str: ...


class Answer(NamedTuple):
    """An answer of the HTTP API.   json: None if the body is empty or is not JSON."""

    status: int
    json: Any
    headers: http.client.HTTPMessage
    text: str


class HttpApi:
    """Requests to one server. Each has a connection of its own unless `keep` is used.

    user: whose name is also the password, unless one is given.
    """

    def __init__(self, server: Managed, user: str = GUEST, password: str | None = None) -> None:
        assert server.management_url, "this server was started without management"
        self._server = server
        self._user, self._password = user, password

    def as_user(self, user: str, password: str | None = None) -> "HttpApi":
        """Return a client of the same server with another default user."""
        return HttpApi(self._server, user, password)

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def put(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("PUT", path, body, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("POST", path, body, **options)

    def delete(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("DELETE", path, body, **options)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = None,
        password: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request. Returns: the answer.

        path: below /api, or all of it when it begins with "//", e.g. "//metrics". Nothing in it is encoded here.
        body: bytes and str go as they are, None is no body, anything else goes as JSON.
        user: someone else than usual; "" sends no credentials.
        headers: more of them, or others than usual.
        """
        url = urllib.parse.urlsplit(self._server.management_url)
        assert url.hostname is not None
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=TIMEOUT_S)
        try:
            whole = path[1:] if path.startswith("//") else "/api" + path
            connection.putrequest(method, whole, skip_accept_encoding=True)
            content = _content(body)
            for name, value in {
                **self._credentials(user, password),
                **_about(content),
                **(headers or {}),
            }.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            response = connection.getresponse()
            raw = response.read()
            return Answer(response.status, _json(raw), response.headers, raw.decode("utf-8", "replace"))
        finally:
            connection.close()

    def _credentials(self, user: str | None, password: str | None) -> dict[str, str]:
        if user is None:
            user, password = self._user, self._password if password is None else password
        if not user:
            return {}
        pair = f"{user}:{user if password is None else password}"
        return {"authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def quote(name: str) -> str:
    """Return a name as a segment of a path: all but letters, digits and `-._` is percent-encoded, also `~`."""
    return urllib.parse.quote(name, safe="").replace("~", "%7E")


def _content(body: Any) -> bytes | None:
    match body:
        case None | bytes():
            return body
        case str():
            return body.encode()
    return json.dumps(body).encode()


def _about(content: bytes | None) -> dict[str, str]:
    if content is None:
        return {}
    return {"content-type": JSON, "content-length": str(len(content))}


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None
