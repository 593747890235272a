"""Queues (management §1.3): declared, shown, deleted, emptied, acted on."""

from collections.abc import Callable
from typing import Any

import pytest

from node.amqp import methods
from node.amqp.properties import Properties
from tests.conformance.http.steps import (
    ACCESS_REFUSED,
    VHOST_REFUSED,
    bad_request,
    eventually,
    get,
    is_missing,
    path,
    publish,
    put_queue,
    refused,
    succeeds,
)
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

ODD_NAMES = ["a b", "a/b", "é", "a+b", "a%2Fb", "<script>", "a~b", "a'\"b", "q" * 255, "é" * 127, "…"]

# --- PUT ---


def test_put_creates_201_then_204(api: HttpApi, vhost: str) -> None:
    """Row PUT /queues/{vhost}/{name}: 201/204."""
    first, second = (api.put(path("queues", vhost, "q"), {}) for _ in range(2))
    assert (first.status, first.text, first.headers["content-length"]) == (201, "", "0")
    assert (second.status, second.text) == (204, "")


def test_put_defaults_are_false(api: HttpApi, vhost: str) -> None:
    """HTTP default durable=false, auto_delete=false."""
    for number, body in enumerate((None, "", "null", "undefined", {})):
        assert api.put(path("queues", vhost, f"q{number}"), body).status == 201
        queue = api.get(path("queues", vhost, f"q{number}")).json
        assert (queue["durable"], queue["auto_delete"], queue["arguments"]) == (False, False, {})


def test_put_takes_all_it_can(api: HttpApi, vhost: str) -> None:
    """Body `{durable, auto_delete, arguments:{}, node}`; GET after PUT shows the same arguments, numbers as numbers."""
    arguments = {
        "x-max-length": 10,
        "x-message-ttl": 60000,
        "x-overflow": "reject-publish",
        "own": [1, "a", True],
    }
    put_queue(api, vhost, "q", durable=True, auto_delete=True, arguments=arguments)
    queue = succeeds(api.get(path("queues", vhost, "q")))
    assert queue["arguments"] == arguments
    assert (queue["durable"], queue["auto_delete"], queue["exclusive"]) == (True, True, False)
    assert (queue["name"], queue["vhost"], queue["type"]) == ("q", vhost, "classic")


def test_put_reads_words_as_flags(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "q", durable="true", auto_delete="false", arguments=[])
    assert api.get(path("queues", vhost, "q")).json["durable"] is True
    bad_request(api.put(path("queues", vhost, "q2"), {"durable": "yes"}), ["not_boolean", "yes"])


def test_put_ignores_the_content_type(api: HttpApi, vhost: str) -> None:
    """§1.0: most PUT/POST accept any type."""
    for number, content_type in enumerate(("application/x-www-form-urlencoded", "text/plain")):
        answer = api.put(path("queues", vhost, f"q{number}"), {}, headers={"content-type": content_type})
        assert answer.status == 201


def test_put_of_another_kind_is_refused(api: HttpApi, vhost: str) -> None:
    """Inequivalent → 400."""
    put_queue(api, vhost, "q")
    bad_request(
        api.put(path("queues", vhost, "q"), {"durable": True}),
        f"inequivalent arg 'durable' for queue 'q' in vhost '{vhost}': received 'true' but current is 'false'",
    )


def test_put_of_a_bad_argument_is_refused(api: HttpApi, vhost: str) -> None:
    """Bad argument → 400."""
    where = f"for queue 'q' in vhost '{vhost}'"
    for arguments, reason in (
        ({"x-max-length": -1}, f"invalid arg 'x-max-length' {where}: {{value_negative,-1}}"),
        ({"a": None}, "null_not_allowed"),
    ):
        bad_request(api.put(path("queues", vhost, "q"), {"arguments": arguments}), reason)
    is_missing(api.get(path("queues", vhost, "q")))


@pytest.mark.parametrize("arguments", ["x", 5, [1]])
def test_put_of_arguments_that_are_no_object_is_refused(api: HttpApi, vhost: str, arguments: Any) -> None:
    """RabbitMQ crashes, mostly with a 500."""
    answer = api.put(path("queues", vhost, "q"), {"arguments": arguments})
    assert answer.status in ((400, 500) if is_rabbitmq() else (400,))


