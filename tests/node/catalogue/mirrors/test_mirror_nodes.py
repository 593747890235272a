"""Policies choose the nodes that get a copy (amqp-behaviour §9.2, §9.3; reliability §2.2)."""

from dataclasses import replace
from typing import Any

import pytest

from node.amqp.field_table import long
from node.catalogue.mirrors.mirror_nodes import (
    candidate_nodes,
    copies_wanted,
    first_nodes,
    nodes_wanted,
    suggested_nodes,
)
from node.catalogue.policy import QueueSettings
from node.catalogue.records import ClusterMember, MemberType, QueueRecord

QUEUE = QueueRecord("/", "q", "00ff", durable=True)
ALL = QueueSettings(ha_mode="all")


def exactly(count: int) -> QueueSettings:
    return QueueSettings(ha_mode="exactly", ha_params=count)


def nodes(names: str) -> QueueSettings:
    return QueueSettings(ha_mode="nodes", ha_params=tuple(names))


@pytest.mark.parametrize(
    ("settings", "master", "current", "synced", "candidates", "new_master", "mirrors", "others"),
    [
        (ALL, "a", "", "", "abc", "a", "bc", 0),
        (ALL, "a", "bc", "bc", "abc", "a", "bc", 0),
        (ALL, "a", "d", "d", "abc", "a", "bc", 0),
        # Add a node.
        (nodes("abc"), "a", "b", "b", "abcd", "a", "bc", 0),
        (nodes("abc"), "b", "a", "a", "abcd", "b", "ac", 0),
        # Add two nodes and drop one.
        (nodes("abc"), "a", "d", "d", "abcd", "a", "bc", 0),
        # Nodes that are not there are left out; without any the master stays, alone.
        (nodes("abf"), "a", "b", "b", "abcd", "a", "b", 0),
        (nodes("fgh"), "a", "b", "b", "abcd", "a", "", 0),
        # The master stays where it is not wanted while nothing that is wanted is synchronised.
        (nodes("bc"), "a", "", "", "abcd", "a", "bc", 0),
        (nodes("bc"), "a", "b", "", "abcd", "a", "bc", 0),
        # But then it moves, to a synchronised one.
        (nodes("bc"), "a", "b", "b", "abcd", "b", "c", 0),
        (nodes("cb"), "a", "b", "b", "abcd", "b", "c", 0),
        (exactly(2), "a", "", "", "abcd", "a", "", 1),
        (exactly(3), "a", "", "", "abcd", "a", "", 2),
        (exactly(2), "a", "c", "c", "abcd", "a", "c", 0),
        (exactly(3), "a", "c", "c", "abcd", "a", "c", 1),
        (exactly(2), "a", "cd", "cd", "abcd", "a", "c", 0),
        (exactly(3), "a", "cd", "cd", "abcd", "a", "cd", 0),
    ],
)
def test_dynamic_mirroring(
    settings: QueueSettings,
    master: str,
    current: str,
    synced: str,
    candidates: str,
    new_master: str,
    mirrors: str,
    others: int,
) -> None:
    """§2.2 dynamic_mirroring: the table. others: how many more mirrors, whichever."""
    found, chosen = suggested_nodes(settings, QUEUE, master, current, synced, candidates)
    assert found == new_master
    assert set(mirrors) <= set(chosen)
    rest = set(chosen) - set(mirrors)
    assert len(rest) == others
    assert rest <= set(candidates) - {master}
    assert len(set(chosen)) == len(chosen)


def test_nodes_policy_should_pick_master_from_its_params() -> None:
    """§2.2: never to an unsynchronised node, even if the policy names only that; nor to one that it does not name."""
    assert suggested_nodes(nodes("b"), QUEUE, "a", "bc", "c", "abc") == ("a", ("b",))
    assert suggested_nodes(nodes("b"), QUEUE, "a", "bc", "bc", "abc") == ("b", ())


def test_change_policy() -> None:
    """§2.2: none → all → nodes A, B → nodes A, C → cleared → nodes B, C, each step once the one before is done."""
    assert suggested_nodes(QueueSettings(), QUEUE, "a", "", "", "abc") == ("a", ())
    assert suggested_nodes(ALL, QUEUE, "a", "", "", "abc") == ("a", ("b", "c"))
    assert suggested_nodes(nodes("ab"), QUEUE, "a", "bc", "bc", "abc") == ("a", ("b",))
    assert suggested_nodes(nodes("ac"), QUEUE, "a", "b", "b", "abc") == ("a", ("c",))
    assert suggested_nodes(QueueSettings(), QUEUE, "a", "c", "c", "abc") == ("a", ())
    assert suggested_nodes(nodes("bc"), QUEUE, "a", "", "", "abc") == ("a", ("b", "c"))
    assert suggested_nodes(nodes("bc"), QUEUE, "a", "bc", "c", "abc") == ("c", ("b",)), (
        "only to a synchronised one"
    )
    assert suggested_nodes(nodes("bc"), QUEUE, "a", "bc", "bc", "abc") == ("b", ("c",))


