"""reliability §2.5: forming a cluster and changing it by `rabbitmqctl` or `fluffle ctl`, as an operator does.

Every test has nodes of its own that know nothing of each other yet. Where RabbitMQ's suite has two nodes, there are
three here: two disk nodes are no majority when one is away (row W).
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from node.amqp.methods import QueueBind, QueueDeclare
from tests.conformance.cluster_story import drain, publish
from tests.conformance.entities import is_routed, queue_exists
from tests.kit.amqp_client import Channel, Connection
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, Ctl, is_rabbitmq, start_nodes

pytestmark = pytest.mark.slow

On = Callable[..., Channel]

USAGE = 64
DATA = 65
UNAVAILABLE = 69
SOFTWARE = 70


@pytest.fixture
def nodes() -> Iterator[list[ClusterNode]]:
    """Three nodes, each on its own."""
    cluster = start_nodes(IGNORE)
    yield cluster.nodes
    cluster.stop()


@pytest.fixture
def joined() -> Iterator[list[ClusterNode]]:
    """Three disk nodes of a cluster that the test may change."""
    cluster = start_nodes(IGNORE)
    for node in cluster.nodes[1:]:
        join(node, cluster[0])
    cluster.await_members()
    yield cluster.nodes
    cluster.stop()


IGNORE = {"cluster_partition_handling": "ignore"} if is_rabbitmq() else {}
"""RabbitMQ's nodes run alone with this, where a test takes away two of three and asks the third."""


def do(node: ClusterNode, *words: str) -> Ctl:
    """A command that works."""
    done = node.ctl(*words)
    assert done.code == 0, f"{words} on {node.name}: {done}"
    return done


def refused(node: ClusterNode, code: int, *words: str) -> str:
    """A command that is refused with this exit code; gives what it says."""
    done = node.ctl(*words)
    assert done.code == code, f"{words} on {node.name}: {done}"
    return done.errors


def join(node: ClusterNode, other: ClusterNode, *options: str) -> None:
    """stop_app, join_cluster, start_app."""
    do(node, "stop_app")
    do(node, "join_cluster", *options, other.name)
    do(node, "start_app")


def status(node: ClusterNode) -> dict[str, Any]:
    """cluster_status as JSON."""
    shown: dict[str, Any] = json.loads(do(node, "cluster_status", "--formatter", "json").output)
    return shown


def members(node: ClusterNode) -> tuple[list[str], list[str], list[str]]:
    """The short names of disk nodes, RAM nodes and running nodes, each "123" where n1, n2 and n3 are meant."""
    shown = status(node)
    keys = ("disk_nodes", "ram_nodes", "running_nodes")
    disk, ram, running = (sorted(name[1] for name in shown[key]) for key in keys)
    return disk, ram, running


def expect_members(disk: str, ram: str, running: str, *seen_by: ClusterNode) -> None:
    """These nodes see it so, soon."""
    expected = list(disk), list(ram), list(running)

    def is_so() -> bool:
        return all(members(node) == expected for node in seen_by)

    wait_until(is_so, f"{[node.name for node in seen_by]} see {expected}", 10)


def test_join_and_part_cluster(nodes: list[ClusterNode]) -> None:
    """join_and_part_cluster: join, join as RAM node, leave by reset."""
    a, b, c = nodes
    expect_members("1", "", "1", a)
    join(b, a)
    expect_members("12", "", "12", a, b)
    join(c, a, "--ram")
    expect_members("12", "3", "123", a, b, c)
    do(c, "stop_app")
    do(c, "reset")
    do(c, "start_app")
    expect_members("12", "", "12", a, b)
    expect_members("3", "", "3", c)
    do(b, "stop_app")
    do(b, "reset")
    do(b, "start_app")
    expect_members("1", "", "1", a)
    expect_members("2", "", "2", b)


def test_join_with_data(nodes: list[ClusterNode], on: On) -> None:
    """join_cluster takes the cluster's metadata and leaves the node's own behind."""
    a, b, _ = nodes
    on(a).declare("of-a", durable=True)
    publish(on(a), "of-a", b"kept")
    on(b).declare("of-b", durable=True)
    join(b, a)
    channel = on(b)
    assert not queue_exists(channel, "of-b")
    assert [content.body for content in drain(channel, "of-a")] == [b"kept"]
    assert a.home("of-a") == a.name


