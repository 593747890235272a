"""Definitions documents are read or refused with RabbitMQ 3.10.8's answers (management §2.2)."""

from typing import Any

import pytest

from node.amqp.field_table import VOID, long
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    PutVhost,
    SetGlobalParameter,
    SetParameter,
    SetPermission,
    SetPolicy,
)
from node.catalogue.passwords import MD5, SHA512
from node.definitions.document import (
    Definitions,
    VhostItem,
    check_queue_limits,
    check_references,
    read,
    read_steps,
)
from node.definitions.reading import DefinitionsInvalid
from node.definitions.users import UserItem

USER = {"name": "u", "tags": ""}
QUEUE = {"name": "q", "vhost": "v", "durable": True, "auto_delete": False, "arguments": {}}
EXCHANGE = {"name": "e", "vhost": "v", "type": "topic", "durable": True, "auto_delete": False}
BINDING = {"source": "e", "vhost": "v", "destination": "q", "destination_type": "queue", "routing_key": "k"}
POLICY = {"vhost": "v", "name": "p", "pattern": "^a", "definition": {"max-length": 5}}
PERMISSION = {"user": "u", "vhost": "v", "configure": "", "write": "", "read": ""}


def read_one(section: str, item: dict[str, Any], **rest: Any) -> Any:
    found = read({section: [item], **rest})
    for field in (section, "limits"):
        if getattr(found, field):
            return getattr(found, field)[0]
    raise AssertionError(f"nothing was read of {item}")


# --- users (§2.3) ---


@pytest.mark.parametrize(
    ("item", "version", "expected"),
    [
        ({"tags": "a, b"}, "", UserItem("u", ("a", "b"))),
        ({"tags": ["a", 1]}, "", UserItem("u", ("a", "1"))),
        ({"administrator": True}, "", UserItem("u", ("administrator",))),
        ({"administrator": False}, "", UserItem("u", ())),
        ({"tags": "", "password": "p"}, "", UserItem("u", (), password="p")),
        ({"tags": "", "password_hash": "YWJj"}, "3.5.8", UserItem("u", (), None, "YWJj", MD5)),
        ({"tags": "", "password_hash": "YWJj"}, "3.6.0", UserItem("u", (), None, "YWJj")),
        (
            {"tags": "", "password_hash": "YWJj", "hashing_algorithm": SHA512},
            "3.5.1",
            UserItem("u", (), None, "YWJj", SHA512),
        ),
        ({"tags": "", "limits": []}, "", UserItem("u", (), limits={})),
        ({"tags": "", "limits": [["max-channels", 3]]}, "", UserItem("u", (), limits={"max-channels": 3})),
        (
            {"tags": "", "permissions": {"v": {"configure": "a", "write": "b", "read": "c"}}},
            "",
            UserItem("u", (), permissions={"v": ("a", "b", "c")}),
        ),
    ],
)
def test_users(item: dict[str, Any], version: str, expected: UserItem) -> None:
    assert read_one("users", {"name": "u", **item}, rabbit_version=version) == expected
    assert read_one("users", {"name": "u", **item}, rabbitmq_version=version) == expected


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({}, "tags_not_present"),
        (
            {"tags": "", "password": "p", "password_hash": "YWJj"},
            "both_password_and_password_hash_are_provided",
        ),
        ({"tags": "", "password_hash": "###"}, ["not_base64", "###"]),
        ({"tags": "", "password_hash": 5}, ["not_base64", 5]),
        ({"tags": "", "password_hash": "", "hashing_algorithm": "x"}, ["unknown_hashing_algorithm", "x"]),
        ({"tags": "", "limits": {"x": 1}}, 'Unrecognised terms [{<<"x">>,1}] in user-limits'),
    ],
)
def test_refused_users(item: dict[str, Any], reason: object) -> None:
    with pytest.raises(DefinitionsInvalid) as refused:
        read_one("users", {"name": "u", **item})
    assert refused.value.reason == reason


