"""Plans of migrations: what differs, how each queue moves, in which order."""

import json
from typing import Any

import pytest

from node.catalogue.patterns import PatternInvalid
from node.definitions.reading import finish
from node.migrate.ends import end, shovel_host
from node.migrate.findings import Finding
from node.migrate.plan import Plan, PlanInvalid, Settled, as_json, plan, settled_from_json
from node.migrate.plan_text import plan_text
from node.migrate.site import Site
from node.migrate.ways import Selection
from tests.node.migrate.sites import channel_row, connection_row, consumer_row, fluffle, queue_row, rabbit

Json = dict[str, Any]


def planned(source: Site, target: Site | None = None, selection: Selection | None = None) -> Plan:
    """The plan from a source to a target."""
    settled = Settled(
        end(("http://10.0.0.1:15672",), "10.0.0.1", source),
        None if target is None else end(("http://10.0.1.1:15672",), "10.0.1.1", target),
        shovel_host(source, target),
        selection or Selection(),
    )
    return finish(plan(source, target, settled))


def found(made: Plan, weight: str, noun: str) -> list[Finding]:
    return [each for each in made.findings if (each.weight, each.noun) == (weight, noun)]


def ways(made: Plan) -> dict[str, str]:
    return {each.queue.name: each.way for each in made.queues}


def test_a_plain_cluster_moves_without_a_finding() -> None:
    made = planned(rabbit([queue_row("orders", 7)]), fluffle())
    assert made.findings == ()
    assert ways(made) == {"orders": "now"}
    assert made.settled.host == "rabbitmq"


def test_queues_with_consumers_wait_for_them() -> None:
    """A shovel beside consumers would take messages out of their order."""
    made = planned(
        rabbit(
            [queue_row("busy", 7, consumers=1), queue_row("idle", 7)],
            connections=[connection_row("c")],
            consumers=[consumer_row("c", "busy")],
        )
    )
    assert ways(made) == {"busy": "after-consumers", "idle": "now"}


def test_an_auto_delete_queue_does_not_wait() -> None:
    """RabbitMQ deletes it, and its messages, with the last consumer: the shovel has to be one."""
    made = planned(
        rabbit(
            [queue_row("passing", 7, auto_delete=True)],
            connections=[connection_row("c")],
            consumers=[consumer_row("c", "passing")],
        )
    )
    assert ways(made) == {"passing": "now"}
    assert found(made, "differs", "queue")


@pytest.mark.parametrize(
    ("row", "weight"),
    [
        (queue_row("q", 7, exclusive=True), "note"),
        (queue_row("amq.gen-abc", 7), "note"),
        (queue_row("q", 7, type="stream", arguments={"x-queue-type": "stream"}), "blocks"),
        (queue_row("q", 7, state="down"), "blocks"),
        (queue_row("q", 7, arguments={"x-max-length": "many"}), "blocks"),
    ],
    ids=["exclusive", "named by the server", "stream", "down", "refused"],
)
def test_queues_that_stay(row: Json, weight: str) -> None:
    """The plan says how many messages stay with them."""
    made = planned(rabbit([row]))
    assert set(ways(made).values()) == {"stays"}
    assert any("7 messages" in each.text for each in found(made, weight, "queue"))


def test_what_hangs_on_a_stream_is_left_out_with_it() -> None:
    """A binding to an object that is not imported would make the import fail."""
    row = queue_row("log", type="stream", arguments={"x-queue-type": "stream"})
    definitions = {
        "exchanges": [exchange("events", "topic"), exchange("odd", "x-jms-topic")],
        "bindings": [binding("events", "log"), binding("events", "orders"), binding("odd", "orders")],
    }
    made = planned(
        rabbit(
            [row, queue_row("orders")],
            definitions=definitions | {"queues": rows_of(row, queue_row("orders"))},
        )
    )
    assert {each.name for each in found(made, "blocks", "binding")} == {"events → log", "odd → orders"}
    kept = made.document.sections
    assert [each["destination"] for each in kept["bindings"]] == ["orders"]  # type: ignore[call-overload,index]
    assert [each["name"] for each in kept["queues"]] == ["orders"]  # type: ignore[call-overload,index]


def rows_of(*rows: Json) -> list[Json]:
    return [
        {key: row[key] for key in ("name", "vhost", "durable", "auto_delete", "arguments")} for row in rows
    ]


