"""Paths; management §1.0 "Path encoding"."""

import pytest

from node.management.call import Call
from node.management.reply import Reply, ok
from node.management.routes import SEGMENTS_MAX, Route, RouteTable, exchange_name


async def _answer(call: Call) -> Reply:
    return ok({})


TABLE = RouteTable(
    [
        Route("GET", "/queues", _answer),
        Route("GET", "/queues/{vhost}", _answer),
        Route("GET", "/queues/{vhost}/{name}", _answer),
        Route("PUT", "/queues/{vhost}/{name}", _answer),
        Route("GET", "/queues/detailed/all", _answer),
        Route("GET", "/metrics", _answer, is_outside=True),
    ]
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/queues", {}),
        ("/api/queues/", {}),
        ("/api/queues/%2F", {"vhost": "/"}),
        ("/api/queues/%2f/a%2Fb", {"vhost": "/", "name": "a/b"}),
        ("/api/queues/v/a+b", {"vhost": "v", "name": "a+b"}),
        ("/api/queues/v/a%20b", {"vhost": "v", "name": "a b"}),
        ("/api/queues/v/%252F", {"vhost": "v", "name": "%2F"}),
        ("/api/queues/v/~", {"vhost": "v", "name": "~"}),
        ("/api/queues/v/%0d%0aX:1", {"vhost": "v", "name": "\r\nX:1"}),
        ("/api/queues/v/%C3%A4", {"vhost": "v", "name": "ä"}),
        ("/api/queues/../etc", {"vhost": "..", "name": "etc"}),
        ("/api/queues/detailed/all", {}),
        ("/api/queues/detailed/other", {"vhost": "detailed", "name": "other"}),
        ("/metrics", {}),
    ],
)
def test_a_path_is_found_and_each_segment_is_decoded_once(path: str, expected: dict[str, str]) -> None:
    found = TABLE.find(path)
    assert found is not None
    assert found.path == expected


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/api", "/queues", "/api/queues//x", "/api/queues/v/n/more", "/api/queues/%ff", "/api/Queues"),
        "/api" + "/x" * (SEGMENTS_MAX + 1),
    ],
)
def test_what_is_no_path_of_ours_is_not_found(path: str) -> None:
    found = TABLE.find(path)
    assert found is None or "" in found.path.values()


def test_the_methods_of_a_path() -> None:
    found = TABLE.find("/api/queues/v/n")
    assert found is not None
    assert set(found.methods) == {"GET", "PUT"}


def test_the_default_exchange_has_a_name_in_paths() -> None:
    assert (exchange_name("amq.default"), exchange_name("amq.topic")) == ("", "amq.topic")