def test_join_cluster_bad_operations(nodes: list[ClusterNode]) -> None:
    """join_cluster_bad_operations: what is refused, with which exit code, and that it changes nothing."""
    a, b, c = nodes
    assert "stop_app" in refused(b, USAGE, "join_cluster", a.name)  # runs
    assert "stop_app" in refused(b, USAGE, "change_cluster_node_type", "ram")
    assert "stop_app" in refused(b, USAGE, "reset")
    assert "stop_app" in refused(b, USAGE, "force_reset")
    do(b, "stop_app")
    refused(b, UNAVAILABLE, "change_cluster_node_type", "ram")  # alone
    refused(b, UNAVAILABLE, "join_cluster", "nobody@localhost")
    assert "itself" in refused(b, SOFTWARE, "join_cluster", b.name)
    refused(b, DATA, "change_cluster_node_type", "nonsense")
    refused(b, USAGE, "join_cluster")
    refused(a, USAGE, "set_cluster_name")
    refused(a, DATA, "await_online_nodes", "x")
    refused(a, USAGE, "no_such_command")
    do(b, "start_app")
    expect_members("1", "", "1", a)
    expect_members("2", "", "2", b)
    expect_members("3", "", "3", c)


def test_join_again(nodes: list[ClusterNode]) -> None:
    """join_cluster of a member says so, and is no error."""
    a, b, _ = nodes
    do(b, "stop_app")
    do(b, "join_cluster", a.name)
    assert "already a member" in do(b, "join_cluster", a.name).output
    do(b, "start_app")
    expect_members("12", "", "12", a, b)


def test_join_to_start_interval(nodes: list[ClusterNode]) -> None:
    """join_to_start_interval: the others see the join before the start."""
    a, b, c = nodes
    join(c, a)
    do(b, "stop_app")
    do(b, "join_cluster", a.name)
    expect_members("123", "", "13", a, c)
    do(b, "start_app")
    expect_members("123", "", "123", a, b, c)


def test_last_disc_node(nodes: list[ClusterNode]) -> None:
    """join_cluster_bad_operations: the only disk node cannot leave or change while a RAM node needs it."""
    a, b, _ = nodes
    join(b, a, "--ram")
    expect_members("1", "2", "12", a, b)
    do(b, "stop_app")
    do(a, "stop_app")
    refused(a, UNAVAILABLE, "reset")
    refused(a, UNAVAILABLE, "change_cluster_node_type", "ram")
    do(a, "start_app")
    do(b, "start_app")
    expect_members("1", "2", "12", a, b)


def test_ram_node_cannot_start_first(nodes: list[ClusterNode]) -> None:
    """RAM rules: it has no metadata of its own, so it needs a disk node that is there; and cannot be alone."""
    a, b, _ = nodes
    join(b, a, "--ram")
    do(b, "stop_app")
    a.terminate()
    refused(b, UNAVAILABLE, "start_app")
    refused(b, UNAVAILABLE, "reset")
    a.launch()
    a.await_ready()
    do(b, "start_app")
    expect_members("1", "2", "12", a, b)


def test_ram_node_keeps_its_messages(nodes: list[ClusterNode], on: On) -> None:
    """The contents of a RAM node's queues go to its disk, as RabbitMQ's do."""
    a, b, _ = nodes
    join(b, a, "--ram")
    on(b).declare("q", durable=True)
    publish(on(a), "q", b"1", b"2")
    b.terminate()
    b.launch()
    b.await_ready()
    assert [content.body for content in drain(on(a), "q")] == [b"1", b"2"]
    expect_members("1", "2", "12", a, b)


def test_forget_cluster_node(joined: list[ClusterNode], on: On) -> None:
    """forget_cluster_node: who cannot be forgotten; the forgotten one cannot start until it is reset."""
    a, b, c = joined
    refused(a, UNAVAILABLE, "forget_cluster_node", "nobody@localhost")
    assert "stop_app" in refused(a, UNAVAILABLE, "forget_cluster_node", b.name)
    assert "stop_app" in refused(a, UNAVAILABLE, "forget_cluster_node", a.name)
    refused(a, USAGE, "forget_cluster_node", "--offline", b.name)  # this node runs
    do(b, "stop_app")
    do(a, "forget_cluster_node", b.name)
    expect_members("13", "", "13", a, c)
    refused(b, UNAVAILABLE, "start_app")
    do(b, "stop_app")
    do(b, "reset")
    do(b, "start_app")
    expect_members("2", "", "2", b)
    join(b, c)
    expect_members("123", "", "123", a, b, c)


