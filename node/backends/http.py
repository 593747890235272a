"""The plug-in `rabbitmq_auth_backend_http`: a web service says who may log in and do what.

Requests and answers are those of RabbitMQ 3.10.8's plug-in of that name: the answer is `allow`, for a login with the
user's tags behind it, or `deny`. Anything else is a fault, and refuses.
Source: RabbitMQ 3.10.8's `rabbit_auth_backend_http` and its README.
"""

import ssl
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import quote

from node.override import override
from node.plugins import (
    VERSION,
    AuthBackend,
    Identity,
    Login,
    Plugin,
    Question,
    ResourceAccess,
    Setting,
    Settings,
    TopicAccess,
    VhostAccess,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession

ANSWER_MAX_BYTES: Final = 64 * 1024
"""The longest answer that is read: a longer one is neither `allow` with tags nor `deny`."""

CONNECTIONS_MAX: Final = 64
"""The most connections to the service; further requests wait for one."""

_GOOD: Final = (200, 201)
_VERIFY: Final = ("verify_peer", "verify_none")


class HttpError(Exception):
    """The service gave an answer that is neither `allow` nor `deny`."""


class HttpBackend(AuthBackend):
    """Asks a web service with one request for each question."""

    name: ClassVar[str] = "http"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._session: ClientSession | None = None

    @override
    async def log_in(self, login: Login) -> Identity | None:
        fields = {"username": _octets(login.user)}
        if login.password is not None:
            fields["password"] = login.password
        answer = await self._ask("user_path", fields)
        if answer == "deny":
            return None
        word, *tags = answer.split() or [""]
        if word != "allow":
            raise HttpError("the answer to a login is neither 'allow' nor 'deny'")
        return Identity(login.user, tuple(tags))

    @override
    async def allows(self, question: Question) -> bool:
        match question:
            case VhostAccess():
                path, fields = "vhost_path", {"vhost": question.vhost, "ip": question.host}
            case ResourceAccess():
                path, fields = (
                    "resource_path",
                    {
                        "vhost": question.vhost,
                        "resource": question.kind,
                        "name": question.name,
                        "permission": question.permission,
                    },
                )
            case TopicAccess():
                path, fields = (
                    "topic_path",
                    {
                        "vhost": question.vhost,
                        "resource": "topic",
                        "name": question.exchange,
                        "permission": question.permission,
                    },
                )
        fields = {"username": question.user, **fields, "tags": " ".join(question.tags)}
        if isinstance(question, TopicAccess):
            fields |= {
                "routing_key": question.routing_key,
                "variable_map.username": question.user,
                "variable_map.vhost": question.vhost,
            }
        answer = await self._ask(path, {key: _octets(value) for key, value in fields.items()})
        if answer not in ("allow", "deny"):
            raise HttpError("the answer is neither 'allow' nor 'deny'")
        return answer == "allow"

    @override
    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, path: str, fields: dict[str, bytes]) -> str:
        """Return the answer in small letters. Raises: HttpError, or aiohttp's errors."""
        query = "&".join(f"{key}={quote(value, safe='')}" for key, value in fields.items())
        url = str(self.settings[path])
        session = self._session or self._open()
        if self.settings["http_method"] == "post":
            form = {"content-type": "application/x-www-form-urlencoded"}
            request = session.post(url, data=query.encode(), headers=form, allow_redirects=False)
        else:
            from yarl import URL

            request = session.get(URL(f"{url}?{query}", encoded=True), allow_redirects=False)
        async with request as answer:
            body = await answer.content.read(ANSWER_MAX_BYTES + 1)
            while len(body) <= ANSWER_MAX_BYTES and (more := await answer.content.read(ANSWER_MAX_BYTES)):
                body += more
            if answer.status not in _GOOD:
                raise HttpError(f"{path} was answered with status {answer.status}")
        if len(body) > ANSWER_MAX_BYTES:
            raise HttpError(f"{path} was answered with more than {ANSWER_MAX_BYTES} bytes")
        return body.decode("utf-8", "replace").strip().lower()

    def _open(self) -> "ClientSession":
        from aiohttp import (
            ClientSession,
            ClientTimeout,
            DummyCookieJar,
            TCPConnector,
        )  # which takes some 0.2 s

        times = ClientTimeout(
            total=float(self.settings["request_timeout"]) / 1000,
            sock_connect=float(self.settings["connection_timeout"]) / 1000,
        )
        connector = TCPConnector(limit=CONNECTIONS_MAX, ssl=self._tls())
        self._session = ClientSession(connector=connector, timeout=times, cookie_jar=DummyCookieJar())
        return self._session

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.settings["ssl_options.cacertfile"]) or None)
        if self.settings["ssl_options.verify"] == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _octets(text: str) -> bytes:
    """Return what a client sent: names may hold bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


PLUGIN: Final = Plugin(
    "rabbitmq_auth_backend_http",
    VERSION,
    "Authentication and authorisation by a web service",
    auth_backends=(HttpBackend,),
    prefix="auth_http",
    settings=(
        Setting("http_method", "get", "how the service is asked", choices=("get", "post")),
        Setting("user_path", "http://localhost:8000/auth/user", "the URL for logins"),
        Setting("vhost_path", "http://localhost:8000/auth/vhost", "the URL for access to vhosts"),
        Setting(
            "resource_path",
            "http://localhost:8000/auth/resource",
            "the URL for access to queues and exchanges",
        ),
        Setting(
            "topic_path", "http://localhost:8000/auth/topic", "the URL for routing keys of topic exchanges"
        ),
        Setting("request_timeout", 15000, "milliseconds for a whole request", minimum=1),
        Setting("connection_timeout", 15000, "milliseconds for a connection to the service", minimum=1),
        Setting("ssl_options.cacertfile", "", "PEM file of the service's authorities; empty: the system's"),
        Setting("ssl_options.verify", "verify_peer", "how the service is checked", choices=_VERIFY),
    ),
)
