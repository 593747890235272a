"""Clusters of real processes: formed, restarted, taken apart. reliability §2.5."""

import json
import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from node.cli.ctl.main import main as ctl
from node.clustering import offline
from node.io.data_directory import DataDirectoryError
from tests.kit.cluster_processes import (
    ClusterProcesses,
    MemberProcess,
    cluster_processes,
    until,
    until_running,
)
from tests.kit.ports import free_port

pytestmark = pytest.mark.slow

APP_RUNNING = "this command requires the 'rabbit' app to be stopped on the target node."


@pytest.fixture
def cluster() -> Iterator[ClusterProcesses]:
    with cluster_processes() as processes:
        yield processes


def channel_to(node: MemberProcess) -> "pika.adapters.blocking_connection.BlockingChannel":
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", node.port, blocked_connection_timeout=20, socket_timeout=20)
    )
    return connection.channel()


def how_it_ends(
    channel: "pika.adapters.blocking_connection.BlockingChannel",
) -> pika.exceptions.ConnectionClosedByBroker:
    """Return the error with which the broker closes the connection."""
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.connection.process_data_events(10)
    return closed.value


def knows_all(node: MemberProcess, nodes: list[MemberProcess]) -> bool:
    """Whether it has heard from all of them what they say of themselves."""
    status = node.ask("cluster_status")
    return set(status["versions"]) == {each.name for each in nodes} and all(status["listeners"].values())


def declare(node: MemberProcess, queue: str, *, bodies: int = 0) -> None:
    channel = channel_to(node)
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    for number in range(bodies):
        channel.basic_publish(
            "", queue, str(number).encode(), pika.BasicProperties(delivery_mode=2), mandatory=True
        )
    channel.connection.close()


def queues(node: MemberProcess) -> dict[str, tuple[int | None, str, str]]:
    rows = node.ask("list_queues")["queues"]
    return {row["name"]: (row["messages"], row["home"], row["state"]) for row in rows}


def test_three_nodes_form_a_cluster_by_their_configuration(cluster: ClusterProcesses) -> None:
    """reliability §2.5: classic_config_discovery_node_list; management §3.4."""
    nodes = cluster.formed("n1", "n2", "n3")
    ids = set()
    for node in nodes:
        status = node.ask("cluster_status")
        assert status["disk_nodes"] == [each.name for each in nodes]
        assert status["ram_nodes"] == []
        until(lambda node=node: knows_all(node, nodes), "what all say of themselves")
        ids.add(status["internal_cluster_id"])
    assert len(ids) == 1
    until(lambda: len(nodes[0].ask("list_members")["voters"]) == 3, "three vote")
    links = nodes[0].ask("status")["links"]
    assert [(each["name"], each["peer_port"]) for each in links] == [
        (each.name, each.peer_port) for each in nodes[1:]
    ]
    assert all(each["send_bytes"] and each["recv_bytes"] for each in links)
    declare(nodes[1], "q", bodies=3)
    for node in nodes:
        until(lambda node=node: queues(node) == {"q": (3, nodes[1].name, "running")}, "the queue is seen")
    got = channel_to(nodes[2]).basic_get("q", auto_ack=True)
    assert got[2] == b"0"
    assert [node.stop() for node in nodes] == [0, 0, 0]


def test_the_cluster_is_the_same_after_all_were_stopped(cluster: ClusterProcesses) -> None:
    """reliability §4.10: total restart; §2.5: persistent_cluster_id."""
    nodes = cluster.formed("n1", "n2", "n3")
    declare(nodes[2], "q", bodies=2)
    before = nodes[0].ask("cluster_status")
    for node in nodes:
        assert node.stop() == 0
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_ready()
        until_running(node, nodes)
    after = nodes[1].ask("cluster_status")
    assert after["internal_cluster_id"] == before["internal_cluster_id"]
    assert queues(nodes[0]) == {"q": (2, nodes[2].name, "running")}


def test_a_killed_node_is_down_at_once_and_the_others_serve_on(cluster: ClusterProcesses) -> None:
    """amqp-behaviour §9.1, §9.6: a closed connection is a node down at once."""
    first, second, third = nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    declare(second, "q", bodies=1)
    second.kill()
    until_running(first, [first, third])
    until_running(third, [first, third])
    assert queues(first) == {"q": (None, second.name, "down")}
    declare(third, "other", bodies=1)
    second.start()
    for node in nodes:
        until_running(node, nodes)
    until(
        lambda: queues(second) == {"q": (1, second.name, "running"), "other": (1, third.name, "running")},
        "the node is back with its queue",
    )


