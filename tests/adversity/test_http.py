"""Hostile clients of the HTTP API: what they send is refused with the right code, and a publisher beside them goes on.

Source: docs/security.md, "Hostile clients"; management §1.0, §2.1, §2.6.
"""

import concurrent.futures
import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.adversity.bystander import Bystander
from tests.kit.http_api import HttpApi, quote
from tests.kit.node_process import NodeProcess, TemporaryNode
from tests.kit.patience import patience, wait_until

NAMES: Final = [
    "a/b",
    "..",
    "../../etc/passwd",
    "~",
    "~~a",
    "%2F",
    "%00",
    "+",
    "a b",
    "a\r\nSet-Cookie: x=1",
    "2026-01-01 00:00:00 [error] forged\n2026-01-01 00:00:00 [error] line",
    "\x1b[31mred\x1b[0m",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "{{7*7}}",
    "'; DROP TABLE queues; --",
    "ä" * 127,
    "😀" * 63,
    "\u202egnp.exe",
    "\u2028",
    "a" * 255,
    "null",
    "amq_default",
    "__proto__",
    "constructor",
]

NOTICED_S: Final = 0.5
"""A round trip of this time would be slow to publishers beside the attack. Alone it takes a millisecond, but the
machine may have other work."""

VHOST: Final = quote("/")


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    with TemporaryNode(management="127.0.0.1:0") as started:
        yield started


@pytest.fixture
def api(node: NodeProcess) -> HttpApi:
    return HttpApi(node)


def _queue(name: str) -> str:
    return f"/queues/{VHOST}/{quote(name)}"


# Names.


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_queue_comes_back_as_it_went(api: HttpApi, name: str) -> None:
    assert api.put(_queue(name), {}).status == 201
    # As in AMQP, a queue is declared without the line ends of its name.
    name = name.replace("\r", "").replace("\n", "")
    path = _queue(name)
    try:
        answer = api.get(path)
        assert (answer.status, answer.json["name"]) == (200, name)
        assert answer.headers["content-type"] == "application/json"
        assert name in [row["name"] for row in api.get(f"/queues/{VHOST}?sort=name&columns=name").json]
        bound = api.post(f"/bindings/{VHOST}/e/amq.topic/q/{quote(name)}", {"routing_key": name})
        assert bound.status == 201, bound
        assert "\n" not in bound.headers["location"]
        rows = api.get(f"{path}/bindings").json
        (row,) = [row for row in rows if row["source"] == "amq.topic"]
        assert row["routing_key"] == name
        one = f"/bindings/{VHOST}/e/amq.topic/q/{quote(name)}/{quote(row['properties_key'])}"
        assert api.get(one).status == 200
        assert api.delete(one).status == 204
    finally:
        assert api.delete(path).status == 204
    assert api.get(path).status == 404


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_vhost_a_user_and_a_policy(api: HttpApi, name: str) -> None:
    vhost, user = f"/vhosts/{quote(name)}", f"/users/{quote(name)}"
    assert api.put(vhost, {}).status == 201
    try:
        assert api.put(user, {"password": name, "tags": name}).status == 201
        assert api.get(user).json["name"] == name
        permission = f"/permissions/{quote(name)}/{quote(name)}"
        assert api.put(permission, {"configure": ".*", "write": ".*", "read": ".*"}).status == 201
        assert api.get(permission).json["vhost"] == name
        policy = f"/policies/{quote(name)}/{quote(name)}"
        body = {"pattern": ".*", "definition": {"max-length": 1}}
        assert api.put(policy, body).status == 201
        assert api.get(policy).json["name"] == name
        exported = api.get("/definitions").json
        assert name in [each["name"] for each in exported["vhosts"]]
    finally:
        assert api.delete(user).status == 204
        assert api.delete(vhost).status == 204


def test_names_that_are_too_long_are_refused(api: HttpApi) -> None:
    long = "a" * 256
    for path in (
        f"/queues/{VHOST}/{long}",
        f"/exchanges/{VHOST}/{long}",
        f"/vhosts/{long}",
        f"/users/{long}",
    ):
        answer = api.put(path, {"type": "direct", "password": "x", "tags": ""})
        assert answer.status == 400, (path, answer)
        assert answer.json["error"] == "bad_request"


