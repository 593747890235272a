"""Plug-ins over HTTP: which there are, the requests that they answer, and the files of their pages."""

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from node.catalogue.commands import DisablePlugin, EnablePlugin, PutUser
from node.config.plugins import MANAGEMENT
from node.extension.http import HttpAnswer, HttpRequest, HttpResource, Tag, UiPage
from node.extension.setting import Setting, Settings
from node.management import plugin_resources
from node.management.plugin_resources import AT_ONCE_MAX
from node.management.site import SiteNode
from node.plugins.built_in import built_in
from node.routing.plugins import Plugin
from tests.kit.fake_site import NODE, Caller
from tests.kit.monitor_site import MonitorSite

CLOSED: list[str] = []
ASKED: list[HttpRequest] = []


class Echo(HttpResource):
    """Answers with the request; some paths fail, are late, or have invalid answers."""

    changes: ClassVar[Tag] = "policymaker"

    def __init__(self, settings: Settings, node: str) -> None:
        super().__init__(settings, node)
        if settings["mood"] == "bad":
            raise KeyError("a bug")

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        ASKED.append(request)
        match request.path[0]:
            case "bug":
                raise KeyError("a bug")
            case "late":
                await asyncio.Event().wait()
            case "nothing":
                return HttpAnswer(204)
            case "text":
                return HttpAnswer(404, body=b"no such thing", content_type="text/plain")
            case "header":
                return HttpAnswer(body=b"x", content_type="text/plain\r\nset-cookie: a=b")
            case "large":
                return HttpAnswer(body=b"x" * (5 * 1024 * 1024))
            case "dict":
                return {}  # type: ignore[return-value]
        return HttpAnswer(200, {"node": self.node, "path": list(request.path), "body": request.body.decode()})

    def close(self) -> None:
        CLOSED.append(self.node)
        raise KeyError("a bug")


PAGE = UiPage("Echo", "echo.js", {"echo.js": b"export const title = 'Echo';", "x.exe": b"x"}, "policymaker")
ECHO = Plugin("echo", "1.2", "answers", settings=(Setting("mood", "good"),), http=Echo, page=PAGE)
PLAIN = Plugin("plain", "1", "")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CLOSED.clear()
    ASKED.clear()


def site_with(*names: str) -> MonitorSite:
    """Return a site whose plug-ins are enabled; there is no package of `absent`, and `broken` cannot be loaded."""
    site = MonitorSite()

    def load(name: str) -> Plugin | None:
        if name == "broken":
            raise KeyError("a bug")
        return {"echo": ECHO, "plain": PLAIN}.get(name) or built_in(name)

    site.broker.exchange_types._load = load
    for name in names:
        types = ("x-random", "x-local-random") if name == "rabbitmq_random_exchange" else ()
        site.broker.log.submit(EnablePlugin(name, types))
    return site


def may_only(site: MonitorSite, *tags: str) -> None:
    """Take all other tags from guest."""
    guest = site.broker.catalogue.user("guest")
    assert guest is not None
    site.broker.log.submit(PutUser(guest.name, guest.password_hash, guest.hashing_algorithm, tags))


def test_plugins_are_listed_with_what_they_bring() -> None:
    site = site_with("echo", "rabbitmq_random_exchange", "absent", "broken")
    site.node.config = replace(site.config, enabled_plugins=(MANAGEMENT,))
    site.other_nodes = [SiteNode("down@h", "disc", False), SiteNode("mute@h", "disc", True)]
    caller = Caller(site)
    assert caller.ask("GET", "/api/plugins/echo/bug").status == 500
    rows = {row["name"]: row for row in caller.ask("GET", "/api/plugins").value}
    others = [
        {"name": "down@h", "state": "down", "failures": 0},
        {"name": "mute@h", "state": "does not answer", "failures": 0},
    ]
    assert rows["echo"] == {
        "name": "echo",
        "version": "1.2",
        "description": "answers",
        "source": "package",
        "offers": {"http_resources": True, "page": "Echo", "settings": ["plugin.echo.mood"]},
        "failures": 1,
        "nodes": [others[0], others[1], {"name": NODE, "state": "running", "version": "1.2", "failures": 1}],
    }
    random = rows["rabbitmq_random_exchange"]
    assert (random["source"], random["offers"]) == (
        "built-in",
        {"exchange_types": ["x-random", "x-local-random"]},
    )
    states = {name: rows[name]["nodes"][-1] for name in ("absent", "broken")}
    assert states["absent"] == {"name": NODE, "state": "not installed", "failures": 0}
    assert states["broken"] == {"name": NODE, "state": "cannot be loaded", "failures": 1}
    assert rows[MANAGEMENT]["source"] == "node"
    assert caller.ask("GET", "/api/plugins/echo").value == rows["echo"]
    assert caller.ask("GET", "/api/plugins/nope").status == 404
    may_only(site, "management")
    assert caller.ask("GET", "/api/plugins").status == 401