def test_the_leader_killed(cluster: ClusterProcesses) -> None:
    nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(nodes[0].ask("list_members")["voters"]) == 3, "three vote")
    leader = next(node for node in nodes if node.name == nodes[0].ask("list_members")["leader"])
    leader.kill()
    rest = [node for node in nodes if node is not leader]
    for node in rest:
        until_running(node, rest)
        declare(node, f"q.{node.name}", bodies=1)
    leader.start()
    for node in nodes:
        until_running(node, nodes)


def test_a_node_without_majority_pauses_and_comes_back(cluster: ClusterProcesses) -> None:
    """amqp-behaviour §9.6: pause_minority."""
    first, second, third = nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    second.kill()
    third.kill()
    until(lambda: first.ask("status")["is_paused"], "the node pauses")
    until(lambda: not first.ask("status")["is_running"], "its broker stops")
    second.launch()
    third.launch()
    for node in nodes:
        node.wait_ready()
        until_running(node, nodes)
    assert not first.ask("status")["is_paused"]


def test_stop_app_and_start_app(cluster: ClusterProcesses) -> None:
    """amqp-behaviour §9.7: stop_app closes connections with 320 shutdown."""
    first, second, third = nodes = cluster.formed("n1", "n2", "n3")
    channel = channel_to(second)
    second.ask("stop_app")
    assert how_it_ends(channel).reply_code == 320
    until_running(first, [first, third])
    assert second.ask("ping") == {}
    assert second.ask("cluster_status")["disk_nodes"] == [each.name for each in nodes]
    declare(first, "q")
    second.ask("start_app")
    for node in nodes:
        until_running(node, nodes)
    assert set(queues(second)) == {"q"}


def test_join_and_part(cluster: ClusterProcesses) -> None:
    """reliability §2.5: join_and_part_cluster, join_cluster_bad_operations, reset_removes_things."""
    first, second = cluster.make("n1"), cluster.make("n2", is_plain=True)
    first.start()
    second.start()
    declare(second, "lost")
    assert second.fails("join_cluster", node=first.name)[0] == 64
    second.ask("stop_app")
    code, text = second.fails("join_cluster", node="n9@localhost", address="127.0.0.1:1")
    assert code == 69
    assert "127.0.0.1:1" in text
    assert "nothing listens there" in text
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        code, text = second.fails("join_cluster", node=first.name, address=address)
    assert (code, f"something listens at {address}, but it is not a Fluffle node" in text) == (69, True)
    assert "Give NAME@HOST:PORT" in text
    assert second.ask("join_cluster", node=first.name) == {"already_member": False}
    assert second.ask("join_cluster", node=first.name) == {"already_member": True}
    second.ask("start_app")
    for node in (first, second):
        until_running(node, [first, second])
        assert queues(node) == {}
    declare(second, "q", bodies=1)
    until(lambda: set(queues(first)) == {"q"}, "the queue is seen")
    code, text = first.fails("forget_cluster_node", node=second.name)
    assert (code, "must be stopped with 'rabbitmqctl -n n2@localhost stop_app'" in text) == (69, True)
    second.ask("stop_app")
    second.ask("reset")
    until_running(first, [first])
    assert first.ask("cluster_status")["disk_nodes"] == [first.name]
    assert queues(first) == {}
    second.ask("start_app")
    assert second.ask("cluster_status")["disk_nodes"] == [second.name]
    declare(second, "alone", bodies=1)
    assert set(queues(second)) == {"alone"}


def test_all_nodes_stop_at_once_and_nobody_waits_for_the_others(cluster: ClusterProcesses) -> None:
    """The last ones have no majority left that could take note of their stop."""
    nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(nodes[0].ask("list_members")["voters"]) == 3, "three vote")
    for node in nodes:
        node.signal(signal.SIGTERM)
    assert [node.wait() for node in nodes] == [0, 0, 0]
    assert not any("did not record that within" in node.log_text() for node in nodes)