# --- vhosts ---


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({}, VhostItem("v")),
        ({"description": "d", "tags": ["t"]}, VhostItem("v", "d", ("t",))),
        ({"description": "d", "tags": "s, t", "tracing": True}, VhostItem("v", "d", ("s", "t"), True)),
        (
            {"metadata": {"description": "m", "tags": ["q"], "default_queue_type": "quorum"}},
            VhostItem("v", "m", ("q",), None, "quorum"),
        ),
        ({"default_queue_type": "quorum", "limits": [["max-queues", 5]]}, VhostItem("v")),
        ({"metadata": {"default_queue_type": "undefined"}}, VhostItem("v")),
    ],
)
def test_vhosts(item: dict[str, Any], expected: VhostItem) -> None:
    assert read_one("vhosts", {"name": "v", **item}) == expected


# --- what is in a vhost ---


def test_items_of_each_section() -> None:
    arguments = {"x-max-length": 5, "n": None}
    queue = DeclareQueue(
        "v", "q", "", durable=True, arguments={"x-max-length": long(5), "n": VOID}, type="classic"
    )
    exchange = DeclareExchange("v", "e", "topic", durable=True)
    assert read_one("queues", {**QUEUE, "arguments": arguments}) == queue
    assert read_one("queues", {**QUEUE, "type": "quorum"}).type == "classic"
    assert read_one("queues", {**QUEUE, "arguments": {"x-queue-type": "quorum"}}).type == "quorum"
    assert read_one("exchanges", EXCHANGE) == exchange
    assert read_one("bindings", BINDING) == Bind("v", "e", "queue", "q", "k")
    assert read_one("permissions", PERMISSION) == SetPermission("v", "u", "", "", "")
    assert read_one("policies", POLICY) == SetPolicy("v", "p", "^a", {"max-length": 5})
    pairs = {**POLICY, "definition": [["max-length", 5]]}
    assert read_one("policies", pairs) == SetPolicy("v", "p", "^a", {"max-length": 5})


def test_parameters() -> None:
    """§2.2: the command line's pairs, and its empty lists."""
    base = {"vhost": "v", "component": "operator_policy", "name": "o"}
    value = {"apply-to": "all", "definition": [["max-length", 5]], "pattern": "^a", "priority": 0}
    expected = {**value, "definition": {"max-length": 5}}
    assert read_one("parameters", {**base, "value": value}) == SetParameter(
        "v", "operator_policy", "o", expected
    )
    limits = {"vhost": "v", "component": "vhost-limits", "name": "limits"}
    for given, kept in (({}, {}), ([], []), ([["max-queues", 5]], {"max-queues": 5})):
        assert read_one("parameters", {**limits, "value": given}).value == kept
    # What an object of ours is nobody can tell from a list of lists.
    assert read_one("global_parameters", {"name": "g", "value": [["a", 1]]}) == SetGlobalParameter(
        "g", [["a", 1]]
    )


def test_what_is_the_brokers_own_is_skipped() -> None:
    found = read(
        {
            "queues": [{**QUEUE, "name": "amq.gen-x"}],
            "exchanges": [{**EXCHANGE, "name": ""}, {**EXCHANGE, "name": "amq.topic", "type": "nope"}],
            "bindings": [{**BINDING, "source": ""}],
        }
    )
    assert found == Definitions(skipped=[("exchange", ""), ("exchange", "amq.topic"), ("queue", "amq.gen-x")])


def test_for_one_vhost_it_is_all_in_that_one() -> None:
    document = {
        "users": [USER],
        "vhosts": [{"name": "w"}],
        "queues": [{**QUEUE, "vhost": "w"}],
        "bindings": [{key: value for key, value in BINDING.items() if key != "vhost"}],
        "policies": [{**POLICY, "vhost": "w"}],
    }
    found = read(document, vhost="only")
    assert not found.users
    assert not found.vhosts
    assert {each.vhost for each in (*found.queues, *found.bindings, *found.policies)} == {"only"}  # type: ignore[attr-defined]


