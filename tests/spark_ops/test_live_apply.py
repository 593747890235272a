"""Plan, apply and rollback on three live nodes under load.

Nothing that was confirmed is lost, and no queue ever has fewer synchronised copies than before.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from spark_ops.applying.journal import Place, read
from spark_ops.applying.states import PlanState
from spark_ops.cli.main import main
from spark_ops.planning import plan as plans
from spark_ops.planning.rows import ClusterRows, NodeRow, QueueRow
from spark_ops.planning.steps import Move, placement_of, steps_of, waves_of
from spark_ops.planning.topology import rows_of
from tests.kit.http_api import HttpApi
from tests.kit.managed_fluffle import managed, start_managed_cluster
from tests.kit.mirror_steps import await_shape, delete_queues, set_mirroring
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster
from tests.kit.server_process import ROOT
from tests.spark_ops.gate import Gate, Side

pytestmark = pytest.mark.slow

QUEUES = ("held-1", "held-2", "held-3", "held-4")
BODY = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes with management."""
    started = start_managed_cluster()
    yield started
    started.stop()


class Publisher(threading.Thread):
    """Publishes numbers to one queue, each confirmed before the next, by whichever node answers."""

    def __init__(self, cluster: Cluster, queue: str, node: int) -> None:
        super().__init__()
        self.confirmed: list[int] = []
        self.number = 0
        self.is_stopping = False
        self._nodes = [*cluster.nodes[node:], *cluster.nodes[:node]]
        self._queue = queue

    def run(self) -> None:
        while not self.is_stopping:
            for node in self._nodes:
                try:
                    self._publish(pika.ConnectionParameters(node.host, node.port))
                except (AMQPError, OSError):
                    continue

    def _publish(self, where: pika.ConnectionParameters) -> None:
        connection = pika.BlockingConnection(where)
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2)
        while not self.is_stopping:
            self.number += 1
            body = b"%d" % self.number
            channel.basic_publish("", self._queue, body.ljust(BODY), properties, mandatory=True)
            self.confirmed.append(self.number)
            time.sleep(0.004)
        connection.close()


class Watcher(threading.Thread):
    """Looks at all queues all the time, by each node in turn.   least: synchronised copies of each, the master's among
    them.   looks: how many there were.
    """

    def __init__(self, apis: list[HttpApi]) -> None:
        super().__init__()
        self.least: dict[str, int] = {}
        self.looks = 0
        self.is_stopping = False
        self._apis = apis

    def run(self) -> None:
        while not self.is_stopping:
            answer = self._apis[self.looks % len(self._apis)].get(
                "/queues?columns=name,node,synchronised_slave_nodes,state"
            )
            assert answer.status == 200
            for row in answer.json:
                synced = {row["node"], *row.get("synchronised_slave_nodes", ())}
                self.least[row["name"]] = min(self.least.get(row["name"], 99), len(synced))
            self.looks += 1
            time.sleep(0.03)


def rows(api: HttpApi) -> ClusterRows:
    answer = api.get("/mirroring/topology")
    assert answer.status == 200, answer.text
    return rows_of(answer.json)


def uneven(cluster: Cluster) -> None:
    """All masters on the first node, all mirrors on the second."""
    delete_queues(cluster[0], "held")
    connection = pika.BlockingConnection(pika.ConnectionParameters(cluster.host, cluster[0].port))
    channel = connection.channel()
    for queue in QUEUES:
        channel.queue_declare(queue, durable=True)
    connection.close()
    set_mirroring(cluster[0], "held", "nodes", (cluster[0].name, cluster[1].name))
    for queue in QUEUES:
        await_shape(cluster[0], queue, master=cluster[0].name, synced=[cluster[1].name])
    set_mirroring(cluster[0], "held", "exactly", 2)


def even_plan(cluster: Cluster, current: ClusterRows) -> plans.Plan:
    """A master each on another node: one only promoted, one copied, one copied and promoted."""
    one, two, three = (node.name for node in cluster.nodes)
    nodes = {row.node: NodeRow(row.node) for row in current.nodes}
    queues: dict[str, QueueRow] = {row.queue: row for row in current.queues}
    wanted = {
        "held-1": (two, (), ()),
        "held-2": (three, (three,), (one,)),
        "held-3": (one, (three,), (two,)),
    }
    moves: list[list[plans.Step]] = []
    for name, (master, adds, drops) in wanted.items():
        move = Move(queues[name], placement_of(queues[name]), master, adds, drops, "cpu", "n1 has all")
        moves.append(steps_of(move, sum(map(len, moves)) + 1, nodes))
    document = plans.build(
        cluster=current.cluster,
        now=time.time(),
        mode="full",
        inputs={"view_id": current.view_id, "topology_hash": current.topology_hash},
        goals=[],
        summary={"promotions": 2, "copies": 2, "bytes": 0},
        nodes=[],
        waves=waves_of(moves, moves_max=2, bytes_max=1 << 30),
        steps=[step for move in moves for step in move],
    )
    return plans.parse_document(document)