def test_a_resource_answers() -> None:
    caller = Caller(site_with("echo"))
    reply = caller.ask("PUT", "/api/plugins/echo/a%2Fb/c?x=1&x=2", b"hello")
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert reply.body == b'{"node":"node@test","path":["a/b","c"],"body":"hello"}'
    (request,) = ASKED
    assert (request.method, request.user, request.query) == ("PUT", "guest", {"x": "2"})
    assert request.may_see("/")
    assert caller.ask("GET", "/api/plugins/echo/nothing").status == 204
    reply = caller.ask("GET", "/api/plugins/echo/text")
    assert (reply.status, reply.body, reply.content_type) == (404, b"no such thing", "text/plain")
    assert caller.ask("GET", "/api/plugins/echo/1/2/3/4").status == 200
    assert caller.ask("GET", "/api/plugins/echo/1/2/3/4/5").status == 404
    assert caller.ask("GET", "/api/plugins/plain/a").status == 404


@pytest.mark.parametrize("path", ["bug", "header", "large", "dict"])
def test_a_fault_of_a_resource_is_counted_and_told(path: str) -> None:
    site = site_with("echo")
    reply = Caller(site).ask("GET", f"/api/plugins/echo/{path}")
    assert (reply.status, reply.value["reason"]) == (500, "plug-in 'echo' failed; the log has the reason")
    assert site.broker.exchange_types.failures["echo"] == 1


def test_a_resource_that_cannot_be_made() -> None:
    site = site_with("echo")
    site.config = replace(site.config, plugin_settings={"plugin.echo.mood": "bad"})
    assert Caller(site).ask("GET", "/api/plugins/echo/a").status == 500
    assert site.broker.exchange_types.failures["echo"] == 1


def test_a_late_resource_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_resources, "ANSWER_S", 0.001)
    site = site_with("echo")
    reply = Caller(site).ask("GET", "/api/plugins/echo/late")
    assert (reply.status, reply.value["reason"]) == (503, "plug-in 'echo' did not answer within 0.001 s")
    assert site.broker.exchange_types.failures["echo"] == 1


def test_so_many_requests_are_answered_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_resources, "AT_ONCE_MAX", 0)
    assert AT_ONCE_MAX > 0
    reply = Caller(site_with("echo")).ask("GET", "/api/plugins/echo/a")
    assert (reply.status, reply.value["error"]) == (503, "service_unavailable")


def test_tags_decide_who_may_ask() -> None:
    site = site_with("echo")
    caller = Caller(site)
    may_only(site, "policymaker")
    assert caller.ask("PUT", "/api/plugins/echo/a").status == 200
    assert caller.ask("GET", "/api/plugins/echo/a").status == 401
    may_only(site, "monitoring")
    assert caller.ask("GET", "/api/plugins/echo/a").status == 200
    assert caller.ask("DELETE", "/api/plugins/echo/a").status == 401
    assert caller.ask("GET", "/api/plugins/echo/a", headers={"authorization": ""}).status == 401
    assert caller.ask("PUT", "/api/plugins/echo/a", headers={"origin": "http://evil.example"}).status == 403


def test_a_resource_goes_with_its_plugin() -> None:
    site = site_with("echo")
    caller = Caller(site)
    assert caller.ask("GET", "/api/plugins/echo/a").status == 200
    assert CLOSED == []
    site.broker.log.submit(DisablePlugin("echo"))
    assert CLOSED == [NODE]
    assert site.broker.exchange_types.failures["echo"] == 1
    assert caller.ask("GET", "/api/plugins/echo/a").status == 404
    assert caller.ask("GET", "/plugins/echo/echo.js").status == 404


def test_a_plugin_that_this_node_lacks_is_named() -> None:
    reply = Caller(site_with("absent")).ask("GET", "/api/plugins/absent/a")
    assert (reply.status, reply.value["reason"]) == (503, "plug-in 'absent' is not installed on this node")


def test_the_files_of_a_page() -> None:
    caller = Caller(site_with("echo"))
    reply = caller.ask("GET", "/plugins/echo/echo.js", headers={"authorization": ""})
    assert (reply.status, reply.body) == (200, PAGE.files["echo.js"])
    assert reply.content_type == "text/javascript; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    again = caller.ask("GET", "/plugins/echo/echo.js", headers={"if-none-match": reply.headers["etag"]})
    assert (again.status, again.body) == (304, None)
    for path in ("echo/nope.js", "echo/x.exe", "plain/echo.js", "echo/..%2Fecho.js"):
        assert caller.ask("GET", f"/plugins/{path}").status == 404, path


def test_the_ui_is_told_of_pages_that_the_user_may_see() -> None:
    site = site_with("echo", "plain")
    caller = Caller(site)
    own: list[dict[str, Any]] = [{"javascript": "dispatcher.js"}]
    page = {"javascript": "plugins/echo/echo.js", "plugin": "echo", "menu": "Echo", "tag": "policymaker"}
    assert caller.ask("GET", "/api/extensions").value == [*own, page]
    may_only(site, "monitoring")
    assert caller.ask("GET", "/api/extensions").value == own


def test_a_page_has_its_script_and_is_small() -> None:
    with pytest.raises(AssertionError):
        UiPage("Echo", "other.js", {"echo.js": b""})
    with pytest.raises(AssertionError):
        UiPage("Echo", "echo.js", {"echo.js": b"x" * (1 << 21)})
    with pytest.raises(AssertionError):
        UiPage("Echo", "a/echo.js", {"a/echo.js": b""})
    with pytest.raises(AssertionError):
        UiPage("Echo", "echo.js", {"echo.js": b""}, "king")  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        type("Wrong", (Echo,), {"reads": "king"})
