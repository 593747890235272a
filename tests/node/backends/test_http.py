"""The backend `http` against a web service: its requests, to the letter those of RabbitMQ, and all kinds of answers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web

from node.backends.http import ANSWER_MAX_BYTES, PLUGIN, HttpBackend, HttpError
from node.extension.setting import read_settings
from node.plugins import Identity, Login, Question, ResourceAccess, TopicAccess, VhostAccess

pytestmark = pytest.mark.real

TAGS = ("monitoring", "policymaker")
ADA = Login("ada", b"s&cr t\xff", "PLAIN", "192.0.2.7")


class Service:
    """A web service that gives one answer to everything.   requests: method, path and fields as they came."""

    def __init__(self, status: int = 200, text: str = "allow") -> None:
        self.status, self.text = status, text
        self.requests: list[tuple[str, str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.text()
        self.requests.append((request.method, request.path, body or request.rel_url.raw_query_string))
        return web.Response(status=self.status, text=self.text, headers={"location": "/elsewhere"})


def using(
    service: Service,
    use: Callable[[HttpBackend], Coroutine[Any, Any, None]],
    method: str = "get",
    **more: str,
) -> None:
    """Let `use` have a backend that asks a service."""

    async def run() -> None:
        runner = web.ServerRunner(web.Server(service.answer))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        paths = ("user", "vhost", "resource", "topic")
        given = {f"auth_http.{path}_path": f"http://{host}:{port}/auth/{path}" for path in paths}
        given |= {"auth_http.http_method": method, **{f"auth_http.{key}": text for key, text in more.items()}}
        backend = HttpBackend(read_settings(PLUGIN.settings_prefix, PLUGIN.settings, given))
        try:
            await use(backend)
        finally:
            await backend.close()
            await runner.cleanup()

    asyncio.run(run())


QUESTIONS: list[tuple[Question, str, str]] = [
    (
        VhostAccess("ada", TAGS, "a/b", "192.0.2.7"),
        "/auth/vhost",
        "username=ada&vhost=a%2Fb&ip=192.0.2.7&tags=monitoring%20policymaker",
    ),
    (
        ResourceAccess("ada", (), "/", "queue", "q 1", "configure"),
        "/auth/resource",
        "username=ada&vhost=%2F&resource=queue&name=q%201&permission=configure&tags=",
    ),
    (
        TopicAccess("ada", TAGS, "/", "t", "write", "a.b"),
        "/auth/topic",
        "username=ada&vhost=%2F&resource=topic&name=t&permission=write&tags=monitoring%20policymaker"
        "&routing_key=a.b&variable_map.username=ada&variable_map.vhost=%2F",
    ),
]


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_login_is_a_request_with_name_and_password(method: str) -> None:
    service = Service(text=" Allow administrator Management\n")

    async def use(backend: HttpBackend) -> None:
        assert await backend.log_in(ADA) == Identity("ada", ("administrator", "management"))

    using(service, use, method)
    assert service.requests == [(method.upper(), "/auth/user", "username=ada&password=s%26cr%20t%FF")]


def test_a_login_by_certificate_has_no_password() -> None:
    service = Service()

    async def use(backend: HttpBackend) -> None:
        assert await backend.log_in(Login("ada", None, "EXTERNAL")) == Identity("ada", ())

    using(service, use)
    assert service.requests == [("GET", "/auth/user", "username=ada")]


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize(("question", "path", "fields"), QUESTIONS)
def test_a_question_is_a_request(method: str, question: Question, path: str, fields: str) -> None:
    service = Service(status=201)

    async def use(backend: HttpBackend) -> None:
        assert await backend.allows(question)
        service.text = "DENY"
        assert not await backend.allows(question)

    using(service, use, method)
    assert service.requests == [(method.upper(), path, fields)] * 2


def test_a_denied_login_is_no_fault() -> None:
    async def use(backend: HttpBackend) -> None:
        assert await backend.log_in(ADA) is None

    using(Service(text="deny"), use)


@pytest.mark.parametrize(
    "service",
    [
        Service(500),
        Service(302),
        Service(text="maybe"),
        Service(text=""),
        Service(text="allow" + "x" * ANSWER_MAX_BYTES),
    ],
    ids=["500", "redirect", "maybe", "nothing", "long"],
)
def test_any_other_answer_is_a_fault(service: Service) -> None:
    async def use(backend: HttpBackend) -> None:
        with pytest.raises(HttpError):
            await backend.log_in(ADA)
        with pytest.raises(HttpError):
            await backend.allows(QUESTIONS[0][0])

    using(service, use)


def test_a_service_that_is_not_there_is_a_fault() -> None:
    async def use(backend: HttpBackend) -> None:
        with pytest.raises(OSError, match="127"):
            await backend.log_in(ADA)

    using(Service(), use, user_path="http://127.0.0.1:1/")
