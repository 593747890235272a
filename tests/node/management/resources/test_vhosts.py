"""Vhosts over HTTP: what is other, and better, than in RabbitMQ 3.10.8; the rest: tests/conformance/http."""

from typing import Any

import pytest

from tests.kit.fake_site import NODE, Caller


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"defaultqueuetype": "nope"}, ["invalid_queue_type", "nope"]),
        ({"default_queue_type": "stream"}, ["invalid_queue_type", "stream"]),
        ({"tags": 5}, "tags must be a list of strings, or a string with commas"),
        ({"description": 5}, "description must be a string"),
        ({"tracing": []}, ["not_boolean", []]),
    ],
)
def test_values_of_a_wrong_type_make_no_vhost(body: dict[str, Any], reason: object) -> None:
    caller = Caller()
    answer = caller.ask("PUT", "/api/vhosts/v", body)
    assert (answer.status, answer.value["reason"]) == (400, reason)
    assert caller.ask("GET", "/api/vhosts/v").status == 404


def test_both_names_of_the_type_of_queues() -> None:
    caller = Caller()
    for number, key in enumerate(("defaultqueuetype", "default_queue_type")):
        assert caller.ask("PUT", f"/api/vhosts/v{number}", {key: "quorum"}).status == 201
        assert caller.ask("GET", f"/api/vhosts/v{number}").value["default_queue_type"] == "quorum"
    assert caller.ask("PUT", "/api/vhosts/v", {"defaultqueuetype": "undefined"}).status == 201


def test_statistics_are_asked_for_what_is_shown() -> None:
    caller, asked = Caller(), []
    rows = caller.site.rows

    async def noted(kind: Any, query: Any, nodes: Any = None) -> Any:
        asked.append((query.ids, query.fields))
        return await rows(kind, query, nodes)

    caller.site.rows = noted  # type: ignore[method-assign]
    for number in range(5):
        caller.ask("PUT", f"/api/vhosts/v{number}")
    page = caller.ask("GET", "/api/vhosts?page=2&page_size=2").value
    assert [row["name"] for row in page["items"]] == ["v1", "v2"]
    assert "id" not in page["items"][0]
    assert asked == [(("v1", "v2"), None)]
    asked.clear()
    caller.ask("GET", "/api/vhosts?columns=name,tags")
    assert asked == []
    caller.ask("GET", "/api/vhosts?columns=name,messages&sort=messages&page=1&page_size=1")
    assert asked == [(("/", "v0", "v1", "v2", "v3", "v4"), frozenset({"messages"}))]


def test_a_vhost_runs_where_its_node_does() -> None:
    caller = Caller()
    assert caller.ask("POST", f"/api/vhosts/%2F/start/{NODE}").status == 204
    answer = caller.ask("POST", f"/api/vhosts/nov/start/{NODE}")
    assert answer.value["reason"] == f'Request to node {NODE} failed with {{no_such_vhost,<<"nov">>}}'
    assert caller.ask("GET", "/api/vhosts/%2F").value["cluster_state"] == {NODE: "running"}