def exchange(name: str, type_: str) -> Json:
    flags = {"durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    return {"name": name, "vhost": "/", "type": type_, **flags}


def binding(source: str, destination: str) -> Json:
    ends = {"source": source, "destination": destination, "destination_type": "queue"}
    return {"vhost": "/", "routing_key": "#", "arguments": {}, **ends}


def test_links_are_not_taken_along() -> None:
    """A shovel that ran at both brokers would move some messages here and some there."""
    shovel = {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://a:secret@b"}}
    upstream = {"vhost": "/", "component": "federation-upstream", "name": "up", "value": {}}
    made = planned(rabbit(definitions={"parameters": [shovel, upstream]}))
    assert found(made, "differs", "shovel")
    assert found(made, "differs", "federation-upstream")
    assert made.document.sections["parameters"] == []
    assert "secret" not in json.dumps(as_json(made, ""))


def test_the_migrations_own_objects_are_not_found() -> None:
    """A second `start` sees the user and the shovels that the first has made at RabbitMQ."""
    own = {"vhost": "/", "component": "shovel", "name": "fluffle-migrate orders", "value": {}}
    user = {"name": "fluffle-migrate", "password_hash": "c2FsdGhhc2g=", "tags": ""}
    rights = {"user": "fluffle-migrate", "vhost": "/", "configure": "^$", "write": "", "read": ".*"}
    made = planned(rabbit(definitions={"parameters": [own], "users": [user], "permissions": [rights]}))
    assert made.findings == ()
    assert [made.document.sections[name] for name in ("parameters", "users", "permissions")] == [[], [], []]


def test_a_user_of_both_brokers_keeps_its_password() -> None:
    """The import may not change the password by which the migration is logged in."""
    other = {"users": [{"name": "app", "password_hash": "b3RoZXI=", "tags": []}]}
    made = planned(rabbit(), fluffle(definitions=other))
    assert made.document.sections["users"] == []
    assert [each.name for each in found(made, "differs", "user")] == ["app"]
    assert planned(rabbit(), fluffle()).findings == ()


def test_the_clusters_name_stays() -> None:
    assert planned(rabbit()).document.sections["global_parameters"] == []


def test_quorum_queues_differ() -> None:
    """RabbitMQ 4 has a delivery limit without being asked."""
    row = queue_row("q", type="quorum", arguments={"x-queue-type": "quorum"})
    assert len(found(planned(rabbit([row])), "differs", "quorum queue")) == 1
    assert len(found(planned(rabbit([row], version="4.0.5")), "differs", "quorum queue")) == 2


def test_policies_differ() -> None:
    """Keys that are unknown are left out of a policy that has others, and a policy of these alone is left out."""
    policies = [
        policy("ha", {"ha-mode": "all"}),
        policy("both", {"max-length": 5, "odd-key": 1}),
        policy("federated", {"federation-upstream-set": "all"}),
        policy("none", {"odd-key": 1}),
    ]
    made = planned(rabbit(definitions={"policies": policies}))
    texts = {each.name: each.text for each in made.findings if each.noun == "policy"}
    assert "when-synced" in texts["ha"]
    assert "odd-key" in texts["both"]
    assert texts["both"].startswith("is taken without")
    assert [each.name for each in made.blocking] == ["none"]
    without_it = planned(rabbit(definitions={"policies": policies}), fluffle())
    assert [each.name for each in without_it.blocking] == ["federated", "none"]
    assert "ignores ha-mode" in str(
        planned(rabbit(version="4.1.0", definitions={"policies": policies})).findings
    )


def policy(name: str, definition: Json) -> Json:
    return {
        "vhost": "/",
        "name": name,
        "pattern": ".*",
        "apply-to": "all",
        "definition": definition,
        "priority": 0,
    }


def test_exchange_types_of_plugins() -> None:
    """A type whose plug-in is there and not enabled blocks until it is, one that no plug-in brings is left out."""
    definitions = {"exchanges": [exchange("h", "x-consistent-hash"), exchange("j", "x-jms-topic")]}
    made = planned(rabbit(definitions=definitions), fluffle())
    assert {each.name for each in found(made, "blocks", "exchange")} == {"h", "j"}
    assert "fluffle plugins enable rabbitmq_consistent_hash_exchange" in {
        each.advice for each in made.findings
    }
    types = ("direct", "x-consistent-hash")
    with_it = planned(rabbit(definitions=definitions), fluffle(types=types))
    assert {each.name for each in found(with_it, "blocks", "exchange")} == {"j"}


@pytest.mark.parametrize(
    ("plugin", "weight"),
    [
        ("rabbitmq_auth_backend_ldap", "blocks"),
        ("rabbitmq_auth_backend_oauth2", "blocks"),
        ("rabbitmq_mqtt", "note"),
        ("rabbitmq_federation", "note"),
        ("rabbitmq_new_thing", "differs"),
        ("rabbitmq_delayed_message_exchange", ""),
        ("rabbitmq_peer_discovery_k8s", ""),
        ("rabbitmq_prometheus", ""),
        ("cowboy", ""),
    ],
)
def test_plugins(plugin: str, weight: str) -> None:
    made = planned(rabbit(plugins=("rabbitmq_management", plugin)), fluffle(plugins=("rabbitmq_shovel",)))
    assert [each.weight for each in made.findings if each.noun == "plug-in"] == ([weight] if weight else [])


@pytest.mark.parametrize(
    ("more", "weight"),
    [
        ({"protocol": "AMQP 1-0"}, "blocks"),
        ({"protocol": "stream"}, "blocks"),
        ({"protocol": "MQTT 3.1.1"}, "blocks"),
        ({"ssl": True}, "blocks"),
        ({"auth_mechanism": "EXTERNAL"}, "note"),
        ({}, ""),
    ],
)
def test_clients_need_things(more: Json, weight: str) -> None:
    made = planned(rabbit(connections=[connection_row("c", **more)]), fluffle())
    assert [each.weight for each in made.findings if each.noun == "client"] == ([weight] if weight else [])


def test_a_user_of_another_service_is_found() -> None:
    """LDAP's users are in no definitions, but they are connected."""
    made = planned(rabbit(connections=[connection_row("c", user="from-ldap")]))
    assert [each.name for each in found(made, "blocks", "user")] == ["from-ldap"]


def test_objects_at_the_target_that_are_others() -> None:
    """Clients that declare them as at RabbitMQ would be refused."""
    source = [queue_row("a"), queue_row("b", arguments={"x-max-length": 5}), queue_row("c", 5)]
    target = [queue_row("a", durable=False), queue_row("b"), queue_row("c", 3)]
    made = planned(rabbit(source), fluffle(target))
    texts = {
        each.name: each.text for each in made.findings if each.noun == "queue" and each.weight == "blocks"
    }
    assert "durable" in texts["a"]
    assert "x-max-length" in texts["b"]
    assert texts.keys() == {"a", "b"}
    assert any("3 messages" in each.text for each in found(made, "note", "queue"))


def test_room_and_alarms_of_the_target() -> None:
    made = planned(
        rabbit([queue_row("q", 1000)]), fluffle(node={"disk_free": 1_000_000, "disk_free_limit": 50_000})
    )
    assert "1,124,000" in found(made, "blocks", "node")[0].text
    part = planned(
        rabbit([queue_row("q", 1000), queue_row("other", 1)]),
        fluffle(node={"disk_free": 1_000_000, "disk_free_limit": 50_000}),
        Selection(pattern="other"),
    )
    assert not found(part, "blocks", "node"), "what the advice says has to help"
    alarm = planned(rabbit(), fluffle(node={"mem_alarm": True}))
    assert found(alarm, "blocks", "node")


def test_without_a_plugin_for_shovels_nothing_can_move() -> None:
    made = planned(rabbit(plugins=()), fluffle(plugins=()))
    assert found(made, "blocks", "shovels")
    with pytest.raises(PlanInvalid, match="rabbitmq-plugins enable"):
        made.settled.ends()


def test_fluffles_own_shovels_go_first() -> None:
    assert planned(rabbit(), fluffle(plugins=("rabbitmq_shovel",))).settled.host == "fluffle"


def test_a_selection() -> None:
    source = rabbit([queue_row("orders.eu"), queue_row("orders.us", vhost="b"), queue_row("audit")])
    assert set(ways(planned(source, selection=Selection((), "^orders")))) == {"orders.eu", "orders.us"}
    made = planned(source, selection=Selection(("b",)))
    assert set(ways(made)) == {"orders.us"}
    assert [each["name"] for each in made.document.sections["queues"]] == ["orders.us"]  # type: ignore[call-overload,index]
    with pytest.raises(PatternInvalid):
        planned(source, selection=Selection((), "("))


def test_groups_are_users_that_share_queues() -> None:
    """The group with the least traffic goes first."""
    busy = {"message_stats": {"publish": 9, "ack": 9, "ack_details": {"rate": 50.0}}}
    made = planned(
        rabbit(
            [queue_row("a"), queue_row("b", **busy), queue_row("c", **busy)],
            connections=[connection_row(name, user=name) for name in ("x", "y", "z")],
            channels=[channel_row("x", 5)],
            consumers=[
                consumer_row("x", "b"),
                consumer_row("y", "b"),
                consumer_row("y", "c"),
                consumer_row("z", "a"),
            ],
        )
    )
    assert [each.users for each in made.groups] == [("z@/",), ("x@/", "y@/")]
    assert made.groups[1].queues == (("/", "b"), ("/", "c"))
    assert "group 1 of 2: z@/" in made.order[2]


def test_the_plan_can_be_read_again() -> None:
    made = planned(rabbit([queue_row("orders", 7), queue_row("own", exclusive=True)]), fluffle())
    document = json.loads(json.dumps(as_json(made, "2026-11-28T11:00:00Z")))
    assert settled_from_json(document) == made.settled


@pytest.mark.parametrize(
    "document", [None, {}, {"format": 2}, {"format": 1}, {"format": 1, "rabbitmq": {}}, []]
)
def test_no_plan(document: Any) -> None:
    with pytest.raises(PlanInvalid):
        settled_from_json(document)


def test_the_text_of_a_plan() -> None:
    """Objects with the same finding share a line, names are shown without control characters."""
    rows = [queue_row(f"q{number}", 7, type="quorum") for number in range(7)]
    text = plan_text(planned(rabbit([*rows, queue_row("odd\x1b[2J", 9)]), fluffle()), "2026-11-28T11:00:00Z")
    assert (
        "quorum queues 'q0' in '/', 'q1' in '/', 'q2' in '/', 'q3' in '/', 'q4' in '/' and 2 more: becomes"
        in text
    )
    assert "\x1b" not in text
    assert "8 queues move, with 58 messages" in text
    assert "at rabbitmq" in text
