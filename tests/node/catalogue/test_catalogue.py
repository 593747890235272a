"""The catalogue as a state machine (amqp-behaviour §3.2, §3.4, §3.5, §3.7, §3.14, §6; management §2.2)."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Field, Table, long, longstr
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    ClearGlobalParameter,
    ClearParameter,
    ClearPermission,
    ClearPolicy,
    ClearTopicPermission,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
    ExchangeDeclared,
    PutUser,
    PutVhost,
    QueueDeclared,
    Refused,
    SetGlobalParameter,
    SetParameter,
    SetPermission,
    SetPolicy,
    SetTopicPermission,
    SetUserLimits,
    Unbind,
    seed_commands,
)
from node.catalogue.events import (
    BindingAdded,
    BindingRemoved,
    ExchangeCreated,
    ExchangeDeleted,
    ParameterChanged,
    PermissionsChanged,
    PolicyChanged,
    QueueCreated,
    QueueDeleted,
    TopicPermissionsChanged,
    UserDeleted,
    VhostCreated,
    VhostDeleted,
    VhostUpdated,
)
from node.catalogue.limits import VhostLimits
from node.catalogue.passwords import SHA256
from node.catalogue.policy import NO_POLICY
from node.catalogue.records import Binding, Exchange, Json, QueueRecord, UserLimits


@pytest.fixture
def catalogue() -> Catalogue:
    result = Catalogue()
    result.apply(PutVhost("v"))
    result.take_events()
    return result


def declare_queue(catalogue: Catalogue, name: str, uid: str = "1") -> QueueRecord:
    result = catalogue.apply(DeclareQueue("v", name, uid))
    assert isinstance(result, QueueDeclared)
    return result.queue


def declare_exchange(catalogue: Catalogue, name: str, *, auto_delete: bool = False) -> Exchange:
    result = catalogue.apply(DeclareExchange("v", name, "direct", auto_delete=auto_delete))
    assert isinstance(result, ExchangeDeclared)
    return result.exchange


def bind_queue(catalogue: Catalogue, source: str, queue: str, key: str = "k") -> None:
    assert catalogue.apply(Bind("v", source, "queue", queue, key)) is True


def bind_exchange(catalogue: Catalogue, source: str, destination: str) -> None:
    assert catalogue.apply(Bind("v", source, "exchange", destination, "k")) is True


def exchange_names(catalogue: Catalogue) -> set[str]:
    """Without the pre-declared ones."""
    return {x.name for x in catalogue.exchanges("v") if x.name and not x.name.startswith("amq.")}


# --- vhosts ------------------------------------------------------------------------------------------------


def test_a_vhost_has_seven_exchanges() -> None:
    """§3.2: all durable, none auto-delete, only the trace exchange internal."""
    catalogue = Catalogue()
    assert catalogue.apply(PutVhost("v")) is True
    assert {(x.name, x.type, x.internal) for x in catalogue.exchanges("v")} == {
        ("", "direct", False),
        ("amq.direct", "direct", False),
        ("amq.fanout", "fanout", False),
        ("amq.headers", "headers", False),
        ("amq.match", "headers", False),
        ("amq.topic", "topic", False),
        ("amq.rabbitmq.trace", "topic", True),
    }
    assert all(x.durable and not x.auto_delete for x in catalogue.exchanges("v"))
    events = catalogue.take_events()
    assert isinstance(events[0], VhostCreated)
    assert [type(event) for event in events[1:]] == [ExchangeCreated] * 7


def test_putting_a_vhost_again_replaces_its_description_only(catalogue: Catalogue) -> None:
    """§6.9: idempotent create."""
    declare_queue(catalogue, "q")
    catalogue.take_events()
    version = catalogue.version
    assert catalogue.apply(PutVhost("v", "text", ("a",), "quorum", {"owner": "me"})) is False
    vhost = catalogue.vhost("v")
    assert vhost is not None
    assert (vhost.description, vhost.tags, vhost.default_queue_type) == ("text", ("a",), "quorum")
    assert catalogue.take_events() == [VhostUpdated(vhost)]
    assert catalogue.version == version
    assert catalogue.queue("v", "q") is not None


def test_deleting_a_vhost_deletes_everything_in_it(catalogue: Catalogue) -> None:
    """§6.9: delete of a vhost."""
    catalogue.apply(PutUser("u", "", SHA256))
    catalogue.apply(SetPermission("v", "u", "", "", ""))
    catalogue.apply(SetTopicPermission("v", "u", "x", "", ""))
    catalogue.apply(SetPolicy("v", "p", ".", {"max-length": 1}))
    catalogue.apply(SetParameter("v", "vhost-limits", "limits", {"max-queues": 5}))
    queue = declare_queue(catalogue, "q")
    bind_queue(catalogue, "amq.direct", "q")
    catalogue.take_events()
    assert catalogue.apply(DeleteVhost("v")) is True
    assert (catalogue.vhost("v"), catalogue.queue("v", "q"), list(catalogue.exchanges("v"))) == (
        None,
        None,
        [],
    )
    assert catalogue.permission("v", "u") is None
    assert catalogue.topic_permission("v", "u", "x") is None
    assert catalogue.vhost_limits("v") == VhostLimits()
    events = catalogue.take_events()
    assert events[0] == QueueDeleted(queue)
    assert events[-1] == VhostDeleted("v")
    assert PermissionsChanged("v", "u", None) in events
    assert catalogue.apply(DeleteVhost("v")) is False
    catalogue.apply(PutVhost("v"))
    assert (list(catalogue.queues("v")), list(catalogue.bindings("v")), list(catalogue.policies("v"))) == (
        [],
        [],
        [],
    )


# --- exchanges and queues ----------------------------------------------------------------------------------


def test_declaring_a_taken_name_gives_what_is_there(catalogue: Catalogue) -> None:
    """§3.3 step 5, §3.7 step 6: the channel compares."""
    exchange = declare_exchange(catalogue, "x")
    queue = declare_queue(catalogue, "q", uid="1")
    catalogue.take_events()
    version = catalogue.version
    again = DeclareExchange("v", "x", "fanout", durable=True)
    assert catalogue.apply(again) == ExchangeDeclared(exchange, created=False)
    assert catalogue.apply(DeclareQueue("v", "q", "2", durable=True)) == QueueDeclared(queue, created=False)
    assert catalogue.take_events() == []
    assert catalogue.version == version


def test_a_new_queue_is_recorded_as_declared(catalogue: Catalogue) -> None:
    arguments: Table = {"x-max-length": long(1)}
    result = catalogue.apply(DeclareQueue("v", "q", "id", True, True, "conn", arguments, "quorum"))
    queue = QueueRecord("v", "q", "id", True, True, "conn", arguments, "quorum")
    assert result == QueueDeclared(queue, created=True)
    assert catalogue.queue("v", "q") == queue
    assert catalogue.take_events() == [QueueCreated(queue)]


def test_names_are_per_vhost(catalogue: Catalogue) -> None:
    declare_queue(catalogue, "q")
    catalogue.apply(PutVhost("w"))
    assert catalogue.queue("w", "q") is None


def test_unknown_exchange_type(catalogue: Catalogue) -> None:
    """§3.3 step 1."""
    assert catalogue.apply(DeclareExchange("v", "x", "nope")) == Refused(
        ReplyCode.COMMAND_INVALID, "unknown exchange type 'nope'"
    )


def test_queue_limit_of_the_vhost(catalogue: Catalogue) -> None:
    """§3.7 step 7: at declare of a new queue only; §6.5: existing ones stay."""
    declare_queue(catalogue, "a")
    declare_queue(catalogue, "b")
    catalogue.apply(SetParameter("v", "vhost-limits", "limits", {"max-queues": 1}))
    assert catalogue.apply(DeclareQueue("v", "q", "1")) == Refused(
        ReplyCode.PRECONDITION_FAILED, "cannot declare queue 'q': queue limit in vhost 'v' (1) is reached"
    )
    assert isinstance(catalogue.apply(DeclareQueue("v", "a", "1")), QueueDeclared)
    catalogue.apply(ClearParameter("v", "vhost-limits", "limits"))
    assert isinstance(catalogue.apply(DeclareQueue("v", "q", "1")), QueueDeclared)


def test_deleting_a_queue_removes_its_bindings_only(catalogue: Catalogue) -> None:
    queue = declare_queue(catalogue, "q")
    declare_queue(catalogue, "other")
    declare_exchange(catalogue, "x")
    for name in ("q", "other"):
        bind_queue(catalogue, "x", name)
    catalogue.take_events()
    assert catalogue.apply(DeleteQueue("v", "q")) == queue
    assert catalogue.take_events() == [
        BindingRemoved(Binding("v", "x", "queue", "q", "k")),
        QueueDeleted(queue),
    ]
    assert [b.destination for b in catalogue.bindings_from("v", "x")] == ["other"]
    assert list(catalogue.bindings_to("v", "queue", "q")) == []
    assert catalogue.apply(DeleteQueue("v", "q")) is None


def test_deleting_one_incarnation_spares_the_next(catalogue: Catalogue) -> None:
    declare_queue(catalogue, "q", uid="old")
    catalogue.apply(DeleteQueue("v", "q", uid="old"))
    declare_queue(catalogue, "q", uid="new")
    assert catalogue.apply(DeleteQueue("v", "q", uid="old")) is None
    assert catalogue.queue("v", "q") is not None
    assert catalogue.apply(DeleteQueue("v", "q", uid="new")) is not None


def test_deleting_an_exchange(catalogue: Catalogue) -> None:
    """§3.4: missing is no error; bindings go both ways."""
    exchange = declare_exchange(catalogue, "x")
    declare_exchange(catalogue, "up")
    declare_queue(catalogue, "q")
    bind_exchange(catalogue, "up", "x")
    bind_queue(catalogue, "x", "q")
    catalogue.apply(SetPolicy("v", "p", "x", {"alternate-exchange": "y"}))
    assert catalogue.apply(DeleteExchange("v", "x")) == exchange
    assert catalogue.effective_policy(exchange) is NO_POLICY
    assert list(catalogue.bindings_to("v", "queue", "q")) == []
    assert list(catalogue.bindings_from("v", "up")) == []
    assert catalogue.apply(DeleteExchange("v", "x")) is None


def test_if_unused(catalogue: Catalogue) -> None:
    """§3.4 row if-unused: a binding from it counts, being a destination does not."""
    declare_exchange(catalogue, "x")
    declare_exchange(catalogue, "up")
    bind_exchange(catalogue, "up", "x")
    assert catalogue.apply(DeleteExchange("v", "up", if_unused=True)) == Refused(
        ReplyCode.PRECONDITION_FAILED, "exchange 'up' in vhost 'v' in use"
    )
    assert isinstance(catalogue.apply(DeleteExchange("v", "x", if_unused=True)), Exchange)
    assert isinstance(catalogue.apply(DeleteExchange("v", "up", if_unused=True)), Exchange)


# --- auto-delete exchanges ---------------------------------------------------------------------------------


def test_auto_delete_goes_with_its_last_binding(catalogue: Catalogue) -> None:
    """§3.5: on unbind; not before the last, never without one."""
    declare_exchange(catalogue, "x", auto_delete=True)
    declare_exchange(catalogue, "unbound", auto_delete=True)
    declare_queue(catalogue, "q")
    bind_queue(catalogue, "x", "q", "1")
    bind_queue(catalogue, "x", "q", "2")
    catalogue.apply(Unbind("v", "x", "queue", "q", "1"))
    assert exchange_names(catalogue) == {"x", "unbound"}
    catalogue.take_events()
    catalogue.apply(Unbind("v", "x", "queue", "q", "2"))
    assert exchange_names(catalogue) == {"unbound"}
    assert [type(event) for event in catalogue.take_events()] == [BindingRemoved, ExchangeDeleted]


def test_auto_delete_goes_with_the_queue(catalogue: Catalogue) -> None:
    """§3.5: queue deleted, several bindings at once."""
    declare_exchange(catalogue, "x", auto_delete=True)
    declare_queue(catalogue, "q")
    bind_queue(catalogue, "x", "q", "1")
    bind_queue(catalogue, "x", "q", "2")
    catalogue.take_events()
    catalogue.apply(DeleteQueue("v", "q"))
    assert exchange_names(catalogue) == set()
    assert [type(event) for event in catalogue.take_events()] == [
        BindingRemoved,
        BindingRemoved,
        QueueDeleted,
        ExchangeDeleted,
    ]


def test_auto_delete_cascades_upstream(catalogue: Catalogue) -> None:
    """§3.4 and §3.5, chain: a → b → c → queue; the durable one in front stays."""
    declare_exchange(catalogue, "front")
    for name in "abc":
        declare_exchange(catalogue, name, auto_delete=True)
    declare_queue(catalogue, "q")
    for source, destination in ("front", "a"), ("a", "b"), ("b", "c"):
        bind_exchange(catalogue, source, destination)
    bind_queue(catalogue, "c", "q")
    catalogue.take_events()
    catalogue.apply(DeleteQueue("v", "q"))
    assert exchange_names(catalogue) == {"front"}
    deleted = [e.exchange.name for e in catalogue.take_events() if isinstance(e, ExchangeDeleted)]
    assert deleted == ["c", "b", "a"]


def test_deleting_an_exchange_spares_what_it_leads_to(catalogue: Catalogue) -> None:
    """§3.5: only the last binding as source counts."""
    declare_exchange(catalogue, "x")
    declare_exchange(catalogue, "down", auto_delete=True)
    bind_exchange(catalogue, "x", "down")
    catalogue.apply(DeleteExchange("v", "x"))
    assert exchange_names(catalogue) == {"down"}


def test_auto_delete_exchanges_in_a_ring(catalogue: Catalogue) -> None:
    """§3.14 row self e2e binding; a ring ends too."""
    for name in ("a", "b"):
        declare_exchange(catalogue, name, auto_delete=True)
    bind_exchange(catalogue, "a", "a")
    bind_exchange(catalogue, "a", "b")
    bind_exchange(catalogue, "b", "a")
    catalogue.apply(DeleteExchange("v", "a"))
    assert exchange_names(catalogue) == set()
    assert list(catalogue.bindings("v")) == []


# --- bindings ----------------------------------------------------------------------------------------------


def test_binding_needs_both_ends(catalogue: Catalogue) -> None:
    """§3.14 rows missing exchange, missing queue; if both miss the source is named."""
    declare_exchange(catalogue, "x")

    def refusal(source: str, kind: str, destination: str) -> object:
        assert kind in ("queue", "exchange")
        return catalogue.apply(Bind("v", source, "queue" if kind == "queue" else "exchange", destination, ""))

    no = ReplyCode.NOT_FOUND
    assert refusal("x", "queue", "q") == Refused(no, "no queue 'q' in vhost 'v'")
    assert refusal("x", "exchange", "y") == Refused(no, "no exchange 'y' in vhost 'v'")
    assert refusal("z", "queue", "q") == Refused(no, "no exchange 'z' in vhost 'v'")
    assert refusal("z", "exchange", "y") == Refused(no, "no exchange 'z' in vhost 'v'")
    assert catalogue.take_events()[1:] == []


def test_default_exchange_cannot_be_bound(catalogue: Catalogue) -> None:
    """§3.14 row source or destination is ''."""
    declare_queue(catalogue, "q")
    refused = Refused(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")
    assert catalogue.apply(Bind("v", "", "queue", "q", "k")) == refused
    assert catalogue.apply(Bind("v", "amq.direct", "exchange", "", "k")) == refused


def test_duplicate_bind_changes_nothing(catalogue: Catalogue) -> None:
    """§3.14 row duplicate bind: arguments in any order are the same binding."""
    declare_queue(catalogue, "q")
    first: Table = {"a": long(1), "b": longstr("x")}
    second: Table = {"b": longstr("x"), "a": long(1)}
    assert catalogue.apply(Bind("v", "amq.headers", "queue", "q", "k", first)) is True
    catalogue.take_events()
    version = catalogue.version
    assert catalogue.apply(Bind("v", "amq.headers", "queue", "q", "k", second)) is False
    assert catalogue.take_events() == []
    assert catalogue.version == version
    assert catalogue.apply(Unbind("v", "amq.headers", "queue", "q", "k", second)) is True
    assert len(catalogue.bindings_from("v", "amq.headers")) == 0


@pytest.mark.parametrize(
    ("key", "arguments"),
    [
        ("other", {}),
        ("k", {"a": long(1)}),
        ("k", {"a": Field("I", 1)}),
        ("k", {"a": Field("t", True)}),
        ("k", {"a": Field("d", 1.0)}),
        ("k", {"a": Field("d", float("nan"))}),
        ("k", {"a": Field("F", {"x": long(1)})}),
        ("k", {"a": Field("A", [long(1), longstr("s")])}),
    ],
)
def test_key_and_arguments_make_another_binding(catalogue: Catalogue, key: str, arguments: Table) -> None:
    """§3.14: identity = source + destination + key + args; the type of a value is part of it."""
    declare_queue(catalogue, "q")
    bind_queue(catalogue, "amq.headers", "q")
    catalogue.apply(Bind("v", "amq.headers", "queue", "q", "k", {"a": long(2)}))
    assert catalogue.apply(Bind("v", "amq.headers", "queue", "q", key, arguments)) is True
    assert catalogue.apply(Bind("v", "amq.headers", "queue", "q", key, arguments)) is False
    assert len(catalogue.bindings_to("v", "queue", "q")) == 3
    # Another process's copy: a NaN that is not the same object must name the same binding.
    copied: Table = pickle.loads(pickle.dumps(arguments))
    assert catalogue.apply(Unbind("v", "amq.headers", "queue", "q", key, copied)) is True
    assert len(catalogue.bindings_to("v", "queue", "q")) == 2


def test_unbinding_what_is_missing_is_no_error(catalogue: Catalogue) -> None:
    """§3.14 row unbind missing binding/queue/exchange."""
    declare_queue(catalogue, "q")
    catalogue.take_events()
    for source, queue in (("amq.direct", "q"), ("nope", "q"), ("amq.direct", "nope"), ("", "q")):
        assert catalogue.apply(Unbind("v", source, "queue", queue, queue)) is False
    assert catalogue.take_events() == []


def test_each_queue_is_bound_to_the_default_exchange(catalogue: Catalogue) -> None:
    """§3.14: implicit, unremovable, listed with source '' and the name as key."""
    declare_queue(catalogue, "q")
    bind_queue(catalogue, "amq.direct", "q")
    catalogue.apply(Unbind("v", "", "queue", "q", "q"))
    assert list(catalogue.bindings("v")) == [
        Binding("v", "", "queue", "q", "q"),
        Binding("v", "amq.direct", "queue", "q", "k"),
    ]


def test_a_queue_and_an_exchange_of_one_name_are_two_destinations(catalogue: Catalogue) -> None:
    declare_queue(catalogue, "n")
    declare_exchange(catalogue, "n")
    bind_queue(catalogue, "amq.direct", "n")
    bind_exchange(catalogue, "amq.direct", "n")
    catalogue.apply(DeleteQueue("v", "n"))
    assert [b.destination_kind for b in catalogue.bindings_from("v", "amq.direct")] == ["exchange"]


# --- policies ----------------------------------------------------------------------------------------------


PUT = ParameterChanged("v", "policy", "p")
"""The policy p was put or cleared, whatever comes of it."""


def test_policy_applies_at_declare_and_on_change(catalogue: Catalogue) -> None:
    """§6.1: applied at declare and re-evaluated on any policy change; only what changed is named."""
    before = declare_queue(catalogue, "q1")
    untouched = declare_queue(catalogue, "other")
    catalogue.take_events()
    assert catalogue.apply(SetPolicy("v", "p", "^q", {"max-length": 1}, apply_to="queues")) is True
    assert catalogue.take_events() == [PUT, PolicyChanged("v", ("q1",), ())]
    after = declare_queue(catalogue, "q2")
    catalogue.take_events()
    for queue in (before, after):
        assert catalogue.effective_policy(queue).definition == {"max-length": 1}
    assert catalogue.effective_policy(untouched) is NO_POLICY
    assert catalogue.apply(SetPolicy("v", "p", "^q2", {"max-length": 1})) is False
    assert catalogue.take_events() == [PUT, PolicyChanged("v", ("q1",), ())]
    assert catalogue.apply(ClearPolicy("v", "p")) is True
    assert catalogue.take_events() == [PUT, PolicyChanged("v", ("q2",), ())]
    assert catalogue.apply(ClearPolicy("v", "p")) is False


def test_setting_the_same_policy_again_changes_nothing(catalogue: Catalogue) -> None:
    declare_queue(catalogue, "q")
    command = SetPolicy("v", "p", ".", {"max-length": 1})
    catalogue.apply(command)
    catalogue.take_events()
    catalogue.apply(command)
    assert catalogue.take_events() == [PUT]


def test_policies_match_exclusive_queues_and_system_exchanges(catalogue: Catalogue) -> None:
    """§6.1: `amq.*` objects and exclusive queues match too."""
    catalogue.apply(DeclareQueue("v", "q", "1", exclusive_owner="c"))
    catalogue.take_events()
    catalogue.apply(SetPolicy("v", "p", "^(q|amq.topic)$", {"alternate-exchange": "x"}))
    assert catalogue.take_events() == [PUT, PolicyChanged("v", ("q",), ("amq.topic",))]


def test_operator_policies_are_kept_apart(catalogue: Catalogue) -> None:
    queue = declare_queue(catalogue, "q")
    catalogue.apply(SetPolicy("v", "p", ".", {"max-length": 5, "overflow": "reject-publish"}))
    catalogue.apply(SetPolicy("v", "p", ".", {"max-length": 2}, operator=True))
    effective = catalogue.effective_policy(queue)
    assert effective.definition == {"max-length": 2, "overflow": "reject-publish"}
    assert (effective.policy, effective.operator_policy) == ("p", "p")
    assert len(catalogue.policies("v")) == len(catalogue.policies("v", operator=True)) == 1
    catalogue.apply(ClearPolicy("v", "p"))
    assert catalogue.effective_policy(queue).definition == {"max-length": 2}


def test_a_queue_declared_again_does_not_inherit_a_policy(catalogue: Catalogue) -> None:
    catalogue.apply(SetPolicy("v", "p", ".", {"queue-mode": "lazy"}))
    deleted = declare_queue(catalogue, "q")
    catalogue.apply(DeleteQueue("v", "q"))
    assert catalogue.effective_policy(deleted) is NO_POLICY
    result = catalogue.apply(DeclareQueue("v", "q", "2", durable=True, type="quorum"))
    assert isinstance(result, QueueDeclared)
    assert catalogue.effective_policy(result.queue) is NO_POLICY


def test_invalid_policies_are_refused(catalogue: Catalogue) -> None:
    """§6.3: the text; nothing is stored."""
    assert catalogue.apply(SetPolicy("v", "p", ".", {})) == Refused(
        ReplyCode.PRECONDITION_FAILED, "no policy provided"
    )
    assert catalogue.apply(SetPolicy("w", "p", ".", {"max-length": 1})) == Refused(
        ReplyCode.NOT_FOUND, "no vhost 'w'"
    )
    assert list(catalogue.policies("v")) == []


# --- parameters --------------------------------------------------------------------------------------------


def test_vhost_limits_parameter(catalogue: Catalogue) -> None:
    """§6.4, §6.5: component vhost-limits, name limits."""
    command = SetParameter("v", "vhost-limits", "limits", {"max-queues": 5, "max-connections": -1})
    assert catalogue.apply(command) is True
    assert catalogue.apply(command) is False
    assert catalogue.vhost_limits("v") == VhostLimits(max_connections=-1, max_queues=5)
    assert list(catalogue.parameters("v")) == [("vhost-limits", "limits")]
    assert catalogue.apply(ClearParameter("v", "vhost-limits", "limits")) is True
    assert catalogue.apply(ClearParameter("v", "vhost-limits", "limits")) is False
    assert catalogue.vhost_limits("v") == VhostLimits()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (SetParameter("v", "nope", "n", 1), "component nope not found"),
        (SetParameter("v", "policy", "n", {}), "policies may not be set using this method"),
        (
            SetParameter("v", "vhost-limits", "limits", {"max-queues": "x"}),
            'max-queues should be a number, actually was <<"x">>',
        ),
        (
            SetParameter("v", "vhost-limits", "limits", {"bogus": 1}),
            'Unrecognised terms [{<<"bogus">>,1}] in limits',
        ),
        (SetParameter("v", "vhost-limits", "limits", 5), "limits not a list 5"),
        (SetParameter("v", "vhost-limits", "other", {}), "vhost-limits must be named limits"),
        (ClearParameter("v", "policy", "n"), "policies may not be cleared using this method"),
    ],
)
def test_refused_parameters(catalogue: Catalogue, command: Command[bool], text: str) -> None:
    """§6.4: unknown component rejected, values validated."""
    assert catalogue.apply(command) == Refused(ReplyCode.PRECONDITION_FAILED, text)


def test_operator_policy_as_a_parameter(catalogue: Catalogue) -> None:
    """management §2.2: definitions carry operator policies among the parameters."""
    queue = declare_queue(catalogue, "q")
    value: Json = {"pattern": ".", "priority": 0, "definition": {"max-length": 3}}
    assert catalogue.apply(SetParameter("v", "operator_policy", "p", value)) is True
    assert catalogue.effective_policy(queue).definition == {"max-length": 3}
    assert catalogue.apply(ClearParameter("v", "operator_policy", "p")) is True
    assert catalogue.effective_policy(queue) is NO_POLICY
    assert isinstance(catalogue.apply(SetParameter("v", "operator_policy", "p", [])), Refused)


def test_global_parameters(catalogue: Catalogue) -> None:
    """§6.4: cluster_name."""
    assert catalogue.apply(SetGlobalParameter("cluster_name", "fluffle@a")) is True
    assert catalogue.apply(SetGlobalParameter("cluster_name", "fluffle@b")) is False
    assert catalogue.global_parameter("cluster_name") == "fluffle@b"
    assert catalogue.apply(ClearGlobalParameter("cluster_name")) is True
    assert catalogue.apply(ClearGlobalParameter("cluster_name")) is False
    assert catalogue.global_parameter("cluster_name") is None


# --- users and permissions ---------------------------------------------------------------------------------


def test_putting_a_user_again_keeps_limits_unless_given(catalogue: Catalogue) -> None:
    assert catalogue.apply(PutUser("u", "h", SHA256, ("management",))) is True
    assert catalogue.apply(SetUserLimits("u", UserLimits(max_channels=3))) is None
    assert catalogue.apply(PutUser("u", "h2", SHA256)) is False
    user = catalogue.user("u")
    assert user is not None
    assert (user.password_hash, user.tags, user.limits) == ("h2", (), UserLimits(max_channels=3))
    catalogue.apply(PutUser("u", "h2", SHA256, limits=UserLimits()))
    user = catalogue.user("u")
    assert user is not None
    assert user.limits == UserLimits()


def test_deleting_a_user_takes_its_permissions(catalogue: Catalogue) -> None:
    """§6.6: and says so for its connections."""
    for name in ("u", "other"):
        catalogue.apply(PutUser(name, "h", SHA256))
        catalogue.apply(SetPermission("v", name, ".", ".", "."))
        catalogue.apply(SetTopicPermission("v", name, "x", ".", "."))
    catalogue.take_events()
    assert catalogue.apply(DeleteUser("u")) is True
    assert catalogue.take_events() == [
        PermissionsChanged("v", "u", None),
        TopicPermissionsChanged("v", "u", "x", None),
        UserDeleted("u"),
    ]
    assert [p.user for p in catalogue.permissions()] == ["other"]
    assert [p.user for p in catalogue.topic_permissions()] == ["other"]
    assert catalogue.apply(DeleteUser("u")) is False


def test_permissions_need_user_vhost_and_valid_expressions(catalogue: Catalogue) -> None:
    catalogue.apply(PutUser("u", "h", SHA256))
    for command, code in (
        (SetPermission("nope", "u", "", "", ""), ReplyCode.NOT_FOUND),
        (SetPermission("v", "nope", "", "", ""), ReplyCode.NOT_FOUND),
        (SetPermission("v", "u", "", "(", ""), ReplyCode.PRECONDITION_FAILED),
        (SetTopicPermission("nope", "u", "x", "", ""), ReplyCode.NOT_FOUND),
        (SetTopicPermission("v", "u", "x", "", "("), ReplyCode.PRECONDITION_FAILED),
    ):
        result = catalogue.apply(command)
        assert isinstance(result, Refused)
        assert result.code is code
    assert isinstance(catalogue.apply(SetUserLimits("nope", UserLimits())), Refused)
    assert (list(catalogue.permissions()), list(catalogue.topic_permissions())) == ([], [])


def test_topic_permissions_are_cleared_singly_or_all(catalogue: Catalogue) -> None:
    catalogue.apply(PutUser("u", "h", SHA256))
    for exchange in "xyz":
        catalogue.apply(SetTopicPermission("v", "u", exchange, "", ""))
    assert catalogue.apply(ClearTopicPermission("v", "u", "x")) is True
    assert catalogue.apply(ClearTopicPermission("v", "u", "x")) is False
    assert [p.exchange for p in catalogue.topic_permissions()] == ["y", "z"]
    assert catalogue.apply(ClearTopicPermission("v", "u")) is True
    assert list(catalogue.topic_permissions()) == []


def test_seed() -> None:
    """§6.6: the default user with full permissions on the default vhost."""
    catalogue = Catalogue()
    for command in seed_commands(
        vhost="/",
        user="guest",
        password_hash="h",
        hashing_algorithm=SHA256,
        tags=("administrator",),
        permissions=(".*", ".*", ".*"),
    ):
        assert catalogue.apply(command) is True
    permission = catalogue.permission("/", "guest")
    assert permission is not None
    assert (permission.configure, permission.write, permission.read) == (".*", ".*", ".*")


# --- the state machine -------------------------------------------------------------------------------------


def test_version_follows_what_may_alter_routing_or_permissions(catalogue: Catalogue) -> None:
    catalogue.apply(PutUser("u", "h", SHA256))

    def bumps(command: Command[object]) -> bool:
        before = catalogue.version
        catalogue.apply(command)
        return catalogue.version > before

    assert bumps(DeclareQueue("v", "q", "1"))
    assert bumps(DeclareExchange("v", "x", "direct"))
    assert bumps(Bind("v", "x", "queue", "q", "k"))
    assert bumps(Unbind("v", "x", "queue", "q", "k"))
    assert bumps(SetPolicy("v", "p", "x", {"alternate-exchange": "y"}))
    assert bumps(ClearPolicy("v", "p"))
    assert bumps(SetPermission("v", "u", "", "", ""))
    assert bumps(SetTopicPermission("v", "u", "x", "", ""))
    assert bumps(ClearTopicPermission("v", "u"))
    assert bumps(ClearPermission("v", "u"))
    assert bumps(DeleteExchange("v", "x"))
    assert bumps(DeleteQueue("v", "q"))
    assert not bumps(DeleteQueue("v", "q"))
    assert not bumps(PutUser("u", "h2", SHA256))
    assert not bumps(SetGlobalParameter("cluster_name", "c"))
    assert bumps(DeleteUser("u"))
    assert bumps(DeleteVhost("v"))


def test_a_command_of_an_unknown_class_is_refused(catalogue: Catalogue) -> None:
    class Later(Command[None]):
        pass

    assert catalogue.apply(Later()) == Refused(ReplyCode.NOT_IMPLEMENTED, "unknown command Later")


def test_commands_for_a_missing_vhost_are_refused() -> None:
    refused = Refused(ReplyCode.NOT_ALLOWED, "vhost v not found")
    for command in (
        DeclareQueue("v", "q", "1"),
        DeleteQueue("v", "q"),
        DeclareExchange("v", "x", "direct"),
        DeleteExchange("v", "x"),
        Bind("v", "x", "queue", "q", ""),
        Unbind("v", "x", "queue", "q", ""),
    ):
        assert Catalogue().apply(command) == refused


vhosts = st.sampled_from(["v", "w"])
users = st.sampled_from(["u", "t"])
names = st.sampled_from(["a", "b", "c", ""])
kinds = st.sampled_from(["queue", "exchange"])
tables = st.sampled_from([{}, {"k": long(1)}, {"k": Field("A", [long(1)]), "x": Field("V", None)}])
patterns = st.sampled_from(["", ".*", "^a$", "(", "[[:alpha:]]"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
definitions = st.dictionaries(
    st.sampled_from(["max-length", "alternate-exchange", "ha-mode", "ha-params", "bogus"]),
    values | st.sampled_from([1, "all", "a"]),
)
anything: st.SearchStrategy[Command[object]] = st.one_of(
    st.builds(PutVhost, vhosts),
    st.builds(DeleteVhost, vhosts),
    st.builds(
        DeclareExchange,
        vhosts,
        names,
        st.sampled_from(["direct", "topic", "nope"]),
        auto_delete=st.booleans(),
    ),
    st.builds(DeleteExchange, vhosts, names, st.booleans()),
    st.builds(DeclareQueue, vhosts, names, st.text(max_size=1)),
    st.builds(DeleteQueue, vhosts, names, st.none() | st.text(max_size=1)),
    st.builds(Bind, vhosts, names, kinds, names, names, tables),
    st.builds(Bind, vhosts, names, kinds, names, names, tables),
    st.builds(Unbind, vhosts, names, kinds, names, names, tables),
    st.builds(PutUser, users, st.just("h"), st.just(SHA256)),
    st.builds(DeleteUser, users),
    st.builds(SetPermission, vhosts, users, patterns, patterns, patterns),
    st.builds(SetTopicPermission, vhosts, users, names, patterns, patterns),
    st.builds(SetPolicy, vhosts, names, patterns, definitions, operator=st.booleans()),
    st.builds(ClearPolicy, vhosts, names, st.booleans()),
    st.builds(
        SetParameter,
        vhosts,
        st.sampled_from(["vhost-limits", "operator_policy", "policy", "nope"]),
        st.sampled_from(["limits", "p"]),
        values | st.just({"max-queues": 1}),
    ),
    st.builds(ClearParameter, vhosts, st.just("vhost-limits"), st.just("limits")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(anything, max_size=40))
def test_any_commands_give_the_same_on_every_node_and_events_tell_the_whole_story(
    commands: list[Command[object]],
) -> None:
    """Never raises, is deterministic (commands travel pickled), and events tell of every binding."""
    one, other = Catalogue(), Catalogue()
    for vhost in ("v", "w"):
        for node in (one, other):
            node.apply(PutVhost(vhost))
    one.take_events()
    other.take_events()
    known: dict[str, list[Binding]] = {"v": [], "w": []}
    for command in commands:
        travelled: Command[object] = pickle.loads(pickle.dumps(command))
        assert repr(one.apply(command)) == repr(other.apply(travelled))
        events = one.take_events()
        assert repr(events) == repr(other.take_events())
        assert one.version == other.version
        for event in events:
            if isinstance(event, BindingAdded):
                known[event.binding.vhost].append(event.binding)
            elif isinstance(event, BindingRemoved):
                known[event.binding.vhost].remove(event.binding)
            elif isinstance(event, VhostDeleted):
                known[event.name].clear()
    for vhost, bindings in known.items():
        explicit = [binding for binding in one.bindings(vhost) if binding.source]
        assert sorted(map(repr, explicit)) == sorted(map(repr, bindings))
        for binding in explicit:
            assert binding in one.bindings_to(vhost, binding.destination_kind, binding.destination)
            assert one.exchange(vhost, binding.source) is not None