REFUSED: list[tuple[str, Any, str]] = [
    ("users", 5, "users must be a list of objects"),
    ("users", [5], "users must be a list of objects"),
    ("users", [{"tags": ""}], "name of a user"),
    ("vhosts", [{"name": ""}], "name of a virtual host"),
    ("vhosts", [{"name": "é" * 128}], "name of a virtual host"),
    ("vhosts", [{"name": "v", "tags": 5}], "tags must be"),
    ("queues", [{"name": "q", "vhost": "v"}], "durable of a queue must be true or false"),
    ("queues", [{**QUEUE, "durable": "yes"}], "durable of a queue must be true or false"),
    ("queues", [{**QUEUE, "name": ""}], "name of a queue"),
    ("queues", [{**QUEUE, "arguments": {"x-max-length": "x"}}], "invalid arg 'x-max-length' for queue 'q'"),
    ("queues", [{**QUEUE, "arguments": {"x-queue-type": "nope"}}], "unsupported queue type 'nope'"),
    ("queues", [{**QUEUE, "arguments": {"a": 2**70}}], "64 bits"),
    ("queues", [{**QUEUE, "arguments": 5}], "arguments must be an object"),
    ("exchanges", [{**EXCHANGE, "type": "nope"}], "invalid exchange type 'nope'"),
    ("exchanges", [{**EXCHANGE, "internal": 1}], "internal of a exchange"),
    ("bindings", [{**BINDING, "destination_type": "x"}], "destination_type must be"),
    ("bindings", [{**BINDING, "routing_key": 5}], "routing_key of a binding"),
    ("policies", [{**POLICY, "definition": {}}], "no policy provided\n (v/p)"),
    ("policies", [{**POLICY, "pattern": "("}], "pattern should be regular expression"),
    (
        "parameters",
        [{"vhost": "v", "component": "nope", "name": "n", "value": 1}],
        "component nope not found",
    ),
    (
        "parameters",
        [{"vhost": "v", "component": "policy", "name": "n", "value": 1}],
        "may not be set using this",
    ),
    ("global_parameters", [{"name": "g"}], "has no value"),
    ("permissions", [{**PERMISSION, "configure": "("}], "invalid_regexp"),
    ("permissions", [{"user": "u", "vhost": "v"}], "configure of a permission"),
]


@pytest.mark.parametrize(("section", "found", "text"), REFUSED)
def test_refused_documents(section: str, found: Any, text: str) -> None:
    with pytest.raises(DefinitionsInvalid) as refused:
        read({section: found})
    assert text in str(refused.value.reason)


def test_references() -> None:
    catalogue = Catalogue()
    catalogue.apply(PutVhost("v"))
    check_references(read({"queues": [QUEUE], "users": [USER], "permissions": [PERMISSION]}), catalogue)
    for document, reason in (
        ({"queues": [{**QUEUE, "vhost": "w"}]}, ["no_such_vhost", "w"]),
        ({"permissions": [PERMISSION]}, ["no_such_user", "u"]),
        ({"users": [{**USER, "permissions": {"w": PERMISSION}}]}, ["no_such_vhost", "w"]),
    ):
        with pytest.raises(DefinitionsInvalid) as refused:
            check_references(read(document), catalogue)
        assert refused.value.reason == reason
    check_references(read({"queues": [{**QUEUE, "vhost": "w"}], "vhosts": [{"name": "w"}]}), catalogue)


