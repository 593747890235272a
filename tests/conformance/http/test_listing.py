"""Sorting, columns, pages and filters of lists (management §1.0 "List query parameters")."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.conformance.http.steps import eventually, path, publish, put_queue, succeeds
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

NAMES = ["Apple", "apricot", "banana", "berry", "cherry[1]"]


@pytest.fixture
def queues(api: HttpApi, vhost: str) -> str:
    """The path of the queues of a vhost that has five."""
    for number, name in enumerate(reversed(NAMES)):
        put_queue(api, vhost, name, durable=number % 2 == 0)
    return path("queues", vhost)


def names(value: Any) -> list[str]:
    rows = value["items"] if isinstance(value, dict) else value
    return [row["name"] for row in rows]


# --- sort ---


def test_the_default_is_by_name(api: HttpApi, queues: str) -> None:
    """absent → default sort (vhost, name)."""
    assert names(succeeds(api.get(queues))) == NAMES
    everywhere = [(row["vhost"], row["name"]) for row in succeeds(api.get("/queues?columns=vhost,name"))]
    assert everywhere == sorted(everywhere)


def test_sort_by_a_field(api: HttpApi, queues: str) -> None:
    """One field only, default sort is the tie-break."""
    expected = ["apricot", "berry", "Apple", "banana", "cherry[1]"]
    assert names(succeeds(api.get(queues + "?sort=durable"))) == expected


def test_sort_reverse(api: HttpApi, queues: str) -> None:
    """`true`/`false`."""
    assert names(succeeds(api.get(queues + "?sort_reverse=true"))) == NAMES[::-1]
    assert names(succeeds(api.get(queues + "?sort_reverse=false"))) == NAMES
    expected = ["cherry[1]", "banana", "Apple", "berry", "apricot"]
    assert names(succeeds(api.get(queues + "?sort=durable&sort_reverse=true"))) == expected


def test_sort_reverse_of_nonsense(api: HttpApi, queues: str) -> None:
    """Anything else crashed with 500 on 3.10 – treat as false."""
    answer = api.get(queues + "?sort_reverse=maybe")
    assert answer.status == 500 if is_rabbitmq() else names(succeeds(answer)) == NAMES


def test_no_sort_at_all(api: HttpApi, queues: str) -> None:
    """`sort=` (present, empty) → no sorting (exporters use this)."""
    assert sorted(names(succeeds(api.get(queues + "?sort=")))) == NAMES


@pytest.mark.parametrize(
    "field", ["nope", "message_stats.publish_details.rate", "message_stats.nope", "a.b.c"]
)
def test_sort_by_what_is_not_there(api: HttpApi, queues: str, field: str) -> None:
    """A missing value sorts as smallest; here all are missing."""
    assert names(succeeds(api.get(queues + f"?sort={field}"))) == NAMES


@pytest.mark.slow
def test_sort_by_a_statistic(api: HttpApi, vhost: str, queues: str) -> None:
    """dotted field; a page of that order."""
    for name, count in (("berry", 3), ("apricot", 2)):
        for _ in range(count):
            publish(api, vhost, name)

    def counted() -> bool:
        rows = succeeds(api.get(queues + "?columns=name,messages,message_stats.publish"))
        found = {row["name"]: row for row in rows}
        return (
            found["berry"].get("messages") == 3
            and found["apricot"].get("messages") == 2
            and found["berry"].get("message_stats", {}).get("publish") == 3
            and found["apricot"].get("message_stats", {}).get("publish") == 2
        )

    eventually(counted)
    for field in ("messages", "message_stats.publish"):
        ordered = names(succeeds(api.get(queues + f"?sort={field}&sort_reverse=true")))
        assert ordered[:2] == ["berry", "apricot"]
        page = succeeds(api.get(queues + f"?sort={field}&sort_reverse=true&page=1&page_size=1"))
        assert names(page) == ["berry"]
        page = succeeds(api.get(queues + f"?sort={field}&sort_reverse=true&page=2&page_size=1"))
        assert names(page) == ["apricot"]
        assert (page["filtered_count"], page["page_count"]) == (5, 5)


# --- columns ---


def test_columns(api: HttpApi, vhost: str, queues: str) -> None:
    """comma list of dotted fields; naming a parent keeps its subtree; works on single objects also."""
    assert succeeds(api.get(queues + "?columns=name"))[0] == {"name": "Apple"}
    whole = {"name": "Apple", "arguments": {}, "vhost": vhost}
    assert succeeds(api.get(queues + "?columns=name,arguments,vhost"))[0] == whole
    assert succeeds(api.get(queues + "/Apple?columns=name,vhost")) == {"name": "Apple", "vhost": vhost}


def test_dotted_columns(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "q", arguments={"x-max-length": 5, "x-message-ttl": 7})
    (row,) = succeeds(api.get(path("queues", vhost) + "?columns=name,arguments.x-max-length"))
    assert (set(row), row["arguments"]["x-max-length"]) == ({"name", "arguments"}, 5)
    if not is_rabbitmq():  # which shows all arguments or none
        assert row["arguments"] == {"x-max-length": 5}
    (row,) = succeeds(api.get(path("queues", vhost) + "?columns=arguments"))
    assert row == {"arguments": {"x-max-length": 5, "x-message-ttl": 7}}


def test_unknown_columns(api: HttpApi, queues: str) -> None:
    """Unknown names give `{}` (3.10 emits `[]` for emptied objects)."""
    nothing: Any = [] if is_rabbitmq() else {}
    assert succeeds(api.get(queues + "?columns=nope")) == [nothing] * 5
    assert succeeds(api.get(queues + "/Apple?columns=nope")) == nothing


# --- pages ---


def test_pages(api: HttpApi, queues: str) -> None:
    """Paginated answer."""
    page = succeeds(api.get(queues + "?page=2&page_size=2&columns=name"))
    assert page == {
        "filtered_count": 5,
        "item_count": 2,
        "items": [{"name": "banana"}, {"name": "berry"}],
        "page": 2,
        "page_count": 3,
        "page_size": 2,
        "total_count": 5,
    }
    last = succeeds(api.get(queues + "?page=3&page_size=2"))
    assert (last["item_count"], names(last)) == (1, ["cherry[1]"])
    assert "messages" in last["items"][0] or "state" not in last["items"][0]


def test_page_size_alone_is_ignored(api: HttpApi, queues: str) -> None:
    """`page_size` without `page` is ignored; default 100; any `pagination` parameter is ignored."""
    assert names(succeeds(api.get(queues + "?page_size=2"))) == NAMES
    page = succeeds(api.get(queues + "?page=1&pagination=false"))
    assert (page["page_size"], page["item_count"]) == (100, 5)


@pytest.mark.parametrize(
    ("parameters", "error", "reason"),
    [
        ("page=4&page_size=2", "page_out_of_range", "Page out of range, page: 4 page size: 2, len: 5"),
        ("page=x", "bad_request", "Pagination parameters are invalid"),
        ("page=1&page_size=x", "bad_request", "Pagination parameters are invalid"),
        ("page=1&name=%5B&use_regex=true", "bad_request", "Pagination parameters are invalid"),
        ("page=0", "invalid_pagination_parameters", None),
        ("page=-1", "invalid_pagination_parameters", None),
        ("page=1&page_size=0", "invalid_pagination_parameters", None),
        ("page=1&page_size=501", "invalid_pagination_parameters", None),
    ],
)
def test_what_is_no_page(api: HttpApi, queues: str, parameters: str, error: str, reason: str | None) -> None:
    """Errors, all 400."""
    answer = api.get(queues + "?" + parameters)
    assert (answer.status, answer.json["error"]) == (400, error)
    if reason is not None:
        assert answer.json["reason"] == reason


def test_an_empty_first_page(api: HttpApi, vhost: str) -> None:
    """Empty first page is OK with page_count 0."""
    page = succeeds(api.get(path("queues", vhost) + "?page=1"))
    assert (page["items"], page["page_count"], page["total_count"]) == ([], 0, 0)


# --- name, use_regex ---


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("name=AP", ["Apple", "apricot"]),
        ("name=rry", ["berry", "cherry[1]"]),
        ("name=[1", ["cherry[1]"]),
        ("name=^ap&use_regex=true", ["Apple", "apricot"]),
        ("name=r{2}&use_regex=true", ["berry", "cherry[1]"]),
        ("name=^(b|c)&use_regex=true", ["banana", "berry", "cherry[1]"]),
        ("name=^ap&use_regex=false", []),
        ("name=zzz", []),
        ("name=", NAMES),
    ],
)
def test_filters(api: HttpApi, queues: str, parameters: str, expected: list[str]) -> None:
    """case-insensitive substring, or a case-insensitive PCRE search (not anchored)."""
    page = succeeds(
        api.get(
            queues
            + "?page=1&"
            + parameters.replace("[", "%5B").replace("^", "%5E").replace("{", "%7B").replace("}", "%7D")
        )
    )
    assert names(page) == expected
    assert (page["filtered_count"], page["total_count"]) == (len(expected), 5)
    assert page["page_count"] == (1 if expected else 0)


def test_filters_need_a_page(api: HttpApi, queues: str) -> None:
    """filter on `name` **only when `page` is given**."""
    assert names(succeeds(api.get(queues + "?name=zzz"))) == NAMES


def test_keda_asks_like_this(api: HttpApi, queues: str) -> None:
    """§1.3: `?page=1&use_regex=true&pagination=false&name=…&page_size=100`."""
    page = succeeds(api.get(queues + "?page=1&use_regex=true&pagination=false&name=%5Eb.*y%24&page_size=100"))
    assert names(page) == ["berry"]


# --- the other lists that have pages ---


def test_exchanges_have_pages(api: HttpApi, vhost: str) -> None:
    page = succeeds(api.get(path("exchanges", vhost) + "?page=1&page_size=2&name=amq.&sort=type"))
    assert names(page) == ["amq.direct", "amq.fanout"]
    assert (page["filtered_count"], page["total_count"], page["page_count"]) == (6, 7, 3)


@pytest.mark.slow
def test_connections_and_channels_have_pages(
    api: HttpApi, vhost: str, connect: Callable[..., Connection]
) -> None:
    connections = [connect(vhost=vhost) for _ in range(3)]
    for each in connections:
        each.channel(1)
    ports = sorted(each.socket.getsockname()[1] for each in connections)
    only = {"x-vhost": vhost}
    for where in ("/connections", "/channels"):
        eventually(lambda where=where: len(succeeds(api.get(where, headers=only))) == 3)
        pages = [succeeds(api.get(where + f"?page={number}&page_size=2", headers=only)) for number in (1, 2)]
        rows = [row for page in pages for row in page["items"]]
        assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)
        assert {int(row["name"].split(" ")[0].rpartition(":")[2]) for row in rows} == set(ports)
        found = succeeds(api.get(where + f"?page=1&name=%3A{ports[0]}%20", headers=only))
        assert (found["filtered_count"], found["total_count"], found["item_count"]) == (1, 3, 1)
        assert found["items"][0]["user"] == "guest"


def test_consumers_have_none(api: HttpApi, vhost: str) -> None:
    """Endpoints *without* (plain array): bindings, consumers …"""
    assert succeeds(api.get(path("consumers", vhost) + "?page=1")) == []


# --- ranges ---


@pytest.mark.parametrize(
    "parameters", ["lengths_age=0&lengths_incr=5", "msg_rates_age=5000&msg_rates_incr=1"]
)
def test_ranges_that_make_no_sense(api: HttpApi, queues: str, parameters: str) -> None:
    """Both must be > 0 and age/incr ≤ 500, else 400."""
    assert api.get(queues + "/Apple?" + parameters).status == 400


@pytest.mark.slow
def test_ranges(api: HttpApi, vhost: str, queues: str) -> None:
    """each `X_details` gains avg, avg_rate, samples (newest first); only one of the pair → ignored."""
    publish(api, vhost, "Apple")
    parameters = "?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5"

    def sampled() -> Any:
        found = succeeds(api.get(queues + "/Apple" + parameters))
        return (
            len(samples := found.get("messages_details", {}).get("samples", ())) > 1
            and samples[0]["sample"] == 1
            and "message_stats" in found
            and found
        )

    found = eventually(sampled)
    details = found["messages_details"]
    assert set(details) == {"rate", "avg", "avg_rate", "samples"}
    times = [each["timestamp"] for each in details["samples"]]
    assert times == sorted(times, reverse=True)
    assert {newer - older for newer, older in pairwise(times)} == {5000}
    assert "samples" in found["message_stats"]["publish_details"]
    alone = succeeds(api.get(queues + "/Apple?lengths_age=60"))
    assert set(alone["messages_details"]) == {"rate"}