def test_put_of_a_reserved_name_is_refused(api: HttpApi, vhost: str) -> None:
    """`amq.` prefix → 401 "Access refused."."""
    refused(api.put(path("queues", vhost, "amq.q"), {}))


def test_put_needs_the_permission(api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]) -> None:
    """No permission → 401; an administrator's tag is no permission (§2.1)."""
    for tag in ("management", "administrator"):
        manager = make_manager(vhost, "^mine", tag=tag)
        assert manager.put(path("queues", vhost, f"mine-{tag}"), {}).status == 201
        refused(manager.put(path("queues", vhost, "yours"), {}))
    refused(make_manager(None).put(path("queues", vhost, "q"), {}), VHOST_REFUSED)
    refused(make_manager(None, tag="administrator").put(path("queues", vhost, "q"), {}), ACCESS_REFUSED)


def test_put_on_an_unknown_node_is_refused(api: HttpApi, vhost: str) -> None:
    """Unknown `node` → 400."""
    bad_request(api.put(path("queues", vhost, "q"), {"node": "nope@x"}), "Node nope@x could not be contacted")


def test_put_on_this_node(api: HttpApi, vhost: str) -> None:
    node = api.get("/overview").json["node"]
    put_queue(api, vhost, "q", node=node)
    assert api.get(path("queues", vhost, "q")).json["node"] == node


def test_put_in_a_vhost_that_is_not_there(api: HttpApi) -> None:
    answer = api.put("/queues/no-such-vhost/q", {})
    assert (answer.status, answer.json) == (404, {"error": "not_found", "reason": "vhost_not_found"})


@pytest.mark.parametrize("body", ["[]", "{", "[1]", "nonsense", '{"a"}'])
def test_a_body_that_is_no_json_object_is_refused(api: HttpApi, vhost: str, body: str) -> None:
    """§1.0: array / bad JSON → 400 not_json."""
    bad_request(api.put(path("queues", vhost, "q"), body), "not_json")


def test_a_name_is_too_long(api: HttpApi, vhost: str) -> None:
    bad_request(
        api.put(path("queues", vhost, "q" * 256), {}),
        "queue should be less than 255 bytes, actually was 256\n",
    )


@pytest.mark.parametrize("queue", ODD_NAMES)
def test_names_of_all_kinds(api: HttpApi, vhost: str, queue: str) -> None:
    """§1.0 "Path encoding": each segment is decoded once."""
    put_queue(api, vhost, queue)
    assert succeeds(api.get(path("queues", vhost, queue)))["name"] == queue
    publish(api, vhost, queue)
    assert len(get(api, vhost, queue)) == 1
    assert api.delete(path("queues", vhost, queue)).status == 204
    is_missing(api.get(path("queues", vhost, queue)))


def test_a_plus_in_a_path_is_no_space(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "a b")
    is_missing(api.get(f"/queues/{vhost}/a+b"))
    assert api.get(f"/queues/{vhost}/a%20b").status == 200


def test_a_slash_at_the_end_is_accepted(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "q")
    assert api.get(path("queues", vhost, "q") + "/").status == 200
    assert api.get(path("queues", vhost) + "/").status == 200


def test_other_methods_are_refused(api: HttpApi, vhost: str) -> None:
    """405, empty, with `allow`."""
    answer = api.post(path("queues", vhost, "q"), {})
    assert (answer.status, answer.text) == (405, "")
    assert set(answer.headers["allow"].split(", ")) == {"HEAD", "GET", "PUT", "DELETE", "OPTIONS"}


# --- GET ---