def shape(current: ClusterRows) -> dict[str, tuple[str, frozenset[str]]]:
    return {row.queue: (row.master, frozenset(row.synced)) for row in current.queues}


def taken(cluster: Cluster, queue: str) -> list[int]:
    """The numbers in a queue."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(cluster.host, cluster[2].port))
    channel = connection.channel()
    found = []
    for _, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=2):
        if body is None:
            break
        found.append(int(body))
    connection.close()
    return found


def test_apply_and_rollback_under_load(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark §6.12, §6.14: confirmed and lost 0; copies never below; as planned, and then as it was.

    One machine begins the plan, a second one resumes it, a third one undoes it; only the first one has the plan's file.
    """
    nodes = managed(cluster)
    apis = [HttpApi(node) for node in nodes]
    uneven(cluster)
    monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SPARK_OPS_URL", " ".join(node.management_url for node in nodes))
    publishers = {queue: Publisher(cluster, queue, number % 3) for number, queue in enumerate(QUEUES)}
    watcher = Watcher(apis)
    for each in (*publishers.values(), watcher):
        each.start()
    try:
        wait_until(lambda: all(len(each.confirmed) > 100 for each in publishers.values()), "load")
        before = rows(apis[1])
        plan = even_plan(cluster, before)
        path, undo = tmp_path / "plan.json", tmp_path / "undo.json"
        path.write_text(plans.written(_document(plan)))
        assert main(["apply", str(path)]) == 0
        assert shape(rows(apis[0])) == shape(before)
        assert main(["apply", str(path), "--yes", "--wave", "1"]) == 0
        path.unlink()
        monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "second"))
        assert main(["resume", plan.plan_id[7:17]]) == 0
        wait_until(lambda: shape(rows(apis[2])) != {} and len(_extra(rows(apis[2]))) == 0, "no copy too many")
        after = shape(rows(apis[0]))
        one, two, three = (node.name for node in nodes)
        assert after == {
            "held-1": (two, frozenset({one, two})),
            "held-2": (three, frozenset({two, three})),
            "held-3": (one, frozenset({one, three})),
            "held-4": (one, frozenset({one, two})),
        }
        monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "third"))
        assert main(["rollback", plan.plan_id[7:17], "-o", str(undo)]) == 0
        assert main(["apply", str(undo), "--yes", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert set(shown["steps"].values()) <= {"done", "skipped"}
        wait_until(lambda: shape(rows(apis[2])) == shape(before), "as it was")
        monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "state"))
        assert main(["rollback", plan.plan_id[7:17], "-o", str(undo)]) == 2, "the first machine knows"
        time.sleep(1)
    finally:
        for each in (*publishers.values(), watcher):
            each.is_stopping = True
        for each in (*publishers.values(), watcher):
            each.join(60)
    assert watcher.looks > 20
    assert watcher.least == dict.fromkeys(QUEUES, 2)
    total = 0
    for queue, publisher in publishers.items():
        found = taken(cluster, queue)
        lost = set(publisher.confirmed) - set(found)
        assert not lost, (queue, len(lost), sorted(lost)[:10])
        assert len(publisher.confirmed) > 100
        total += len(publisher.confirmed)
    print(f"{total} confirmed, 0 lost, {watcher.looks} looks")