def test_change_cluster() -> None:
    """§2.2: exactly 4 on three nodes; D and E join: one of them; it stops: the other."""
    master, mirrors = suggested_nodes(exactly(4), QUEUE, "a", "", "", "abc")
    assert (master, set(mirrors)) == ("a", {"b", "c"})
    _, mirrors = suggested_nodes(exactly(4), QUEUE, "a", "bc", "bc", "abcde")
    assert mirrors[:2] == ("b", "c")
    (added,) = mirrors[2:]
    (other,) = {"d", "e"} - {added}
    rest = "".join(sorted({"a", "b", "c", other}))
    assert suggested_nodes(exactly(4), QUEUE, "a", "bc", "bc", rest) == ("a", ("b", "c", other))


def test_of_too_many_mirrors_the_oldest_synchronised_ones_stay() -> None:
    """§9.3 exactly: the oldest; who has everything before who has not."""
    assert suggested_nodes(exactly(3), QUEUE, "a", "bcd", "bcd", "abcd") == ("a", ("b", "c"))
    assert suggested_nodes(exactly(2), QUEUE, "a", "bcd", "d", "abcd") == ("a", ("d",))
    assert suggested_nodes(exactly(1), QUEUE, "a", "bcd", "bcd", "abcd") == ("a", ())


def test_new_mirrors_spread_over_the_nodes() -> None:
    """§9.3 "in random order": by queue; everybody who asks about one queue gets the same answer."""
    chosen = set()
    for number in range(50):
        queue = QueueRecord("/", "q", f"{number:032x}")
        answer = suggested_nodes(exactly(2), queue, "a", "", "", "abcd")
        assert suggested_nodes(exactly(2), queue, "a", "", "", "dcba") == answer
        chosen.update(answer[1])
    assert chosen == {"b", "c", "d"}


def test_exclusive_queues_are_never_mirrored() -> None:
    """§9.3."""
    queue = QueueRecord("/", "q", "00ff", exclusive_owner="c1")
    for settings in (ALL, exactly(2), nodes("bc")):
        assert suggested_nodes(settings, queue, "a", "", "", "abc") == ("a", ())
        assert first_nodes(settings, queue, "a", "abc") == ("a", ())


def test_parameters_that_a_policy_cannot_have_mirror_nothing() -> None:
    for settings in (
        QueueSettings(ha_mode="exactly"),
        QueueSettings(ha_mode="nodes", ha_params=3),
        QueueSettings(ha_mode="some"),
    ):
        assert suggested_nodes(settings, QUEUE, "a", "b", "b", "abc") == ("a", ())


# --- quorum queues ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "copies"), [(None, 3), (1, 1), (2, 2), (5, 5), (9, 5)])
def test_quorum_queues(size: int | None, copies: int) -> None:
    """Whatever policies say: three copies, or as many as the argument says and there are nodes."""
    arguments = {} if size is None else {"x-quorum-initial-group-size": long(size)}
    queue = QueueRecord("/", "q", "00ff", durable=True, arguments=arguments, type="quorum")
    for settings in (QueueSettings(), ALL, nodes("e")):
        master, mirrors = first_nodes(settings, queue, "a", "abcde")
        assert master == "a"
        assert len(mirrors) == copies - 1
        assert suggested_nodes(settings, queue, "a", mirrors, mirrors, "abcde") == ("a", mirrors)


def test_a_quorum_queue_of_a_client_of_a_ram_node() -> None:
    """The first home of a quorum queue is a disc node."""
    queue = QueueRecord("/", "q", "00ff", durable=True, type="quorum")
    assert first_nodes(QueueSettings(), queue, "r", "ab") == ("a", ("b",))


# --- a new queue ------------------------------------------------------------------------------------------


def test_first_nodes() -> None:
    """§9.2 "ha-mode nodes restricts candidates": the master is on one of them, if one is there."""
    assert first_nodes(QueueSettings(), QUEUE, "a", "abc") == ("a", ())
    assert first_nodes(ALL, QUEUE, "b", "abc") == ("b", ("a", "c"))
    assert first_nodes(exactly(1), QUEUE, "b", "abc") == ("b", ())
    assert first_nodes(nodes("cb"), QUEUE, "b", "abc") == ("b", ("c",))
    assert first_nodes(nodes("xcb"), QUEUE, "a", "abc") == ("c", ("b",))
    assert first_nodes(nodes("xy"), QUEUE, "a", "abc") == ("a", ())