FIELDS = {
    *("arguments", "auto_delete", "durable", "exclusive", "name", "node", "type", "vhost"),
    *("backing_queue_status", "consumer_capacity", "consumer_utilisation", "consumers"),
    *(
        "effective_policy_definition",
        "exclusive_consumer_tag",
        "head_message_timestamp",
        "idle_since",
        "memory",
    ),
    *("message_bytes", "message_bytes_paged_out", "message_bytes_persistent", "message_bytes_ram"),
    *("message_bytes_ready", "message_bytes_unacknowledged", "messages", "messages_details"),
    *(
        "messages_paged_out",
        "messages_persistent",
        "messages_ram",
        "messages_ready",
        "messages_ready_details",
    ),
    *("messages_ready_ram", "messages_unacknowledged", "messages_unacknowledged_details"),
    *("messages_unacknowledged_ram", "operator_policy", "policy", "recoverable_slaves", "garbage_collection"),
    *("reductions", "reductions_details", "single_active_consumer_tag", "state"),
}
"""An idle classic queue without mirrors has these keys in a list."""
DETAILS = {"consumer_details", "deliveries", "incoming"}
"""The single object has these keys besides."""


@pytest.mark.slow
def test_all_fields_are_there(api: HttpApi, vhost: str) -> None:
    """Table "Queue object"; single object adds consumer_details, incoming, deliveries."""
    put_queue(api, vhost, "q", durable=True)

    def whole() -> bool:
        return "idle_since" in api.get(path("queues", vhost, "q")).json

    eventually(whole)
    (row,) = succeeds(api.get(path("queues", vhost)))
    assert set(row) == FIELDS
    assert set(succeeds(api.get(path("queues", vhost, "q")))) == FIELDS | DETAILS
    assert (row["policy"], row["operator_policy"], row["effective_policy_definition"]) == (None, None, {})
    assert (row["state"], row["consumer_utilisation"], row["exclusive_consumer_tag"]) == ("running", 0, None)
    assert row["messages_details"] == {"rate": 0.0}
    assert (row["recoverable_slaves"], row["head_message_timestamp"]) == (None, None)


@pytest.mark.slow
def test_messages_are_counted(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """messages, messages_ready, message_bytes, messages_persistent, message_stats."""
    put_queue(api, vhost, "q", durable=True)
    channel = connect(vhost=vhost).channel(1)  # stays: RabbitMQ may forget what a short one published
    channel.publish("", "q", b"1234", Properties(delivery_mode=2))
    channel.publish("", "q", b"1234")

    def counted() -> Any:
        queue = api.get(path("queues", vhost, "q")).json
        return queue.get("messages") == 2 and "message_stats" in queue and queue

    queue = eventually(counted)
    assert (queue["messages_ready"], queue["messages_unacknowledged"]) == (2, 0)
    assert (queue["message_bytes"], queue["message_bytes_ready"]) == (8, 8)
    assert (queue["messages_persistent"], queue["message_bytes_persistent"]) == (1, 4)
    assert queue["message_stats"]["publish"] == 2
    assert "rate" in queue["message_stats"]["publish_details"]


@pytest.mark.slow
def test_an_exclusive_queue_names_its_owner(
    api: HttpApi, vhost: str, connect: Callable[..., Connection]
) -> None:
    """owner_pid_details {name, peer_host, peer_port}, exclusive, consumer_details."""
    connection = connect(vhost=vhost)
    channel = connection.channel(1)
    channel.declare("excl", exclusive=True)
    channel.call(methods.BasicQos, prefetch_count=7)
    channel.consume("excl", consumer_tag="tag")
    host, port = connection.socket.getsockname()

    def shown() -> Any:
        queue = api.get(path("queues", vhost, "excl")).json
        return queue.get("consumer_details") and "owner_pid_details" in queue and queue

    queue = eventually(shown)
    assert queue["exclusive"] is True
    assert queue["owner_pid_details"]["peer_port"] == port
    assert queue["owner_pid_details"]["name"].startswith(f"{host}:{port} -> ")
    (consumer,) = queue["consumer_details"]
    assert consumer["consumer_tag"] == "tag"
    assert (consumer["ack_required"], consumer["prefetch_count"], consumer["active"]) == (True, 7, True)
    assert consumer["channel_details"]["peer_port"] == port


@pytest.mark.slow
def test_policies_are_shown(api: HttpApi, vhost: str, server: Any) -> None:
    """policy, operator_policy, effective_policy_definition: merged."""
    put_queue(api, vhost, "q")
    server.admin.set_policy(vhost, "p", "^q", {"max-length": 10, "message-ttl": 1000})
    server.admin.set_operator_policy(vhost, "o", "^q", {"max-length": 5})

    def shown() -> Any:
        queue = api.get(path("queues", vhost, "q")).json
        return queue.get("operator_policy") and queue

    queue = eventually(shown)
    assert (queue["policy"], queue["operator_policy"]) == ("p", "o")
    assert queue["effective_policy_definition"] == {"max-length": 5, "message-ttl": 1000}


def test_what_is_not_there(api: HttpApi, vhost: str) -> None:
    """List: vhost missing → 404."""
    is_missing(api.get("/queues/no-such-vhost"))
    is_missing(api.get(path("queues", vhost, "nope")))
    is_missing(api.get(path("queues", "no-such-vhost", "nope")))


def test_a_vhost_that_is_not_permitted(
    api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]
) -> None:
    """Vhost not permitted → 401. An administrator reads any vhost, but does not write there (§2.1)."""
    put_queue(api, vhost, "q")
    for tag in ("management", "policymaker", "monitoring"):
        stranger = make_manager(None, tag=tag)
        refused(stranger.get(path("queues", vhost)), VHOST_REFUSED)
        refused(stranger.get(path("queues", vhost, "q")), VHOST_REFUSED)
        assert all(queue["vhost"] != vhost for queue in succeeds(stranger.get("/queues")))
    administrator = make_manager(None, tag="administrator")
    assert [queue["name"] for queue in succeeds(administrator.get(path("queues", vhost)))] == ["q"]
    assert "q" in [queue["name"] for queue in succeeds(administrator.get("/queues"))]
    refused(administrator.delete(path("queues", vhost, "q")))


