"""Queues over HTTP without sockets (management §1.3). What clients see is in tests/conformance/http."""

from dataclasses import replace
from typing import Any

import pytest

from node.catalogue.commands import DeclareQueue, DeleteQueue, PutMember, PutUser, SetPermission
from node.catalogue.passwords import SHA256
from node.management.resources.queues import merged
from node.management.site import SiteNode
from tests.kit.live_site import LiveSite, live

PUT = "/api/queues/%2F/q"


def declare(site: LiveSite, *names: str) -> None:
    for name in names:
        site.world.submit(DeclareQueue("/", name, name.ljust(32, "0")))


def ids(site: LiveSite, *names: str) -> list[str]:
    return [site.broker.catalogue.queue("/", name).uid for name in names]  # type: ignore[union-attr]


def test_put_get_delete() -> None:
    site, caller = live()
    assert caller.ask("PUT", PUT, {}).status == 201
    assert caller.ask("PUT", PUT, {}).status == 204
    assert caller.ask("GET", PUT).value["name"] == "q"
    assert caller.ask("DELETE", PUT).status == 204
    assert caller.ask("GET", PUT).status == 404
    assert not site.broker.direct_clients


def test_a_page_asks_for_what_is_on_it_only() -> None:
    """Contract: a sort by the metadata asks nobody; then come the statistics of the page."""
    site, caller = live()
    declare(site, "a", "b", "c", "d")
    page = caller.ask("GET", "/api/queues?page=2&page_size=1&sort_reverse=true").value
    assert [row["name"] for row in page["items"]] == ["c"]
    ((kind, query, nodes),) = site.queries
    assert (kind, query.ids, query.fields) == ("queues", tuple(ids(site, "c")), None)
    assert nodes == {"node@test"}


def test_a_sort_by_a_fact_asks_nobody() -> None:
    site, caller = live()
    declare(site, "a", "b")
    page = caller.ask("GET", "/api/queues/%2F?page=1&sort=policy&columns=name,durable").value
    assert page["items"] == [{"name": "a", "durable": False}, {"name": "b", "durable": False}]
    assert site.queries == []


def test_a_sort_by_a_statistic_asks_for_that_alone_first() -> None:
    site, caller = live()
    declare(site, "a", "b", "c")
    site.canned["queues"] = [
        {"id": uid, "state": "running", "messages": count}
        for uid, count in zip(ids(site, "a", "b", "c"), (5, 9, 7), strict=True)
    ]
    page = caller.ask("GET", "/api/queues?page=1&page_size=2&sort=messages&sort_reverse=true").value
    assert [(row["name"], row["messages"]) for row in page["items"]] == [("b", 9), ("c", 7)]
    (_, first, _), (_, second, _) = site.queries
    assert (first.ids, first.fields) == (None, {"messages"})
    assert set(second.ids or ()) == set(ids(site, "b", "c"))


def test_columns_are_all_that_is_asked_for() -> None:
    site, caller = live()
    declare(site, "a")
    caller.ask("GET", "/api/queues/%2F?columns=name,messages,message_stats.publish")
    ((_, query, _),) = site.queries
    assert query.fields == {"messages", "message_stats"}
    assert query.vhost == "/"


def test_a_queue_that_goes_meanwhile_is_left_out() -> None:
    site, caller = live()
    declare(site, "a", "b")
    rows = site.rows

    async def deleting(*arguments: Any) -> Any:
        if "b" in {queue.name for queue in site.broker.catalogue.queues("/")}:
            site.world.submit(DeleteQueue("/", "b"))
        return await rows(*arguments)

    site.rows = deleting  # type: ignore[method-assign]
    page = caller.ask("GET", "/api/queues?page=1").value
    assert ([row["name"] for row in page["items"]], page["item_count"]) == (["a"], 1)