def test_a_peer_port_that_is_taken_is_named(cluster: ClusterProcesses) -> None:
    first, second = cluster.make("n1"), cluster.make("n2")
    first.start()
    second.peer_port = first.peer_port
    second.launch()
    assert second.wait() == 69
    where = f"127.0.0.1:{first.peer_port}"
    assert (
        f"cannot start: other nodes cannot be accepted on {where}: Address already in use"
        in second.log_text()
    )


def test_forget_cluster_node(cluster: ClusterProcesses) -> None:
    """reliability §2.5: forget_cluster_node, forget_removes_things; a forgotten node cannot start until reset."""
    first, second, third = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    declare(third, "q")
    assert first.fails("forget_cluster_node", node="n9@localhost") == (
        69,
        "The node selected is not in the cluster.",
    )
    third.kill()
    until_running(first, [first, second])
    first.ask("forget_cluster_node", node=third.name)
    for node in (first, second):
        until(lambda node=node: node.ask("cluster_status")["disk_nodes"] == [first.name, second.name], "gone")
        until(lambda node=node: queues(node) == {}, "its queues are gone")
    third.launch()
    assert third.wait() == 69
    assert "thinks it's clustered with node" in third.log_text()
    assert "disagrees" in third.log_text()
    words = ["reset", "--offline", "--data", str(third.data)]
    assert f"with its process ended, by 'fluffle ctl {' '.join(words)}'" in third.log_text()
    assert ctl(words, {"XDG_RUNTIME_DIR": str(third.directory)}) == 0
    third.start()
    for node in (first, second, third):
        until_running(node, [first, second, third])
    assert ctl(words, {"XDG_RUNTIME_DIR": str(third.directory)}) == 64


def test_ram_nodes(cluster: ClusterProcesses) -> None:
    """reliability §2.5: last RAM/disc rules, change_cluster_node_type."""
    first, second = cluster.make("n1"), cluster.make("n2")
    first.start()
    second.start()
    second.ask("stop_app")
    second.ask("join_cluster", node=first.name, type="ram")
    second.ask("start_app")
    for node in (first, second):
        until_running(node, [first, second])
        status = node.ask("cluster_status")
        assert (status["disk_nodes"], status["ram_nodes"]) == ([first.name], [second.name])
    declare(second, "q", bodies=1)
    assert first.fails("change_cluster_node_type", type="ram")[0] == 64
    first.ask("stop_app")
    code, text = first.fails("reset")
    assert code == 69
    assert "only disc node" in text
    first.ask("start_app")
    second.ask("stop_app")
    second.ask("change_cluster_node_type", type="disc")
    second.ask("start_app")
    for node in (first, second):
        until_running(node, [first, second])
        assert node.ask("cluster_status")["disk_nodes"] == [first.name, second.name]
    until(lambda: len(first.ask("list_members")["voters"]) == 2, "both vote")
    assert queues(first) == {"q": (1, second.name, "running")}


def test_a_ram_node_is_not_the_first(cluster: ClusterProcesses) -> None:
    node = cluster.make("n1")
    node.options = ["--ram"]
    node.launch()
    assert node.wait() != 0
    assert "RAM node cannot be the first of a cluster" in node.log_text()


def test_a_plain_node_takes_its_queues_into_a_cluster(cluster: ClusterProcesses) -> None:
    """Queues and messages that a plain node has kept are there when it becomes clusterable."""
    node = cluster.make("n1", is_plain=True)
    node.start()
    declare(node, "q", bodies=2)
    assert node.stop() == 0
    node.is_plain = False
    node.start()
    assert queues(node) == {"q": (2, node.name, "running")}
    assert node.ask("cluster_status")["is_clusterable"] is True


def test_drain_and_revive(cluster: ClusterProcesses) -> None:
    """amqp-behaviour §9.7: maintenance mode."""
    first, second = cluster.formed("n1", "n2")
    channel = channel_to(second)
    second.ask("drain")
    closed = how_it_ends(channel)
    assert closed.reply_code == 320
    assert closed.reply_text == "CONNECTION_FORCED - Node was put into maintenance mode"
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        channel_to(second)
    until(
        lambda: first.ask("cluster_status")["maintenance_status"][second.name] == "marked for maintenance",
        "the other node sees it",
    )
    second.ask("revive")
    channel_to(second).connection.close()
    until(
        lambda: first.ask("cluster_status")["maintenance_status"][second.name] == "not under maintenance",
        "the other node sees it",
    )