def test_no_name_forges_a_line_of_the_log(node: NodeProcess, api: HttpApi) -> None:
    forged = "x\n2026-01-01 00:00:00.000000+00:00 [error] <0.0.0> forged"
    body = {"password": "p", "tags": forged, "description": forged}
    for method, path in (("PUT", "vhosts"), ("PUT", "users"), ("DELETE", "users"), ("DELETE", "vhosts")):
        api.request(method, f"/{path}/{quote(forged)}", body)
    api.get("/overview", user=forged, password="wrong")
    api.delete(f"/connections/{quote(forged)}", headers={"x-reason": "x"})
    assert not [line for line in node.log_text().splitlines() if line.startswith("2026-01-01")]


# Paths.


@pytest.mark.parametrize(
    "path",
    [
        "//../../../../etc/passwd",
        "//js/../../dispatcher.py",
        "//%2e%2e/%2e%2e/etc/passwd",
        "//..%2f..%2fetc%2fpasswd",
        "//js/%2e%2e/%2e%2e/server.py",
        "//\\..\\..\\etc",
        "//static/../index.html/..",
        "/%ff",
        "/queues/%ff/x",
        "/queues/%2F/%c3%28",
        "/" + "x/" * 100,
    ],
)
def test_paths_that_lead_nowhere(api: HttpApi, path: str) -> None:
    answer = api.get(path)
    assert (answer.status, answer.json) == (404, {"error": "Object Not Found", "reason": "Not Found"})


# Bodies.

_PUTS: Final = [
    f"/queues/{VHOST}/bad",
    f"/exchanges/{VHOST}/bad",
    "/vhosts/bad",
    "/users/bad",
    f"/permissions/{VHOST}/guest",
    f"/topic-permissions/{VHOST}/guest",
    f"/policies/{VHOST}/bad",
    f"/operator-policies/{VHOST}/bad",
    "/global-parameters/bad",
    f"/vhost-limits/{VHOST}/max-queues",
    "/user-limits/guest/max-channels",
    "/cluster-name",
]
_POSTS: Final = [
    f"/exchanges/{VHOST}/amq.default/publish",
    f"/queues/{VHOST}/bad/get",
    f"/queues/{VHOST}/bad/actions",
    f"/bindings/{VHOST}/e/amq.topic/q/bad",
    "/definitions",
    "/users/bulk-delete",
]


@pytest.mark.parametrize("body", [b"{", b"[]", b"[[[[", b'"x"', b"7", b"\xff\xfe", b"[" * 200_000])
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", path) for path in _PUTS] + [("POST", p) for p in _POSTS]
)
def test_400_for_bodies_that_are_no_object(api: HttpApi, method: str, path: str, body: bytes) -> None:
    assert api.put(_queue("bad"), {}).status in (201, 204)
    answer = api.request(method, path, body, headers={"content-type": "application/json"})
    assert answer.status == 400, answer
    assert answer.json["error"] in ("bad_request", "not_json")


_KEYS: Final = [
    *("arguments", "durable", "auto_delete", "type", "node", "internal", "password", "tags", "description"),
    *("password_hash", "tracing", "limits", "configure", "write", "read", "exchange", "pattern", "priority"),
    *("definition", "apply-to", "value", "name", "properties", "routing_key", "payload", "users", "count"),
    *("payload_encoding", "ackmode", "encoding", "truncate", "action"),
]
_ODD: Final[list[Any]] = [
    dict.fromkeys(_KEYS, value)
    for value in (None, 7, -1, 10**30, 1.5, True, [], [1], {}, {"a": {"b": [None]}}, "", "x" * 10_000)
]


@pytest.mark.parametrize("number", range(len(_ODD)))
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", path) for path in _PUTS] + [("POST", p) for p in _POSTS]
)
def test_wrong_types_never_are_a_fault_of_ours(api: HttpApi, method: str, path: str, number: int) -> None:
    """Whatever is taken or refused, it isn't a 500, and permissions of guest are put right again."""
    answer = api.request(method, path, _ODD[number], headers={"content-type": "application/json"})
    assert answer.status < 500, answer
    if answer.status >= 400:
        assert answer.json["error"]
    whole = {"configure": ".*", "write": ".*", "read": ".*"}
    api.put(f"/permissions/{VHOST}/guest", whole)
    for path in (f"/queues/{VHOST}/bad", "/vhosts/bad", "/users/bad", f"/topic-permissions/{VHOST}/guest"):
        api.delete(path)
    for path in (f"/vhost-limits/{VHOST}/max-queues", "/user-limits/guest/max-channels"):
        api.delete(path)


