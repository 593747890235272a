"""Random commands for property tests, and the part of a catalogue that must be durable."""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from hypothesis import strategies as st

from node.amqp.field_table import Field, Table, array, longstr, table, timestamp
from node.catalogue import commands
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
    DisablePlugin,
    EnablePlugin,
    PutUser,
    PutVhost,
    SetGlobalParameter,
    SetParameter,
    SetPermission,
    SetPolicy,
    SetTopicPermission,
    SetUserLimits,
    Unbind,
)
from node.catalogue.passwords import SHA256
from node.catalogue.records import Json, JsonObject, UserLimits

# --- any values at all, by the annotations of the fields ---------------------------------------------------

COMMANDS = [
    cls
    for cls in vars(commands).values()
    if isinstance(cls, type) and issubclass(cls, Command) and cls is not Command
]

_texts = st.text(max_size=5) | st.text(alphabet='a\n"\\\u2028é\U0001f407\udc80\udcff', max_size=5)
_floats = st.floats(allow_nan=False)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | _floats | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)


def _finite(width: int) -> st.SearchStrategy[float]:
    return st.floats(allow_nan=False, allow_infinity=False, width=width)


_fields = st.recursive(
    st.one_of(
        st.binary(max_size=5).map(longstr),
        st.builds(Field, st.just("x"), st.binary(max_size=5)),
        st.integers(0, 2**64 - 1).map(timestamp),
        st.builds(Field, st.just("b"), st.integers(-128, 127)),
        st.builds(Field, st.just("B"), st.integers(0, 255)),
        st.builds(Field, st.just("s"), st.integers(-(2**15), 2**15 - 1)),
        st.builds(Field, st.just("u"), st.integers(0, 2**16 - 1)),
        st.builds(Field, st.just("I"), st.integers(-(2**31), 2**31 - 1)),
        st.builds(Field, st.just("i"), st.integers(0, 2**32 - 1)),
        st.builds(Field, st.just("l"), st.integers(-(2**63), 2**63 - 1)),
        st.builds(Field, st.just("f"), _finite(32)),
        st.builds(Field, st.just("d"), _finite(64)),
        st.builds(Field, st.just("t"), st.booleans()),
        st.builds(Field, st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
        st.just(Field("V", None)),
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(array)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(table)
    ),
    max_leaves=5,
)


def _value(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation == Json:
        return _json
    if annotation == JsonObject:
        return st.dictionaries(_texts, _json, max_size=3)
    if annotation == Table:
        return st.dictionaries(st.text(max_size=5), _fields, max_size=3)
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if isinstance(annotation, UnionType):
        return st.one_of(*map(_value, get_args(annotation)))
    if get_origin(annotation) is tuple:
        kinds = get_args(annotation)
        if kinds[-1] is Ellipsis:
            return st.lists(_value(kinds[0]), max_size=3).map(tuple)
        return st.tuples(*map(_value, kinds))
    if is_dataclass(annotation):
        return any_of(annotation)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: _texts,
        bool: st.booleans(),
        int: st.integers(),
        float: _floats,
        type(None): st.none(),
    }
    return plain[annotation]


def any_of(cls: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for objects of one class, such as a command, with all values that its annotations allow."""
    return st.builds(cls, **{field.name: _value(field.type) for field in fields(cls)})


# --- commands that meet each other -------------------------------------------------------------------------

_vhosts = st.sampled_from(["v", "v", "v", "w"])
_users = st.sampled_from(["u", "t"])
_names = st.sampled_from(["a", "b", "c", "d"])
_sources = _names | st.just("amq.direct")
_kinds = st.sampled_from(["queue", "exchange"])
_tables = st.sampled_from([{}, {}, {"k": Field("I", 1)}])
_patterns = st.sampled_from(["", ".*", "^a", "("])
_definitions = st.sampled_from([{"max-length": 1}, {"ha-mode": "all"}, {"max-length": 2, "expires": 9}, {}])
_keys = st.sampled_from(["", "k"])
_plugins = st.sampled_from(["one", "two"])
_owners = st.sampled_from([None, None, None, "owner"])

_topology: st.SearchStrategy[Command[Any]] = st.one_of(
    st.builds(
        DeclareExchange,
        _vhosts,
        _names,
        st.sampled_from(["direct", "topic", "x-one", "x-two", "nope"]),
        durable=st.booleans(),
        auto_delete=st.booleans(),
        internal=st.booleans(),
        arguments=_tables,
    ),
    st.builds(DeleteExchange, _vhosts, _names, st.booleans()),
    st.builds(
        DeclareQueue,
        _vhosts,
        _names,
        st.sampled_from(["1", "2"]),
        durable=st.booleans(),
        auto_delete=st.booleans(),
        exclusive_owner=_owners,
        arguments=_tables,
        type=st.sampled_from(["classic", "quorum"]),
    ),
    st.builds(DeleteQueue, _vhosts, _names, st.none() | st.just("1")),
    st.builds(Bind, _vhosts, _sources, _kinds, _names, _keys, _tables),
    st.builds(Bind, _vhosts, _sources, _kinds, _names, _keys, _tables),
    st.builds(Bind, _vhosts, _sources, _kinds, _names, _keys, _tables),
    st.builds(Unbind, _vhosts, _sources, _kinds, _names, _keys, _tables),
)
_operators: st.SearchStrategy[Command[Any]] = st.one_of(
    st.builds(PutVhost, _vhosts, st.text(max_size=1), default_queue_type=st.sampled_from(["", "quorum"])),
    st.builds(DeleteVhost, _vhosts),
    st.builds(
        PutUser, _users, st.text(max_size=1), st.just(SHA256), limits=st.none() | st.just(UserLimits(1))
    ),
    st.builds(SetUserLimits, _users, st.builds(UserLimits, st.none() | st.integers(0, 1))),
    st.builds(DeleteUser, _users),
    st.builds(SetPermission, _vhosts, _users, _patterns, _patterns, _patterns),
    st.builds(ClearPermission, _vhosts, _users),
    st.builds(SetTopicPermission, _vhosts, _users, _names, _patterns, _patterns),
    st.builds(ClearTopicPermission, _vhosts, _users, st.none() | _names),
    st.builds(
        SetPolicy,
        _vhosts,
        _names,
        _patterns,
        _definitions,
        st.integers(0, 1),
        st.sampled_from(["all", "queues", "exchanges"]),
        st.booleans(),
    ),
    st.builds(ClearPolicy, _vhosts, _names, st.booleans()),
    st.builds(
        SetParameter,
        _vhosts,
        st.just("vhost-limits"),
        st.just("limits"),
        st.sampled_from([{"max-queues": 1}, {"max-queues": 3}, {"max-connections": 1}]),
    ),
    st.builds(
        SetParameter,
        _vhosts,
        st.just("operator_policy"),
        _names,
        st.just({"pattern": "^a", "definition": {"expires": 5}, "priority": 3}),
    ),
    st.builds(
        ClearParameter,
        _vhosts,
        st.sampled_from(["vhost-limits", "operator_policy", "policy"]),
        st.sampled_from(["limits", "a"]),
    ),
    st.builds(SetGlobalParameter, _names, _json),
    st.builds(ClearGlobalParameter, _names),
    st.builds(EnablePlugin, _plugins, st.sampled_from([(), ("x-one",), ("x-two",), ("x-one", "x-two")])),
    st.builds(DisablePlugin, _plugins),
)

BEGINNING: list[Command[Any]] = [PutVhost("v"), PutVhost("w"), PutUser("u", "hash", SHA256)]
"""Without these nearly all commands would be refused."""

_often = st.sampled_from([True, True, False])
_dense: st.SearchStrategy[Command[Any]] = st.one_of(
    st.builds(DeclareExchange, st.just("v"), _names, st.just("fanout"), durable=_often, auto_delete=_often),
    st.builds(DeleteExchange, st.just("v"), _names, st.booleans()),
    st.builds(
        DeclareQueue, st.just("v"), _names, st.just("1"), durable=st.booleans(), exclusive_owner=_owners
    ),
    st.builds(DeleteQueue, st.just("v"), _names),
    st.builds(Bind, st.just("v"), _names, _kinds, _names, st.just("")),
    st.builds(Bind, st.just("v"), _names, _kinds, _names, st.just("")),
    st.builds(Unbind, st.just("v"), _names, _kinds, _names, st.just("")),
)

topologies = st.lists(_dense, min_size=20, max_size=80)
"""Exchanges, queues and bindings of few names, so that much hangs on transient bindings."""

histories = st.lists(_topology | _topology | _operators, max_size=60)
"""Everything."""


def durable_part(catalogue: Catalogue) -> object:
    """Return the part of a catalogue that must survive a restart, as a value that can be compared."""
    return {
        "users": _sorted(catalogue.users()),
        "permissions": _sorted(catalogue.permissions()),
        "topic permissions": _sorted(catalogue.topic_permissions()),
        "plug-ins": _sorted(catalogue.plugins.by_name.items()),
        "global parameters": _sorted(catalogue.global_parameters().items()),
        "vhosts": _sorted(catalogue.vhosts()),
        "contents": [_durable_in(catalogue, vhost.name) for vhost in _ordered(catalogue.vhosts())],
    }


def _durable_in(catalogue: Catalogue, vhost: str) -> object:
    exchanges = [each for each in catalogue.exchanges(vhost) if each.durable]
    queues = [each for each in catalogue.queues(vhost) if each.durable and not each.exclusive_owner]
    ends = {("exchange", each.name) for each in exchanges} | {("queue", each.name) for each in queues}
    bindings = [
        each
        for each in catalogue.bindings(vhost)
        if ("exchange", each.source) in ends and (each.destination_kind, each.destination) in ends
    ]
    return [
        _sorted(exchanges),
        _sorted(queues),
        _sorted(bindings),
        _sorted(catalogue.policies(vhost)),
        _sorted(catalogue.policies(vhost, operator=True)),
        _sorted(catalogue.parameters(vhost).items()),
        [repr(catalogue.effective_policy(each)) for each in _ordered([*exchanges, *queues])],
    ]


def _ordered(records: Any) -> list[Any]:
    return sorted(records, key=repr)


def _sorted(records: Any) -> list[str]:
    return sorted(map(repr, records))


def build(history: list[Command[Any]]) -> Catalogue:
    """Return a catalogue to which these commands were applied."""
    catalogue = Catalogue()
    for command in history:
        catalogue.apply(command)
        catalogue.take_events()
    return catalogue