def test_limits_and_counts_are_those_of_all_nodes(cluster: ClusterProcesses) -> None:
    """amqp-behaviour §9.7: set_cluster_name and await_online_nodes are the cluster's."""
    first, second = cluster.formed("n1", "n2")
    first.ask("set_cluster_name", name="warren")
    assert second.ask("cluster_status")["cluster_name"] == "warren"
    assert second.ask("await_online_nodes", count=2) == {}


def test_a_forgotten_node_can_be_reset_and_join_again(cluster: ClusterProcesses) -> None:
    """reliability §2.5: forget_cluster_node: start_app fails, reset helps."""
    first, second = cluster.formed("n1", "n2")
    until(lambda: len(first.ask("list_members")["voters"]) == 2, "both vote")
    second.ask("stop_app")
    first.ask("forget_cluster_node", node=second.name)
    code, text = second.fails("start_app")
    assert (code, "disagrees" in text) == (69, True)
    second.ask("reset")
    second.ask("start_app")
    for node in (first, second):
        until_running(node, [first, second])
    second.ask("stop_app")
    first.ask("forget_cluster_node", node=second.name)
    assert second.ask("join_cluster", node=first.name) == {"already_member": False}
    second.ask("start_app")
    until_running(first, [first, second])


def test_a_lost_data_directory(cluster: ClusterProcesses) -> None:
    """Two nodes of one name: the new one is told to wait until the lost one is forgotten."""
    first, second, third = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    third.kill()
    third.data = third.data.with_name("new")
    third.launch()
    # A node that starts before its end was noticed is told something else first.
    until(lambda: "forget_cluster_node n3@localhost" in third.log_text(), "the node is told what to do")
    assert "does not let this one join" in third.log_text()
    until_running(first, [first, second])
    first.ask("forget_cluster_node", node=third.name)
    third.wait_ready()
    for node in (first, second, third):
        until_running(node, [first, second, third])