def test_limits_of_queues_hold_for_what_is_new() -> None:
    catalogue = Catalogue()
    catalogue.apply(PutVhost("v"))
    catalogue.apply(SetParameter("v", "vhost-limits", "limits", {"max-queues": 1}))
    catalogue.apply(DeclareQueue("v", "q", "uid"))
    check_queue_limits(read({"queues": [QUEUE, QUEUE]}), catalogue)
    with pytest.raises(DefinitionsInvalid) as refused:
        check_queue_limits(read({"queues": [QUEUE, {**QUEUE, "name": "r"}]}), catalogue)
    assert refused.value.reason == [
        "vhost_limit_exceeded",
        'Adding 1 queue(s) to virtual host "v" would exceed the limit of 1 queue(s).\n\n'
        "This virtual host currently has 1 queue(s) defined.\n\nImport aborted!",
    ]


def test_a_long_document_is_read_in_steps() -> None:
    steps = read_steps({"queues": [{**QUEUE, "name": f"q{number}"} for number in range(1000)]})
    assert sum(1 for _ in steps) == 10


# --- what a real RabbitMQ has and this broker has not ---

FOREIGN: dict[str, Any] = {
    "vhosts": [{"name": "v", "metadata": {"default_queue_type": "stream"}}],
    "exchanges": [{**EXCHANGE, "name": "hash", "type": "x-consistent-hash"}, EXCHANGE],
    "policies": [
        POLICY,
        {**POLICY, "name": "fed", "definition": {"federation-upstream-set": "all"}},
        {**POLICY, "name": "both", "definition": {"ha-mode": "all", "federation-upstream": "x"}},
        {**POLICY, "name": "newer", "apply-to": "classic_queues"},
    ],
    "parameters": [{"vhost": "v", "component": "shovel", "name": "s", "value": {}}],
    "queues": [QUEUE, {**QUEUE, "name": "log", "arguments": {"x-queue-type": "stream"}}],
}


def test_all_that_cannot_be_taken_is_named_at_once() -> None:
    mistake = {**POLICY, "name": "bad", "definition": {"max-length": "five"}}
    with pytest.raises(DefinitionsInvalid) as caught:
        read({**FOREIGN, "policies": [*FOREIGN["policies"], mistake]})
    first, *lines = str(caught.value.reason).splitlines()
    assert first == (
        "8 items cannot be taken; 7 of them use features that Fluffle lacks; skip_unsupported skips these:"
    )
    for line, what in zip(
        lines,
        (
            "invalid_queue_type: stream",
            "x-consistent-hash",
            "federation-upstream-set",
            "federation-upstream",
            "apply-to 'classic_queues'",
            "{'name': 'bad', 'vhost': 'v'}",
            "component shovel not found",
            "feature flag is disabled",
        ),
        strict=True,
    ):
        assert what in line


def test_what_is_not_supported_can_be_left_out() -> None:
    found = read(FOREIGN, skips_unsupported=True)
    assert [each.default_queue_type for each in found.vhosts] == [""]
    assert [each.name for each in found.exchanges] == ["e"]
    assert [(each.name, each.definition) for each in found.policies] == [
        ("p", {"max-length": 5}),
        ("both", {"ha-mode": "all"}),
    ]
    assert [each.name for each in found.queues] == ["q"]
    assert found.parameters == []
    assert len(found.left_out) == 7
    assert "federation-upstream of policies {'name': 'both', 'vhost': 'v'}" in found.left_out


def test_a_mistake_is_no_thing_that_can_be_left_out() -> None:
    with pytest.raises(DefinitionsInvalid, match="p\\)"):
        read({"policies": [{**POLICY, "definition": {"max-length": "five"}}]}, skips_unsupported=True)
    with pytest.raises(DefinitionsInvalid):
        read({"queues": [{**QUEUE, "arguments": {"x-max-length": "a"}}]}, skips_unsupported=True)


def test_exchanges_of_an_enabled_plugin_are_taken() -> None:
    document = {"exchanges": FOREIGN["exchanges"]}
    found = read(document, exchange_types={"topic", "x-consistent-hash"})
    assert [each.type for each in found.exchanges] == ["x-consistent-hash", "topic"]
    with pytest.raises(DefinitionsInvalid, match="invalid exchange type 'x-consistent-hash'"):
        read(document)
