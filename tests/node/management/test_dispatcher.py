"""From requests to answers; management §1.0, §2.1, §2.6."""

import time
from typing import Any

import orjson
import pytest

from node.admin.admin import AdminError
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.config.config import ManagementConfig
from node.io.control import EX_UNAVAILABLE, ControlError
from node.management.call import DEPTH_MAX, Call
from node.management.listing import ListingError
from node.management.reply import Reply, no_content, ok
from node.management.routes import Access, Route
from tests.kit.fake_site import Caller


async def hello(call: Call) -> Reply:
    return ok({"user": call.user.name, **call.path, **call.query})


async def echo(call: Call) -> Reply:
    return ok(await call.body())


async def vhosts(call: Call) -> Reply:
    return ok(list(call.vhosts()))


async def fails(call: Call) -> Reply:
    raise {
        "admin": AdminError("not_found", ["no_such_user", "x"]),
        "invalid": AdminError("invalid", "bad"),
        "listing": ListingError("page_out_of_range", "far"),
        "missing": ProtocolError(ReplyCode.NOT_FOUND, "no queue 'x' in vhost '/'"),
        "refused": ProtocolError(ReplyCode.ACCESS_REFUSED, "no"),
        "inequivalent": ProtocolError(ReplyCode.PRECONDITION_FAILED, "inequivalent arg"),
        "control": ControlError(64, "odd"),
        "unreachable": ControlError(EX_UNAVAILABLE, "away"),
    }[call.path["what"]]


ROUTES = [
    Route("GET", "/hello/{name}", hello),
    Route("PUT", "/hello/{name}", hello),
    Route("GET", "/vhosts", vhosts),
    Route("GET", "/vhosts/{vhost}", vhosts),
    Route("POST", "/echo", echo),
    Route("POST", "/json", echo, consumes="application/json,multipart/form-data"),
    Route("GET", "/public", hello, Access.PUBLIC),
    Route("GET", "/admin", hello, Access.ADMINISTRATOR),
    Route("GET", "/definitions", hello),
    Route("GET", "/fails/{what}", fails),
]


@pytest.fixture
def caller() -> Caller:
    return Caller(routes=ROUTES)


def test_a_handler_gets_user_path_and_parameters(caller: Caller) -> None:
    reply = caller.ask("GET", "/api/hello/a%2Fb?x=1&y=%20&x=2")
    assert (reply.status, reply.value) == (200, {"user": "guest", "name": "a/b", "x": "2", "y": " "})


@pytest.mark.parametrize(
    "target", ["/api/nope", "/api", "/", "/api/hello", "/x/../api/hello/a", "//api/hello/a/b"]
)
def test_404_for_paths_that_are_not_there_before_anybody_logs_in(caller: Caller, target: str) -> None:
    reply = caller.ask("GET", target, headers={"authorization": ""})
    assert (reply.status, reply.value) == (404, {"error": "Object Not Found", "reason": "Not Found"})


def test_405_says_what_is_allowed(caller: Caller) -> None:
    reply = caller.ask("DELETE", "/api/hello/a")
    assert (reply.status, reply.value) == (405, None)
    assert reply.headers["allow"] == "HEAD, GET, PUT, OPTIONS"
    assert caller.ask("BREW", "/api/hello/a").status == 405


def test_head_is_get(caller: Caller) -> None:
    assert caller.ask("HEAD", "/api/hello/a").status == 200


@pytest.mark.parametrize("header", ["", "Bearer x", "Basic !!", "Basic"])
def test_401_without_a_body_asks_for_credentials(caller: Caller, header: str) -> None:
    reply = caller.ask("GET", "/api/hello/a", headers={"authorization": header})
    assert (reply.status, reply.value) == (401, None)
    assert reply.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


def test_401_for_a_wrong_password(caller: Caller) -> None:
    reply = caller.ask("GET", "/api/hello/a", headers={"authorization": "Basic Z3Vlc3Q6eA=="})
    assert (reply.status, reply.value) == (401, {"error": "not_authorized", "reason": "Login failed"})
    assert "www-authenticate" in reply.headers