def test_who_waits_for_a_majority_says_who_is_missing_and_what_to_do(
    cluster: ClusterProcesses, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, third = nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    for node in nodes:
        node.kill()
    management_port = free_port()
    third.options = ["--management", f"127.0.0.1:{management_port}"]
    third.launch()
    until(lambda: third.ask("status")["phase"] == "waiting", "it waits for the others")
    advice = (
        "waits for a majority of the cluster's disk nodes: 'n3@localhost' is there; "
        f"no link to 'n1@localhost' at 127.0.0.1:{first.peer_port}, "
        f"'n2@localhost' at 127.0.0.1:{second.peer_port}; start 1 of them; "
        "those whose data are lost have to be forgotten: "
        "stop this node, then 'fluffle ctl forget_cluster_node --offline NAME'"
    )
    assert third.ask("status")["waits_for"] == advice
    code, text = third.fails("list_queues")
    assert (code, advice in text) == (64, True)
    environ = {"XDG_RUNTIME_DIR": str(third.directory)}
    options = ["--data", str(third.data), "-t", "1"]
    for command, expected in (("start_app", 75), ("await_startup", 75), ("list_queues", 64), ("status", 0)):
        assert ctl([*options, command], environ) == expected
        captured = capfd.readouterr()
        assert advice in captured.out + captured.err
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{management_port}/health/ready", timeout=10)
    assert json.load(caught.value)["reason"] == f"the node {advice}"
    until(lambda: f"'n2@localhost' at 127.0.0.1:{second.peer_port}" in third.log_text(), "the log says so")
    second.start()
    third.wait_ready()
    assert third.ask("status")["waits_for"] == ""


def test_forget_offline_leaves_a_majority(cluster: ClusterProcesses) -> None:
    """reliability §2.5: forget_offline_removes_things; force_boot."""
    first, second, third = nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    declare(first, "kept", bodies=1)
    declare(third, "lost", bodies=1)
    until(lambda: len(queues(first)) == 2, "both are seen")
    with pytest.raises(DataDirectoryError):
        offline.forget_offline(str(first.data), first.name, third.name)
    for node in nodes:
        node.kill()
    with pytest.raises(offline.OfflineError, match="not in the cluster") as caught:
        offline.forget_offline(str(first.data), first.name, "n9@localhost")
    assert caught.value.exit_code == 70
    offline.forget_offline(str(first.data), first.name, third.name)
    for node in (first, second):
        node.launch()
    for node in (first, second):
        until_running(node, [first, second])
    assert queues(first) == {"kept": (1, first.name, "running")}
    until(lambda: first.ask("list_members")["voters"] == [first.name, second.name], "both vote")
    declare(second, "new", bodies=1)
    until(lambda: set(queues(first)) == {"kept", "new"}, "the new queue is seen")


def test_who_was_forgotten_offline_stays_apart(cluster: ClusterProcesses) -> None:
    """The others come back as a majority of their own: two clusters, with two ids, whose nodes refuse each other."""
    first, *others = nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    former = first.ask("cluster_status")["internal_cluster_id"]
    for node in nodes:
        node.kill()
    for node in others:
        offline.forget_offline(str(first.data), first.name, node.name)
    for node in others:
        node.launch()
    for node in others:
        until_running(node, others)
    first.start()
    assert first.ask("cluster_status")["internal_cluster_id"] != former
    until(
        lambda: "were forgotten with forget_cluster_node --offline, and " in others[0].log_text(),
        "it is told so",
    )
    assert others[0].ask("cluster_status")["internal_cluster_id"] == former
    until_running(first, [first])


def test_a_node_that_lost_its_metadata_makes_no_second_cluster(cluster: ClusterProcesses) -> None:
    """The first of the list makes no second cluster, though others are silent for longer than it looks for them."""
    first, *others = nodes = cluster.formed("n1", "n2", "n3")
    declare(first, "q", bodies=1)
    for node in nodes:
        node.kill()
    shutil.rmtree(first.data / "raft")
    first.launch()
    assert first.wait() != 0
    assert "belonged to a cluster, and its directory raft/ with the metadata is gone" in first.log_text()
    for node in others:
        node.launch()
    for node in others:
        until_running(node, others)


def test_a_cluster_is_made_by_enough_nodes(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """A node whose disk was emptied, first of the list, could make a second cluster while the others are silent."""
    first, second, third = nodes = [cluster.make(name) for name in ("n1", "n2", "n3")]
    config = tmp_path / "fluffle.conf"
    config.write_text(
        "cluster_formation.target_cluster_size_hint = 3\ncluster_formation.discovery_retry_limit = 1\n"
    )
    for node in nodes:
        node.formation = ",".join(each.seed for each in nodes)
        node.options = ["--config", str(config)]
    first.launch()
    until(lambda: "1 of the nodes that were asked" in first.log_text(), "it waits for another one")
    assert not first.ask("cluster_status")["running_nodes"]
    second.launch()
    first.wait_ready()
    third.start()
    for node in nodes:
        until_running(node, nodes)
    for node in nodes:
        node.kill()
    shutil.rmtree(first.data)
    first.launch()
    until(lambda: "1 of the nodes that were asked" in first.log_text(), "it waits for the others")
    second.launch()
    third.start()
    until(lambda: "does not let this one join" in first.log_text(), "it is no member")


def test_a_witness_votes(cluster: ClusterProcesses) -> None:
    """reliability §4.10: two nodes and a witness survive the loss of a node."""
    first, second = cluster.make("n1"), cluster.make("n2")
    witness = cluster.make("w", command="witness")
    for node in (first, second, witness):
        node.formation = f"{first.seed},{second.seed}"
        node.launch()
    first.wait_ready()
    second.wait_ready()
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    assert first.ask("cluster_status")["witness_nodes"] == [witness.name]
    second.kill()
    until_running(first, [first])
    declare(first, "q", bodies=1)
    until(lambda: witness.ask("cluster_status")["running_nodes"] == [first.name], "the witness sees it")
    assert witness.fails("start_app")[0] == 64
    assert witness.stop() == 0


def test_a_frozen_node_is_declared_down_and_starts_anew(cluster: ClusterProcesses) -> None:
    """reliability §4.2: SIGSTOP: its lease runs out, the others go on; it rejoins as a new incarnation."""
    first, second, third = nodes = cluster.formed("n1", "n2", "n3")
    until(lambda: len(first.ask("list_members")["voters"]) == 3, "three vote")
    declare(second, "q", bodies=1)
    second.signal(signal.SIGSTOP)
    until_running(first, [first, third])
    declare(third, "other", bodies=1)
    second.signal(signal.SIGCONT)
    for node in nodes:
        until_running(node, nodes)
    until(lambda: queues(second).get("q") == (1, second.name, "running"), "the queue is back")