def test_the_header_chooses_a_vhost(api: HttpApi, vhost: str) -> None:
    """§1.0: `x-vhost`; blank = all."""
    put_queue(api, vhost, "q")
    put_queue(api, "/", f"q-{vhost}")
    names = {queue["name"] for queue in succeeds(api.get("/queues", headers={"x-vhost": vhost}))}
    assert names == {"q"}
    names = {queue["name"] for queue in succeeds(api.get("/queues", headers={"x-vhost": ""}))}
    assert names >= {"q", f"q-{vhost}"}
    api.delete(path("queues", "/", f"q-{vhost}"))


def test_without_statistics(api: HttpApi, vhost: str) -> None:
    """disable_stats=true: only metadata; enable_queue_totals=true adds messages*."""
    put_queue(api, vhost, "q")
    publish(api, vhost, "q")
    (row,) = succeeds(api.get(path("queues", vhost) + "?disable_stats=true"))
    light = {"arguments", "auto_delete", "durable", "exclusive", "name", "node", "state", "type", "vhost"}
    assert (set(row), row["state"]) == (light, "live")
    assert set(succeeds(api.get(path("queues", vhost, "q") + "?disable_stats=true"))) == light
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    succeeds(api.put(path("queues", vhost, "replicated"), quorum), 201)
    row = succeeds(api.get(path("queues", vhost, "replicated") + "?disable_stats=true"))
    assert row["members"] == row["online"] == [row["leader"]]
    succeeds(api.delete(path("queues", vhost, "replicated")), 204)
    (row,) = succeeds(api.get(path("queues", vhost) + "?disable_stats=true&enable_queue_totals=true"))
    totals = {"messages", "messages_ready", "messages_unacknowledged"}
    assert set(row) >= light | totals
    assert row["messages"] == 1


def test_the_answers_headers(api: HttpApi, vhost: str) -> None:
    """GET / HEAD ok: JSON, cache-control, vary, CSP."""
    answer = api.get(path("queues", vhost))
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["vary"] == "accept, accept-encoding, origin"
    assert "content-security-policy" in answer.headers
    head = api.request("HEAD", path("queues", vhost))
    assert (head.status, head.text) == (200, "")


# --- DELETE ---


def test_delete(api: HttpApi, vhost: str) -> None:
    """DELETE: 204; 404."""
    put_queue(api, vhost, "q")
    answer = api.delete(path("queues", vhost, "q"))
    assert (answer.status, answer.text) == (204, "")
    is_missing(api.delete(path("queues", vhost, "q")))
    is_missing(api.delete("/queues/no-such-vhost/q"))