def test_401_for_a_loopback_user_from_elsewhere(caller: Caller) -> None:
    reply = caller.ask("GET", "/api/hello/a", peer="10.0.0.9")
    assert reply.value == {
        "error": "not_authorized",
        "reason": "User can only log in via localhost",
    }


def test_what_is_public_needs_nobody(caller: Caller) -> None:
    caller.site.node = None
    assert caller.ask("GET", "/api/public", headers={"authorization": ""}).status == 200


def test_503_when_the_broker_does_not_run(caller: Caller) -> None:
    caller.site.node = None
    assert caller.ask("GET", "/api/hello/a").status == 503


def test_definitions_can_be_asked_for_by_a_link(caller: Caller) -> None:
    no_header = {"authorization": ""}
    assert caller.ask("GET", "/api/definitions?auth=Z3Vlc3Q6Z3Vlc3Q=", headers=no_header).status == 200
    assert caller.ask("GET", "/api/hello/a?auth=Z3Vlc3Q6Z3Vlc3Q=", headers=no_header).status == 401


def test_basic_auth_can_be_switched_off() -> None:
    caller = Caller(config=ManagementConfig(disable_basic_auth=True), routes=ROUTES)
    assert caller.ask("GET", "/api/hello/a").status == 401


@pytest.mark.parametrize("body", [b"", b"  ", b"null", b"undefined", b"{}"])
def test_bodies_that_say_nothing(caller: Caller, body: bytes) -> None:
    assert caller.ask("POST", "/api/echo", body).value == {}


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"[1]",
        b"1",
        b"{",
        b"{'a':1}",
        b'{"a":NaN}',
        b"\xff",
        b'{"a":"\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
    ],
)
def test_400_for_bodies_that_are_no_json_object(caller: Caller, body: bytes) -> None:
    reply = caller.ask("POST", "/api/echo", body)
    assert (reply.status, reply.value) == (400, {"error": "bad_request", "reason": "not_json"})


def test_bodies_may_be_nested_so_deep(caller: Caller) -> None:
    body = b'{"a":' * (DEPTH_MAX - 1) + b"1" + b"}" * (DEPTH_MAX - 1)
    assert caller.ask("POST", "/api/echo", body).value == orjson.loads(body)


def test_a_string_is_told_apart(caller: Caller) -> None:
    assert "doubly-JSON-encoded" in caller.ask("POST", "/api/echo", b'"{}"').value["reason"]


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("multipart/form-data; boundary=x", 200),
        ("text/plain", 415),
        ("", 415),
    ],
)
def test_415_for_the_wrong_content_type(caller: Caller, content_type: str, status: int) -> None:
    assert caller.ask("POST", "/api/json", {}, headers={"content-type": content_type}).status == status


def test_415_for_packed_bodies(caller: Caller) -> None:
    assert caller.ask("POST", "/api/echo", b"x", headers={"content-encoding": "gzip"}).status == 415


@pytest.mark.parametrize(
    ("what", "status", "error", "reason"),
    [
        ("admin", 404, "not_found", ["no_such_user", "x"]),
        ("invalid", 400, "bad_request", "bad"),
        ("listing", 400, "page_out_of_range", "far"),
        ("missing", 404, "not_found", "no queue 'x' in vhost '/'"),
        ("refused", 401, "not_authorised", "Access refused."),
        ("inequivalent", 400, "bad_request", "inequivalent arg"),
        ("control", 400, "bad_request", "odd"),
        ("unreachable", 503, "service_unavailable", "away"),
    ],
)
def test_what_errors_become(caller: Caller, what: str, status: int, error: str, reason: Any) -> None:
    reply = caller.ask("GET", f"/api/fails/{what}")
    assert (reply.status, reply.value) == (status, {"error": error, "reason": reason})