def test_a_body_beyond_the_bound(api: HttpApi) -> None:
    answer = api.post("/definitions", b" " * 10_000_001, headers={"content-type": "application/json"})
    assert answer.status == 400


def test_definitions_that_nest_without_end_store_nothing(api: HttpApi) -> None:
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    body = b'{"vhosts":[{"name":"half"}],"queues":[{"name":"q","vhost":"half","arguments":' + deep + b"}]}"
    assert api.post("/definitions", body, headers={"content-type": "application/json"}).status == 400
    assert api.get("/vhosts/half").status == 404


# Other origins.


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
def test_a_page_of_another_origin_cannot_write(api: HttpApi, origin: str) -> None:
    for method, path in (("PUT", "/vhosts/csrf"), ("DELETE", "/vhosts/%2F"), ("POST", "/login")):
        answer = api.request(method, path, {}, headers={"origin": origin})
        assert answer.status == 403
    assert api.get("/vhosts/csrf").status == 404
    headers = api.get("/overview", headers={"origin": origin}).headers
    assert not [name for name in headers if name.lower().startswith("access-control")]


# Whoever guesses passwords, sends slowly or never reads: publishers go on.


@pytest.mark.slow
def test_wide_documents_are_refused_before_anything_is_made_of_them(api: HttpApi) -> None:
    for count, reason in (
        (1001, "more than 1000 arguments"),
        (60_000, "a document of more than 1048576 bytes"),
    ):
        document = {"arguments": {f"argument-{number:012}": 1 for number in range(count)}}
        answer = api.put("/queues/%2F/wide", document)
        assert answer.status == 400
        assert reason in answer.json["reason"]
    assert api.get("/queues/%2F/wide").status == 404


def test_guessing_passwords_is_slow_and_does_not_lock_out(node: NodeProcess, api: HttpApi) -> None:
    """A guesser learns nothing of those that are refused unseen; the user has to wait no longer than it does."""

    def guess(number: int) -> int:
        return api.get("/whoami", user="guest", password=f"wrong {number}").status

    with Bystander(node) as bystander, concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(guess, range(200)))
    assert bystander.median_s < NOTICED_S * patience()
    assert set(statuses) == {401, 429}
    assert statuses.count(401) < 100
    wait_until(lambda: api.get("/whoami").status == 200)


@pytest.mark.slow
def test_half_requests_are_cut_off(node: NodeProcess, api: HttpApi) -> None:
    host, _, port = node.management_url.removeprefix("http://").rpartition(":")
    sockets = [socket.create_connection((host, int(port))) for _ in range(300)]
    with Bystander(node) as bystander:
        for each in sockets:
            each.sendall(b"PUT /api/vhosts/slow HTTP/1.1\r\nhost: x\r\n")
        # Another test may have guessed passwords: then one login a second is looked at.
        wait_until(lambda: api.get("/whoami").status == 200, "a login is looked at")
    assert bystander.median_s < NOTICED_S * patience()
    for each in sockets[:20]:
        each.settimeout(60.0)
        with contextlib.suppress(ConnectionError):
            assert each.recv(1000) == b""
    for each in sockets:
        each.close()


@pytest.mark.slow
def test_connections_have_a_bound(node: NodeProcess, api: HttpApi) -> None:
    host, _, port = node.management_url.removeprefix("http://").rpartition(":")
    sockets = [socket.create_connection((host, int(port))) for _ in range(1100)]
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        api.get("/whoami")
    for each in sockets:
        each.close()
    deadline = time.monotonic() + 20.0 * patience()
    while True:
        try:
            assert api.get("/whoami").status == 200
            return
        except (http.client.HTTPException, ConnectionError):
            assert time.monotonic() < deadline


def test_pipelined_requests_are_answered_in_order(node: NodeProcess) -> None:
    host, _, port = node.management_url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20.0) as pipe:
        for number in range(20):
            pipe.sendall(f"GET /api/nope{number} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        pipe.sendall(b"GET /api/nope HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        data = b""
        while piece := pipe.recv(65536):
            data += piece
    assert data.count(b"HTTP/1.1 404") == 21
    assert json.loads(data.rpartition(b"\r\n\r\n")[2]) == {"error": "Object Not Found", "reason": "Not Found"}