def test_delete_if_empty(api: HttpApi, vhost: str) -> None:
    """?if-empty=true: 400 `queue 'q' in vhost 'v' not empty`."""
    put_queue(api, vhost, "q")
    publish(api, vhost, "q")
    answer = api.delete(path("queues", vhost, "q") + "?if-empty=true")
    bad_request(answer, f"queue 'q' in vhost '{vhost}' not empty")
    assert api.delete(path("queues", vhost, "q") + "?if-empty=false").status == 204


def test_delete_if_unused(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """?if-unused=true: 400 `in use`."""
    channel = connect(vhost=vhost).channel(1)
    channel.consume(channel.declare("q"))
    answer = api.delete(path("queues", vhost, "q") + "?if-unused=true")
    bad_request(answer, f"queue 'q' in vhost '{vhost}' in use")
    assert api.delete(path("queues", vhost, "q")).status == 204


def test_delete_needs_the_permission(api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]) -> None:
    put_queue(api, vhost, "q")
    refused(make_manager(vhost, "^mine").delete(path("queues", vhost, "q")))
    assert api.get(path("queues", vhost, "q")).status == 200


def test_a_queue_of_another_connection_is_locked(
    api: HttpApi, vhost: str, connect: Callable[..., Connection]
) -> None:
    connect(vhost=vhost).channel(1).declare("excl", exclusive=True)
    reason = (
        f"cannot obtain exclusive access to locked queue 'excl' in vhost '{vhost}'. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration."
    )
    bad_request(api.delete(path("queues", vhost, "excl")), reason)
    bad_request(api.delete(path("queues", vhost, "excl", "contents")), reason)
    asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    answer = api.post(path("queues", vhost, "excl", "get"), asked)
    assert answer.status == 400
    assert answer.json["reason"].startswith("405 RESOURCE_LOCKED - cannot obtain exclusive access")


# --- purge ---


def test_purge(api: HttpApi, vhost: str) -> None:
    """DELETE /queues/{v}/{n}/contents: 204; no GET."""
    put_queue(api, vhost, "q")
    publish(api, vhost, "q")
    assert api.delete(path("queues", vhost, "q", "contents")).status == 204
    assert get(api, vhost, "q") == []
    assert api.get(path("queues", vhost, "q", "contents")).status == 405
    is_missing(api.delete(path("queues", vhost, "nope", "contents")))


def test_purge_needs_the_permission(api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]) -> None:
    put_queue(api, vhost, "q")
    refused(make_manager(vhost, read="^mine").delete(path("queues", vhost, "q", "contents")))


# --- actions ---


@pytest.mark.parametrize("action", ["sync", "cancel_sync"])
def test_actions(api: HttpApi, vhost: str, action: str) -> None:
    """POST …/actions: 204, also when nothing is to do."""
    put_queue(api, vhost, "q")
    answer = api.post(path("queues", vhost, "q", "actions"), {"action": action})
    assert (answer.status, answer.text) == (204, "")


def test_other_actions_are_refused(api: HttpApi, vhost: str) -> None:
    """Other → 400 `["unknown",…]`."""
    put_queue(api, vhost, "q")
    where = path("queues", vhost, "q", "actions")
    bad_request(api.post(where, {"action": "nope"}), ["unknown", "nope"])
    bad_request(api.post(where, {}), "[{key_missing,action}]")


def test_actions_on_a_missing_queue(api: HttpApi, vhost: str) -> None:
    """Missing queue 500 on 3.10.8 (use 404)."""
    answer = api.post(path("queues", vhost, "nope", "actions"), {"action": "sync"})
    assert answer.status == (500 if is_rabbitmq() else 404)


def test_actions_are_for_administrators(
    api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]
) -> None:
    put_queue(api, vhost, "q")
    answer = make_manager(vhost).post(path("queues", vhost, "q", "actions"), {"action": "sync"})
    refused(answer, {"error": "not_authorised", "reason": "Not administrator user"})
