"""Each shovel has one node that runs it, and each node follows the catalogue."""

from collections.abc import Iterable, Mapping

from node.catalogue import events
from node.catalogue.records import ClusterMember, Json, Vhost
from node.shovels.definition import ShovelKey
from node.shovels.shovels import Shovels, owner_of
from tests.kit.shovel_world import ShovelScene

VALUE: Json = {"src-uri": "amqp://a", "dest-uri": "amqp://b", "src-queue": "q", "dest-queue": "r"}
SHOVEL = "shovel"


def _member(name: str, **facts: object) -> ClusterMember:
    member = ClusterMember(name, f"{name}:1", name, "disc", is_up=True)  # type: ignore[arg-type]
    from dataclasses import replace

    return replace(member, **facts)  # type: ignore[arg-type]


def _members(*members: ClusterMember) -> dict[str, ClusterMember]:
    return {member.name: member for member in members}


class _Facts:
    def __init__(self) -> None:
        self.members: Mapping[str, ClusterMember] = {}
        self.table: dict[tuple[str, str], Json] = {}

    def vhosts(self) -> Iterable[Vhost]:
        return [Vhost("/")]

    def parameters(self, vhost: str) -> Mapping[tuple[str, str], Json]:
        return self.table if vhost == "/" else {}


class _Host(ShovelScene):
    node = "n1"


def _shovels() -> tuple[_Facts, _Host, Shovels]:
    facts, host = _Facts(), _Host()
    return facts, host, Shovels(facts, host)


def _set(facts: _Facts, shovels: Shovels, host: _Host, value: "Json | None", name: str = "s") -> None:
    if value is None:
        del facts.table[SHOVEL, name]
    else:
        facts.table[SHOVEL, name] = value
    shovels.changed(events.ParameterChanged("/", SHOVEL, name))
    host.settle()


def test_a_shovel_begins_changes_and_ends_with_its_parameter() -> None:
    facts, host, shovels = _shovels()
    shovels.begin()
    _set(facts, shovels, host, VALUE)
    (life,) = shovels
    assert life.status.state == "running"
    _set(facts, shovels, host, VALUE)
    assert list(shovels) == [life]
    assert isinstance(VALUE, dict)
    _set(facts, shovels, host, {**VALUE, "dest-queue": "other"})
    (changed,) = shovels
    assert changed is not life
    assert life.is_ended
    _set(facts, shovels, host, None)
    assert list(shovels) == []
    assert shovels.is_idle


def test_shovels_that_were_set_before_begin_with_the_node() -> None:
    facts, host, shovels = _shovels()
    facts.table[SHOVEL, "s"] = VALUE
    facts.table["federation-upstream", "s"] = {}
    shovels.begin()
    host.settle()
    assert [life.definition.key for life in shovels] == [ShovelKey("/", "s")]
    shovels.stop()
    host.settle()
    assert shovels.is_idle


def test_shovels_are_spread_and_only_those_of_a_lost_node_move() -> None:
    keys = [ShovelKey("/", f"shovel {number}") for number in range(300)]
    all_up = _members(*(_member(name) for name in ("n1", "n2", "n3")))
    before = {key: owner_of(all_up, key, "n1") for key in keys}
    for node in all_up:
        assert 60 < list(before.values()).count(node) < 140
    without = all_up | _members(_member("n2", is_up=False))
    after = {key: owner_of(without, key, "n1") for key in keys}
    assert all(after[key] == before[key] for key in keys if before[key] != "n2")
    assert "n2" not in after.values()


def test_a_witness_or_a_draining_node_runs_none_if_another_can() -> None:
    key = ShovelKey("/", "s")
    members = _members(_member("n1", type="witness"), _member("n2", is_draining=True), _member("n3"))
    assert owner_of(members, key, "n1") == "n3"
    assert owner_of(members | _members(_member("n3", is_up=False)), key, "n1") == "n2"
    assert owner_of(_members(_member("n1", is_up=False)), key, "n1") is None
    assert owner_of({}, key, "here") == "here"


def test_a_shovel_of_a_lost_node_begins_here() -> None:
    facts, host, shovels = _shovels()
    lost = next(name for name in map(str, range(100)) if _runs_elsewhere(name))
    facts.members = _members(_member("n1"), _member("n2"))
    facts.table[SHOVEL, lost] = VALUE
    shovels.begin()
    assert list(shovels) == []
    gone = _member("n2", is_up=False)
    facts.members = _members(_member("n1"), gone)
    shovels.changed(events.MemberDown(gone))
    host.settle()
    assert [life.status.state for life in shovels] == ["running"]
    facts.members = _members(_member("n1"), _member("n2"))
    shovels.changed(events.MemberUp(_member("n2")))
    host.settle()
    assert shovels.is_idle


def _runs_elsewhere(name: str) -> bool:
    return owner_of(_members(_member("n1"), _member("n2")), ShovelKey("/", name), "n1") == "n2"


def test_arguments_that_are_no_table_start_nothing() -> None:
    facts, host, shovels = _shovels()
    assert isinstance(VALUE, dict)
    _set(facts, shovels, host, {**VALUE, "src-consumer-args": {"x": None}})
    assert list(shovels) == []
    assert host.lines == [
        ("error", "Shovel 's' in virtual host '/' cannot have its arguments: null_not_allowed")
    ]