def test_forget_removes_things(joined: list[ClusterNode], on: On) -> None:
    """forget_removes_things, amqp-behaviour §9.1: queues that lived there go with their bindings; the name is free."""
    a, b, c = joined
    channel = on(b)
    channel.declare("q", durable=True)
    channel.call(QueueBind, queue="q", exchange="amq.direct", routing_key="key")
    publish(channel, "q", b"lost")
    b.kill()
    a_channel = on(a)
    Cluster([a, b, c]).await_members(a.name, c.name, seen_by=[a, c])
    do(a, "forget_cluster_node", b.name)
    for node in (a, c):
        assert not queue_exists(on(node), "q")
        assert not is_routed(on(node), "amq.direct", "key")
    assert a_channel.call(QueueDeclare, queue="q", durable=True).message_count == 0
    assert c.home("q") == a.name


def test_reset_removes_things(joined: list[ClusterNode], on: On) -> None:
    """reset_removes_things: a node that leaves takes its queues along, and loses them."""
    a, b, c = joined
    on(b).declare("q", durable=True)
    publish(on(a), "q", b"lost")
    do(b, "stop_app")
    do(b, "reset")
    for node in (a, c):
        assert not queue_exists(on(node), "q")
    expect_members("13", "", "13", a, c)
    do(b, "start_app")
    assert not queue_exists(on(b), "q")


def test_forget_offline_removes_things(joined: list[ClusterNode], on: On) -> None:
    """forget_offline_removes_things: on the files of a node that is stopped, when the others are lost for good."""
    a, b, c = joined
    on(b).declare("of-b", durable=True)
    channel = on(a)
    channel.declare("of-a", durable=True)
    publish(channel, "of-a", b"kept")
    b.kill()
    c.kill()
    a.terminate() if a.is_alive else None
    do(a, "forget_cluster_node", "--offline", b.name)
    do(a, "forget_cluster_node", "--offline", c.name)
    a.launch()
    a.await_ready()
    expect_members("1", "", "1", a)
    channel = on(a)
    assert not queue_exists(channel, "of-b")
    assert [content.body for content in drain(channel, "of-a")] == [b"kept"]
    assert channel.call(QueueDeclare, queue="of-b", durable=True).message_count == 0


def test_change_cluster_node_type(nodes: list[ClusterNode]) -> None:
    """change_cluster_node_type: there and back, and what is so already."""
    a, b, c = nodes
    join(b, a)
    join(c, a, "--ram")
    do(c, "stop_app")
    do(c, "change_cluster_node_type", "disc")
    expect_members("123", "", "12", a, b)
    do(c, "change_cluster_node_type", "disc")
    do(c, "start_app")
    expect_members("123", "", "123", a, b, c)
    do(b, "stop_app")
    do(b, "change_cluster_node_type", "ram")
    do(b, "start_app")
    expect_members("13", "2", "123", a, b, c)


def test_changes_reach_a_node_that_was_away(joined: list[ClusterNode]) -> None:
    """change_cluster_when_node_offline: another one left meanwhile."""
    a, b, c = joined
    do(c, "stop_app")
    do(c, "reset")  # three become two
    do(c, "join_cluster", "--ram", a.name)
    do(c, "start_app")
    expect_members("12", "3", "123", a, b, c)
    do(c, "stop_app")
    do(a, "set_cluster_name", "renamed meanwhile")
    do(c, "start_app")
    assert status(c)["cluster_name"] == "renamed meanwhile"


def test_force_reset(joined: list[ClusterNode]) -> None:
    """force_reset_node: the others still think that it is a member until they forget it."""
    a, b, c = joined
    do(b, "stop_app")
    do(b, "force_reset")
    do(b, "start_app")
    expect_members("2", "", "2", b)
    assert members(a)[0] == ["1", "2", "3"]
    do(b, "stop_app")
    refused(b, UNAVAILABLE, "join_cluster", a.name)
    do(a, "forget_cluster_node", b.name)
    do(b, "join_cluster", a.name)
    do(b, "start_app")
    expect_members("123", "", "123", a, b, c)


