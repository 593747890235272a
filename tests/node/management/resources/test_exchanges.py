"""Exchanges over HTTP without sockets (management §1.4)."""

from node.catalogue.commands import DeclareExchange, SetPolicy
from node.management.resources.exchanges import STATISTICS
from tests.kit.live_site import live

NAMES = ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.rabbitmq.trace", "amq.topic"]


def test_a_page_asks_for_what_is_on_it_only() -> None:
    site, caller = live()
    page = caller.ask("GET", "/api/exchanges/%2F?page=2&page_size=2").value
    assert [row["name"] for row in page["items"]] == NAMES[2:4]
    assert (page["total_count"], page["page_count"]) == (7, 4)
    ((kind, query, _),) = site.queries
    assert (kind, query.ids) == ("exchanges", ("/\0amq.fanout", "/\0amq.headers"))
    assert query.fields == STATISTICS


def test_metadata_alone_ask_nobody() -> None:
    site, caller = live()
    for parameters in ("columns=name,type", "disable_stats=true"):
        rows = caller.ask("GET", f"/api/exchanges?{parameters}").value
        assert [row["name"] for row in rows] == NAMES
    assert site.queries == []


def test_a_sort_by_a_statistic() -> None:
    site, caller = live()
    site.canned["exchanges"] = [
        {"id": "/\0amq.topic", "message_stats": {"publish_in": 5}},
        {"id": "/\0amq.match", "message_stats": {"publish_in": 9}},
    ]
    parameters = (
        "page=1&page_size=2&sort=message_stats.publish_in&sort_reverse=true&columns=name,message_stats"
    )
    page = caller.ask("GET", f"/api/exchanges?{parameters}").value
    assert page["items"] == [
        {"name": "amq.match", "message_stats": {"publish_in": 9}},
        {"name": "amq.topic", "message_stats": {"publish_in": 5}},
    ]


def test_one_with_its_details() -> None:
    site, caller = live()
    site.world.submit(DeclareExchange("/", "x", "fanout"))
    site.world.submit(SetPolicy("/", "p", "^x", {"alternate-exchange": "amq.fanout"}, 0, "exchanges"))
    row = caller.ask("GET", "/api/exchanges/%2F/x").value
    assert (row["policy"], row["incoming"], row["outgoing"]) == ("p", [], [])
    assert site.queries[-1][1].is_detailed
    assert caller.ask("GET", "/api/exchanges/%2F/x?columns=name").value == {"name": "x"}
    assert "policy" not in caller.ask("GET", "/api/exchanges/%2F/amq.default").value


def test_put_and_delete() -> None:
    _, caller = live()
    target = "/api/exchanges/%2F/x"
    assert [caller.ask("PUT", target, {"type": "topic"}).status for _ in range(2)] == [201, 204]
    assert caller.ask("PUT", target, {"type": "fanout"}).status == 400
    assert caller.ask("PUT", "/api/exchanges/%2F/y", {"type": 5}).status == 400
    assert caller.ask("PUT", "/api/exchanges/%2F/" + "x" * 256, {}).status == 400
    assert caller.ask("DELETE", "/api/exchanges/%2F/amq.topic").status == 401
    assert [caller.ask("DELETE", target).status for _ in range(2)] == [204, 404]