def test_the_only_copy_moves_and_returns(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark §6.1, §6.12: a queue that no policy mirrors; its steps know one epoch until its master has moved."""
    nodes = managed(cluster)
    one, two, _ = (node.name for node in nodes)
    api = HttpApi(nodes[1])
    delete_queues(cluster[0], "alone")
    assert api.put("/queues/%2F/alone", {"durable": True, "node": one}).status == 201
    monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SPARK_OPS_URL", " ".join(node.management_url for node in nodes))
    publisher = Publisher(cluster, "alone", 0)
    publisher.start()
    try:
        wait_until(lambda: len(publisher.confirmed) > 100, "load")
        plan = _plan_of_one(rows(api), "alone", two)
        path, undo = tmp_path / "plan.json", tmp_path / "undo.json"
        path.write_text(plans.written(_document(plan)))
        assert main(["apply", str(path), "--yes", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert set(shown["steps"].values()) <= {"done", "skipped"}
        wait_until(lambda: shape(rows(api))["alone"] == (two, frozenset({two})), "on the other node")
        assert main(["rollback", plan.plan_id[7:17], "-o", str(undo)]) == 0
        assert main(["apply", str(undo), "--yes"]) == 0
        wait_until(lambda: shape(rows(api))["alone"] == (one, frozenset({one})), "as it was")
        wait_until(lambda: not api.get("/queues/%2F/alone").json.get("slave_nodes"), "not mirrored")
    finally:
        publisher.is_stopping = True
        publisher.join(60)
    assert set(publisher.confirmed) <= set(taken(cluster, "alone"))
    delete_queues(cluster[0], "alone")


def _plan_of_one(current: ClusterRows, name: str, target: str) -> plans.Plan:
    """The plan that brings a queue's only copy to a node."""
    row = next(row for row in current.queues if row.queue == name)
    move = Move(row, placement_of(row), target, (target,), (row.master,), "drain", "n1 is to be emptied")
    steps = steps_of(move, 1, {each.node: NodeRow(each.node) for each in current.nodes})
    document = plans.build(
        cluster=current.cluster,
        now=time.time(),
        mode="full",
        inputs={"view_id": current.view_id, "topology_hash": current.topology_hash},
        goals=[],
        summary={"promotions": 1, "copies": 1, "bytes": 0},
        nodes=[],
        waves=waves_of([steps], moves_max=2, bytes_max=1 << 30),
        steps=steps,
    )
    return plans.parse_document(document)


def test_killed_and_resumed(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark §6.13: kill -9 of the process, then resume, by another node as the first one is not there.

    Each time while a step was sent and is not answered: the cluster has not heard of it, or has done it.
    """
    nodes = managed(cluster)
    api = HttpApi(nodes[2])
    uneven(cluster)
    plan = even_plan(cluster, rows(api))
    path = tmp_path / "plan.json"
    path.write_text(plans.written(_document(plan)))
    place = Place(tmp_path / "state", plan.plan_id)
    monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "state"))
    with Gate(nodes[1].management_url).running() as gate:
        monkeypatch.setenv("SPARK_OPS_URL", f"http://127.0.0.1:1 {gate.url}")
        for passing, side, signal_ in (
            (1, Side.ASKED, signal.SIGINT),
            (0, Side.ASKED, signal.SIGKILL),
            (0, Side.ANSWERED, signal.SIGKILL),
        ):
            gate.close_after(passing, side)
            command = [sys.executable, "-m", "spark_ops", "apply", str(path), "--yes"]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
                gate.await_waiting()
                process.send_signal(signal_)
                if signal_ == signal.SIGKILL:
                    process.wait()
                gate.open()
            if signal_ == signal.SIGINT:
                assert process.returncode == 130
                assert (read(place.journal).state, read(place.journal).why) == (
                    PlanState.PAUSED,
                    "interrupted",
                )
                assert not api.get("/mirroring/plan-lock").json["is_held"]
    monkeypatch.setenv("SPARK_OPS_URL", f"http://127.0.0.1:1 {nodes[1].management_url}")
    assert read(place.journal).state is PlanState.RUNNING
    assert api.get("/mirroring/plan-lock").json["plan"] == plan.plan_id
    capsys.readouterr()
    assert main(["resume", plan.plan_id]) == 0
    assert "is done" in capsys.readouterr().out
    one, two, three = (node.name for node in nodes)
    wait_until(
        lambda: (
            shape(rows(api))
            == {
                "held-1": (two, frozenset({one, two})),
                "held-2": (three, frozenset({two, three})),
                "held-3": (one, frozenset({one, three})),
                "held-4": (one, frozenset({one, two})),
            }
        ),
        "as planned",
    )
    assert not api.get("/mirroring/plan-lock").json["is_held"]


def test_refusals(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign plan, a stale one and a user who may not are refused before the first step and in one line."""
    node = managed(cluster)[0]
    uneven(cluster)
    before = rows(HttpApi(node))
    monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "state"))
    path = tmp_path / "plan.json"
    apply = ["apply", str(path), "--yes", "--url"]

    def refusal(current: ClusterRows, url: str) -> str:
        path.write_text(plans.written(_document(even_plan(cluster, current))))
        capsys.readouterr()
        assert main([*apply, url]) != 0
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
        return line

    node.admin.add_user("looker", "looker", ("monitoring",))
    host = node.management_url.removeprefix("http://")
    assert "administrator" in refusal(before, f"http://looker:looker@{host}")
    line = refusal(before, f"http://guest:wr0ng@{host}")
    assert "refuses" in line
    assert "wr0ng" not in line
    assert "for the cluster 'elsewhere'" in refusal(replace(before, cluster="elsewhere"), node.management_url)
    moved = replace(before, queues=tuple(replace(row, epoch=row.epoch + 1) for row in before.queues))
    assert "the plan is stale: step s1" in refusal(moved, node.management_url)
    assert "membership changed" in refusal(replace(before, view_id=before.view_id + 1), node.management_url)
    assert shape(rows(HttpApi(node))) == shape(before)
    assert not (tmp_path / "state").exists() or not list((tmp_path / "state").glob("*.log"))


def _extra(current: ClusterRows) -> list[str]:
    return [row.queue for row in current.queues if len(row.ring) != 2]


def _document(plan: plans.Plan) -> dict[str, Any]:
    return plans.build(
        cluster=plan.cluster,
        now=plan.created,
        mode=plan.mode,
        inputs=plan.inputs,
        goals=plan.goals,
        summary=plan.summary,
        nodes=plan.nodes,
        waves=plan.waves,
        steps=plan.steps,
    )