def test_vhosts_of_the_path_the_header_or_all(caller: Caller) -> None:
    assert caller.ask("GET", "/api/vhosts").value == ["/"]
    assert caller.ask("GET", "/api/vhosts/%2F").value == ["/"]
    assert caller.ask("GET", "/api/vhosts/nope").status == 404
    assert caller.ask("GET", "/api/vhosts", headers={"x-vhost": "nope"}).status == 404
    assert caller.ask("GET", "/api/vhosts", headers={"x-vhost": "/"}).value == ["/"]


# Other origins: management §2.6.

EVIL = {"origin": "http://evil.example", "host": "localhost:15672"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:15672"}, 200),
        (EVIL, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:1"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_a_page_of_another_origin_changes_nothing(
    caller: Caller, headers: dict[str, str], status: int
) -> None:
    assert caller.ask("PUT", "/api/hello/a", {}, headers=headers).status == status


def test_no_cors_headers_by_default(caller: Caller) -> None:
    reply = caller.ask("GET", "/api/hello/a", headers=EVIL)
    assert reply.status == 200
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert reply.headers["vary"] == "accept, accept-encoding, origin"


@pytest.mark.parametrize("allowed", ["http://evil.example", "*"])
def test_an_origin_that_is_allowed(allowed: str) -> None:
    caller = Caller(config=ManagementConfig(cors_allow_origins=(allowed,)), routes=ROUTES)
    assert caller.ask("PUT", "/api/hello/a", {}, headers=EVIL).status == 200
    headers = {**EVIL, "authorization": "", "access-control-request-headers": "authorization"}
    reply = caller.ask("OPTIONS", "/api/anything", headers=headers)
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == "http://evil.example"
    assert reply.headers["access-control-allow-credentials"] == "true"
    assert reply.headers["access-control-allow-headers"] == "authorization"
    assert reply.headers["access-control-max-age"] == "1800"


def test_pages_are_not_framed_nor_guessed_at() -> None:
    """reliability §6, HTTP API."""
    reply = Caller(config=ManagementConfig(), routes=ROUTES).ask("GET", "/api/hello/a")
    assert reply.headers["x-frame-options"] == "DENY"
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_headers_from_the_configuration() -> None:
    config = ManagementConfig(hsts_policy="max-age=5", headers={"x-frame-options": "SAMEORIGIN"})
    reply = Caller(config=config, routes=ROUTES).ask("GET", "/api/hello/a")
    assert reply.headers["strict-transport-security"] == "max-age=5"
    assert reply.headers["x-frame-options"] == "SAMEORIGIN"
    assert reply.headers["content-security-policy"].startswith("default-src 'self'")


def test_a_prefix_stands_before_all_paths() -> None:
    caller = Caller(config=ManagementConfig(path_prefix="/rabbit"), routes=ROUTES)
    assert caller.ask("GET", "/rabbit/api/hello/a").status == 200
    assert caller.ask("GET", "/api/hello/a").status == 404
    assert caller.ask("GET", "/rabbits/api/hello/a").status == 404


def test_too_many_parameters(caller: Caller) -> None:
    assert caller.ask("GET", "/api/hello/a?" + "&".join(f"p{n}=1" for n in range(101))).status == 400


def test_a_fault_of_ours_is_not_hidden() -> None:
    async def breaks(call: Call) -> Reply:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Caller(routes=[Route("GET", "/x", breaks)]).ask("GET", "/api/x")


def test_guessers_are_sent_away_before_the_password_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(call: Call) -> Reply:
        return no_content()

    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    caller = Caller(routes=[Route("GET", "/x", nothing)])
    wrong = {"authorization": "Basic Z3Vlc3Q6eA=="}
    assert [caller.ask("GET", "/api/x", headers=wrong).status for _ in range(12)] == [401] * 10 + [429] * 2
    assert caller.ask("GET", "/api/x").status == 429
    now += 1.0
    assert caller.ask("GET", "/api/x").status == 204
