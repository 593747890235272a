"""From RabbitMQ to Fluffle and back to RabbitMQ: nothing is lost (management §2.2).

A RabbitMQ is filled by its HTTP API; what it exports goes to a Fluffle, and what that exports to a second, empty
RabbitMQ. All three documents are the same, but for the order of their lists.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.http.steps import path
from tests.kit.http_api import HttpApi
from tests.kit.managed_fluffle import ManagedFluffle
from tests.kit.rabbit_server import RABBITMQ_SERVER, RabbitServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(RABBITMQ_SERVER).exists(), reason="there is no RabbitMQ on this machine"),
]

SALT = b"\x01\x02\x03\x04"


def hashed(password: str, algorithm: str) -> str:
    return base64.b64encode(SALT + hashlib.new(algorithm, SALT + password.encode()).digest()).decode()


FILLING: list[tuple[str, str, Any]] = [
    ("PUT", path("global-parameters", "cluster_name"), {"value": "fluffle-example"}),
    (
        "PUT",
        path("global-parameters", "site"),
        {"value": {"racks": [1, 2.5, "three", True, None], "nested": {"empty": {}, "list": []}}},
    ),
    ("PUT", path("vhosts", "orders"), {"description": "Orders & invoices", "tags": "production,eu"}),
    ("PUT", path("vhosts", "quorum"), {"defaultqueuetype": "quorum"}),
    ("PUT", path("vhosts", "café / <script>"), {}),
    (
        "PUT",
        path("users", "ada"),
        {
            "password_hash": hashed("ada-secret", "sha256"),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "administrator",
        },
    ),
    (
        "PUT",
        path("users", "bob"),
        {
            "password_hash": hashed("bob-secret", "sha512"),
            "hashing_algorithm": "rabbit_password_hashing_sha512",
            "tags": "monitoring,policymaker",
            "limits": {"max-connections": 10, "max-channels": -1},
        },
    ),
    (
        "PUT",
        path("users", "cleo"),
        {
            "password_hash": hashed("cleo-secret", "md5"),
            "hashing_algorithm": "rabbit_password_hashing_md5",
            "tags": "",
        },
    ),
    ("PUT", path("users", "nopass"), {"password_hash": "", "tags": ["management", "free text"]}),
    ("PUT", path("permissions", "orders", "bob"), {"configure": "^bob-.*", "write": ".*", "read": ".*"}),
    ("PUT", path("permissions", "orders", "cleo"), {"configure": "", "write": "^(a|b)$", "read": "^\\w+$"}),
    (
        "PUT",
        path("topic-permissions", "orders", "cleo"),
        {"exchange": "events", "write": "^eu\\.", "read": "^{username}-.*"},
    ),
    (
        "PUT",
        path("policies", "orders", "ha"),
        {
            "pattern": "^ha\\.",
            "definition": {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
            "priority": 5,
            "apply-to": "queues",
        },
    ),
    (
        "PUT",
        path("policies", "orders", "ttl"),
        {
            "pattern": "",
            "definition": {"message-ttl": 60000, "dead-letter-exchange": "dlx"},
            "priority": -1.5,
        },
    ),
    (
        "PUT",
        path("operator-policies", "orders", "cap"),
        {"pattern": "^", "definition": {"max-length": 1000000, "expires": 86400000}, "apply-to": "queues"},
    ),
    ("PUT", path("vhost-limits", "orders", "max-queues"), {"value": 500}),
    ("PUT", path("vhost-limits", "orders", "max-connections"), {"value": -1}),
    ("PUT", path("vhost-limits", "quorum", "max-queues"), {"value": 5}),
    ("DELETE", path("vhost-limits", "quorum", "max-queues"), None),
    ("PUT", path("queues", "orders", "plain"), {"durable": True}),
    ("PUT", path("queues", "orders", "transient"), {"durable": False, "auto_delete": True}),
    (
        "PUT",
        path("queues", "orders", "lazy"),
        {
            "durable": True,
            "arguments": {
                "x-queue-mode": "lazy",
                "x-max-length": 5,
                "x-message-ttl": 1000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "plain",
                "x-max-priority": 4,
            },
        },
    ),
    (
        "PUT",
        path("queues", "orders", "odd"),
        {
            "durable": True,
            "arguments": {
                "my-list": [1, -2, 2.5, "x", True, {"k": "v"}],
                "my-object": {"a": {"b": []}},
                "x-queue-type": "classic",
            },
        },
    ),
    ("PUT", path("queues", "orders", "café +/% <b>"), {"durable": True}),
    ("PUT", path("queues", "quorum", "q1"), {"durable": True}),
    (
        "PUT",
        path("exchanges", "orders", "events"),
        {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "unrouted"}},
    ),
    ("PUT", path("exchanges", "orders", "unrouted"), {"type": "fanout", "durable": True, "internal": True}),
    ("PUT", path("exchanges", "orders", "tmp"), {"type": "headers", "durable": False, "auto_delete": True}),
    ("PUT", path("exchanges", "orders", "dlx"), {"type": "direct", "durable": True}),
    ("POST", path("bindings", "orders", "e", "events", "q", "plain"), {"routing_key": "eu.#"}),
    ("POST", path("bindings", "orders", "e", "events", "q", "plain"), {"routing_key": ""}),
    ("POST", path("bindings", "orders", "e", "events", "q", "lazy"), {"routing_key": "a b%/+é~"}),
    (
        "POST",
        path("bindings", "orders", "e", "tmp", "q", "odd"),
        {"routing_key": "", "arguments": {"x-match": "any", "n": 5, "s": "t"}},
    ),
    ("POST", path("bindings", "orders", "e", "events", "e", "dlx"), {"routing_key": "dead.*"}),
    ("POST", path("bindings", "orders", "e", "amq.direct", "q", "plain"), {"routing_key": "k"}),
]


def start_rabbit() -> RabbitServer:
    return RabbitServer({}, with_management=True)


@pytest.fixture(scope="module")
def filled() -> Iterator[HttpApi]:
    """A RabbitMQ with something of everything."""
    rabbit = start_rabbit()
    try:
        api = HttpApi(rabbit)
        for method, where, body in FILLING:
            answer = api.request(method, where, body)
            assert answer.status in (201, 204), (where, answer)
        yield api
    finally:
        rabbit.stop()


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    return {
        section: sorted(found, key=lambda each: json.dumps(each, sort_keys=True))
        if isinstance(found, list)
        else found
        for section, found in document.items()
    }


def import_into(api: HttpApi, document: dict[str, Any]) -> dict[str, Any]:
    """Import a document and return what is exported after that."""
    answer = api.post("/definitions", document)
    assert answer.status == 204, answer
    found: dict[str, Any] = api.get("/definitions").json
    return found


def test_there_and_back(filled: HttpApi) -> None:
    original = filled.get("/definitions").json
    fluffle = ManagedFluffle({})
    try:
        api = HttpApi(fluffle)
        ours = import_into(api, original)
        assert in_order(ours) == in_order(original)
        for name in ("ada", "bob"):
            assert api.get("/whoami", user=name, password=f"{name}-secret").status == 200
        fluffle.terminate()
        fluffle.launch()
        fluffle.await_ready()  # what was imported outlives the node, but for what is transient
        kept = api.get("/definitions").json
        assert in_order(kept) == in_order(_durable(ours))
    finally:
        fluffle.stop()
    second = start_rabbit()
    try:
        assert in_order(import_into(HttpApi(second), ours)) == in_order(original)
    finally:
        second.stop()


def _durable(document: dict[str, Any]) -> dict[str, Any]:
    gone = {"transient", "tmp"}
    found = dict(document)
    for section in ("queues", "exchanges"):
        found[section] = [each for each in document[section] if each["name"] not in gone]
    found["bindings"] = [each for each in document["bindings"] if each["source"] not in gone]
    return found