def test_status_commands(joined: list[ClusterNode]) -> None:
    """cluster_status, set_cluster_name, await_online_nodes, await_startup, ping, from any node; management §3."""
    a, b, c = joined
    for node in joined:
        assert node.ctl("ping").output.rstrip().endswith("Ping succeeded")
        assert do(node, "await_startup").output == ""
        do(node, "await_online_nodes", "3")
    done = c.ctl("await_online_nodes", "4", "-t", "2")
    assert done.code == SOFTWARE
    assert f"Not enough nodes joined {c.name}'s cluster" in done.errors
    do(b, "set_cluster_name", "three hares")
    shown = status(a)
    assert shown["cluster_name"] == "three hares"
    keys = {"alarms", "cluster_name", "disk_nodes", "listeners", "maintenance_status", "partitions"}
    assert keys | {"ram_nodes", "running_nodes", "versions"} <= set(shown)
    assert shown["partitions"] == {}
    assert {each["port"] for each in shown["listeners"][b.name] if each["protocol"] == "amqp"} == {b.port}
    text = do(a, "cluster_status").output
    for line in (
        "three hares",
        "Disk Nodes",
        "Running Nodes",
        "Network Partitions",
        *(n.name for n in joined),
    ):
        assert line in text
    do(c, "stop_app")
    assert do(c, "ping")
    refused(c, USAGE, "list_queues")
    refused(c, USAGE, "set_cluster_name", "x")
    refused(c, USAGE, "await_online_nodes", "1")
    c.terminate()
    for command in ("ping", "cluster_status", "status", "start_app", "reset"):
        refused(c, UNAVAILABLE, command)


def test_status_with_alarm(joined: list[ClusterNode]) -> None:
    """status_with_alarm: the node and the cluster tell of it."""
    a, b, _ = joined
    b.admin.set_alarm("disk")
    wait_until(lambda: status(a)["alarms"] != [], "n1 tells of the alarm", 10)
    assert b.name in json.dumps(status(a)["alarms"])
    b.admin.clear_alarm("disk")
    wait_until(lambda: status(a)["alarms"] == [], "n1 tells of none", 10)


def test_list_queues_online_and_offline(joined: list[ClusterNode], on: On) -> None:
    """list_queues_online_and_offline: which queues can be used, and that the others are down."""
    a, b, c = joined
    on(a).declare("of-a", durable=True)
    on(b).declare("of-b", durable=True)
    publish(on(c), "of-a", b"1")

    def listed(*words: str) -> list[str]:
        return sorted(do(c, "list_queues", "--silent", *words).output.split("\n"))[1:]

    assert listed("name", "messages") == ["of-a\t1", "of-b\t0"]
    b.terminate()
    Cluster(joined).await_members(a.name, c.name, seen_by=[a, c])
    time.sleep(0.5)
    assert listed("--online", "name") == ["of-a"]
    assert listed("--offline", "name") == ["of-b"]
    assert listed("--online", "name", "state") == ["of-a\trunning"]
    assert listed("--offline", "name", "state") == ["of-b\tdown"]
    assert listed("name") == ["of-a", "of-b"]


def test_all_at_once(joined: list[ClusterNode], on: On) -> None:
    """reliability §4.10: all are killed; they start in another order; nothing confirmed is lost."""
    for node in joined:
        on(node).declare(f"of-{node.name}", durable=True)
        publish(on(joined[0]), f"of-{node.name}", b"1", b"2")
    for node in joined:
        node.kill()
    for node in reversed(joined):
        node.launch()
    for node in joined:
        node.await_ready()
    Cluster(joined).await_members()
    for node in joined:
        assert [content.body for content in drain(on(joined[1]), f"of-{node.name}")] == [b"1", b"2"]


def test_rolling_restart(joined: list[ClusterNode], on: On) -> None:
    """One after the other; queues of the others serve all the time."""
    for node in joined:
        on(node).declare(f"of-{node.name}", durable=True)
    for index, node in enumerate(joined):
        other, third = joined[index - 1], joined[index - 2]
        node.terminate()
        channel = on(other)
        for number in range(20):
            publish(channel, f"of-{third.name}", b"%d" % number)
        assert len(drain(on(third), f"of-{third.name}")) == 20
        node.launch()
        node.await_ready()
        Cluster(joined).await_members()
        publish(on(node), f"of-{node.name}", b"back")
        assert on(other).wait_get(f"of-{node.name}").body == b"back"


def test_signals(joined: list[ClusterNode], on: On) -> None:
    """signal_handling: SIGTERM ends the node, SIGHUP and SIGTSTP do not."""
    node = joined[0]
    pid = json.loads(do(node, "status", "--formatter", "json").output)["pid"]
    for number in (signal.SIGHUP, signal.SIGTSTP):
        os.kill(pid, number)
        time.sleep(0.3)
        on(node).sync()
    node.terminate()
    with pytest.raises(ConnectionRefusedError):
        Connection(node)