def member(
    name: str, type_: MemberType = "disc", *, is_up: bool = True, is_draining: bool = False
) -> ClusterMember:
    return ClusterMember(name, "", "", type_, 1, is_up, is_draining)


def test_candidates() -> None:
    """Up, no witness, not in maintenance mode unless it has a copy already; disc nodes for a quorum queue."""
    members = [
        member("f", is_up=False),
        member("e", "witness"),
        member("d", is_draining=True),
        member("c", is_draining=True),
        member("b", "ram"),
        member("a"),
    ]
    quorum = QueueRecord("/", "q", "00ff", durable=True, type="quorum")
    assert candidate_nodes(members, QUEUE) == ("a", "b")
    assert candidate_nodes(members, QUEUE, "cf") == ("a", "b", "c")
    assert candidate_nodes(members, quorum) == ("a",)
    assert candidate_nodes([], QUEUE) == ()


def test_all_in_maintenance_mode() -> None:
    """§2.2 queue_master_location: drained nodes are avoided unless all are drained."""
    drained = [member("a", is_draining=True), member("b", is_draining=True)]
    assert candidate_nodes(drained, QUEUE) == ("a", "b")


# --- plans ---


@pytest.mark.parametrize(
    ("settings", "placement", "current", "candidates", "mirrors"),
    [
        (exactly(2), "ac", "bc", "abcd", "c"),
        (exactly(2), "abc", "bc", "abcd", "bc"),
        (exactly(2), "abc", "b", "abcd", "bc"),
        (exactly(3), "ac", "bc", "abcd", "cb"),
        # A node of the placement is down: what the policy wants is there all the same.
        (exactly(2), "ac", "b", "abd", "b"),
        (exactly(2), "acd", "b", "abd", "d"),
        # A policy that says which nodes is not to be talked out of it.
        (ALL, "ac", "bcd", "abcd", "bcd"),
        (nodes("ab"), "ac", "b", "abcd", "b"),
    ],
)
def test_a_placement(
    settings: QueueSettings, placement: str, current: str, candidates: str, mirrors: str
) -> None:
    """spark §3.4: a plan says which nodes, where a policy says how many."""
    record = replace(QUEUE, placement=tuple(placement))
    found = suggested_nodes(settings, record, "a", list(current), list(current), list(candidates))
    assert found == ("a", tuple(mirrors))


def test_a_placement_of_a_quorum_queue() -> None:
    record = replace(QUEUE, type="quorum", placement=tuple("abcd"))
    assert suggested_nodes(QueueSettings(), record, "a", list("bc"), list("bc"), list("abcd")) == (
        "a",
        ("b", "c", "d"),
    )


_HOSTS = [
    member("a"),
    replace(member("b"), is_up=False),
    replace(member("c"), type="ram", is_draining=True),
    replace(member("w"), type="witness"),
]


@pytest.mark.parametrize(
    ("settings", "fields", "copies"),
    [
        (QueueSettings(), {}, 1),
        (ALL, {}, 3),
        (ALL, {"exclusive_owner": "c1"}, 1),
        (exactly(0), {}, 1),
        (exactly(2), {}, 2),
        (exactly(9), {}, 3),
        (nodes("ab"), {}, 2),
        (nodes("axw"), {}, 1),
        (nodes("xy"), {}, 1),
        (QueueSettings(), {"type": "quorum"}, 2),
        (QueueSettings(), {"type": "quorum", "arguments": {"x-quorum-initial-group-size": long(1)}}, 1),
    ],
)
def test_how_many_copies_are_wanted(settings: QueueSettings, fields: dict[str, Any], copies: int) -> None:
    """If all nodes were up; a witness has none."""
    assert copies_wanted(settings, replace(QUEUE, **fields), _HOSTS) == copies
    assert copies_wanted(settings, replace(QUEUE, **fields), []) == 1


@pytest.mark.parametrize(
    ("settings", "fields", "names"),
    [
        (QueueSettings(), {}, ""),
        (ALL, {}, "abc"),
        (ALL, {"exclusive_owner": "c1"}, ""),
        (exactly(2), {}, ""),
        (exactly(3), {}, "abc"),
        (nodes("bax"), {}, "ab"),
        (nodes("xy"), {}, ""),
        (QueueSettings(), {"type": "quorum"}, "ab"),
        (QueueSettings(), {"type": "quorum", "arguments": {"x-quorum-initial-group-size": long(1)}}, ""),
    ],
)
def test_on_which_nodes_copies_are_wanted(
    settings: QueueSettings, fields: dict[str, Any], names: str
) -> None:
    """By name where a policy leaves no choice, be they up or not."""
    assert nodes_wanted(settings, replace(QUEUE, **fields), _HOSTS) == tuple(names)