def test_without_an_answer_a_queue_is_down_only_if_its_node_is() -> None:
    site, _ = live()
    declare(site, "a")
    catalogue = site.broker.catalogue
    record = catalogue.queue("/", "a")
    assert record is not None
    assert "state" not in merged(catalogue, record, None, "node@test")
    site.world.submit(PutMember("other@test", "h:1", "id"))
    elsewhere = replace(record, home="other@test")
    assert merged(catalogue, elsewhere, None, "node@test")["state"] == "down"
    known = merged(catalogue, elsewhere, {"id": "x", "state": "running", "messages": 3}, "node@test")
    assert (known["state"], known["messages"], known["node"]) == ("running", 3, "other@test")
    only_consumers = {"id": "x", "consumer_details": [{"consumer_tag": "t"}]}
    found = merged(catalogue, elsewhere, only_consumers, "node@test")
    assert (found["state"], len(found["consumer_details"])) == ("down", 1)


def test_another_node_is_asked_to_declare() -> None:
    """PUT body `node`."""
    site, caller = live()
    site.members = lambda: [  # type: ignore[method-assign]
        SiteNode("node@test", "disc", True),
        SiteNode("other@test", "disc", True),
        SiteNode("down@test", "disc", False),
    ]
    body = {"node": "other@test", "durable": True, "arguments": {"x-max-length": 5}}
    assert caller.ask("PUT", PUT, body).status == 201
    assert site.questions == [
        (
            "other@test",
            "declare_queue",
            {
                "user": "guest",
                "vhost": "/",
                "queue": "q",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-max-length": 5},
            },
        )
    ]
    for node in ("down@test", "nope"):
        answer = caller.ask("PUT", PUT, {"node": node})
        assert (answer.status, answer.value["reason"]) == (400, f"Node {node} could not be contacted")
    assert caller.ask("PUT", PUT, {"node": 5}).status == 400
    site.answers["declare_queue"] = {"code": 403, "explanation": "no"}
    assert caller.ask("PUT", PUT, {"node": "other@test"}).status == 401


def test_actions_go_on_after_the_answer() -> None:
    site, caller = live()
    declare(site, "q")
    for action in ("sync", "cancel_sync"):
        assert caller.ask("POST", PUT + "/actions", {"action": action}).status == 204
    # Each call of the test has a loop of its own: what the first one began ended with it.
    assert ("cancel_sync_queue", {"vhost": "/", "queue": "q"}) in site.operations


def test_a_master_is_moved() -> None:
    site, caller = live()
    declare(site, "q")
    assert caller.ask("POST", PUT + "/actions", {"action": "move", "node": "b@h"}).status == 204
    assert ("move_queue", {"vhost": "/", "queue": "q", "node": "b@h"}) in site.operations
    for body in ({"action": "move"}, {"action": "move", "node": 5}):
        assert caller.ask("POST", PUT + "/actions", body).status == 400


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/api/queues/nope"),
        ("GET", "/api/queues/nope/q"),
        ("PUT", "/api/queues/nope/q"),
        ("DELETE", "/api/queues/nope/q"),
        ("DELETE", "/api/queues/%2F/nope"),
        ("DELETE", "/api/queues/%2F/nope/contents"),
        ("POST", "/api/queues/%2F/nope/actions"),
    ],
)
def test_what_is_not_there(method: str, target: str) -> None:
    assert live()[1].ask(method, target, {}).status == 404


def test_permissions_are_those_of_amqp() -> None:
    """§2.1: administrators, too, need their own."""
    site, caller = live()
    site.world.submit(
        PutUser("a", site.broker.catalogue.user("guest").password_hash, SHA256, ("administrator",))
    )  # type: ignore[union-attr]
    login = {"authorization": "Basic YTpndWVzdA=="}
    assert caller.ask("PUT", PUT, {}, headers=login).value["reason"] == "Access refused."
    site.world.submit(SetPermission("/", "a", "^mine", "", ""))
    assert caller.ask("PUT", PUT, {}, headers=login).status == 401
    assert caller.ask("PUT", "/api/queues/%2F/mine", {}, headers=login).status == 201
