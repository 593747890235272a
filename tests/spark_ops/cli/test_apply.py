"""`apply`, `pause`, `resume`, `abort`, `rollback` as an operator sees them, on a cluster in memory."""

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark_ops.applying.asking import Answer, Silence
from spark_ops.applying.client import Client
from spark_ops.applying.journal import Place, is_busy, read
from spark_ops.applying.states import PlanState
from spark_ops.cli import carrying_out
from spark_ops.cli.errors import OpsError
from spark_ops.cli.main import main
from spark_ops.planning import plan as plans
from tests.kit.patience import wait_until
from tests.spark_ops.applying.fake_cluster import CLUSTER, FakeCluster
from tests.spark_ops.applying.world import random_plan


class FakeClient(Client):
    """Asks a fake cluster, whose time is the real one.   is_silent: nobody answers."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.is_silent = False
        self.name = CLUSTER
        self.parameters: dict[str, Any] = {}
        self.refuses_parameters = False
        self._turn = threading.Lock()

    def request(self, method: str, path: str, body: Any = None) -> Answer | Silence:
        if self.is_silent:
            return Silence("http://n1:15672: Connection refused")
        with self._turn:
            now = time.time()
            self.cluster.advance(now)
            path = path.partition("?")[0]
            if path.startswith("/global-parameters"):
                return self._parameter(
                    method, path.removeprefix("/global-parameters").removeprefix("/"), body
                )
            return self._answer(method, path, body, now)

    def _parameter(self, method: str, name: str, body: Any) -> Answer:
        if self.refuses_parameters:
            return Answer(503, {"error": "unavailable", "reason": "no majority"})
        match method:
            case "GET" if not name:
                return Answer(
                    200, [{"name": name, "value": value} for name, value in self.parameters.items()]
                )
            case "PUT":
                self.parameters[name] = json.loads(json.dumps(body["value"]))
                return Answer(204)
            case "DELETE":
                self.parameters.pop(name, None)
                return Answer(204)
        found = self.parameters.get(name)
        return Answer(404, {"error": "Object Not Found"}) if found is None else Answer(200, {"value": found})

    def _answer(self, method: str, path: str, body: Any, now: float) -> Answer:
        match method, path:
            case "GET", "/cluster-name":
                return Answer(200, {"name": self.name})
            case "GET", "/mirroring/topology":
                return Answer(200, self.cluster.topology())
            case "GET", "/nodes":
                up, alarms = self.cluster.up, self.cluster.alarms
                return Answer(
                    200,
                    [
                        {"name": node, "running": node in up, "mem_alarm": f"memory on {node}" in alarms}
                        for node in self.cluster.nodes
                    ],
                )
            case "GET", "/mirroring/rings":
                return Answer(200, {"items": [], "page_count": 1})
            case "GET", "/mirroring/plan-lock":
                lock = self.cluster.lock or {}
                is_held = lock.get("until", 0.0) > now
                named = {name: lock.get(name) for name in ("plan", "owner")}
                return Answer(200, {"view_id": self.cluster.view_id, "is_held": is_held, **named})
            case "PUT", "/mirroring/plan-lock":
                return self.cluster.put_lock(body, now)
            case "DELETE", "/mirroring/plan-lock":
                return self.cluster.delete_lock(body)
            case "POST", "/mirroring/plan-step":
                return self.cluster.step(body, now)
        raise AssertionError((method, path))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeClient:
    """A cluster on which a plan takes a second or two."""
    cluster = FakeCluster(tuple(f"rabbit@n{number}" for number in range(1, 5)), Random(2))
    cluster.JOIN_S = cluster.MOVE_S = cluster.ERASE_S = 0.01  # type: ignore[misc]
    for name in ("a", "b"):
        cluster.add(name, cluster.nodes[:2], 1, 0.01)
    made = FakeClient(cluster)
    monkeypatch.setattr(carrying_out, "client", lambda arguments, came_from=None: made)
    monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "state"))
    return made


def write(path: Path, client: FakeClient, *, now: float | None = None, name: str = CLUSTER) -> plans.Plan:
    """The file of a plan that moves a copy of both queues."""
    made = time.time() if now is None else now
    for seed in range(1000):
        plan = random_plan(client.cluster, Random(seed), now=made, name=name)
        if sum(step.action == "add_mirror" for step in plan.steps) == 2:
            path.write_text(plans.written(document(plan)))
            return plan
    raise AssertionError


def document(plan: plans.Plan) -> dict[str, Any]:
    """Return the document of a plan."""
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


@pytest.fixture
def in_background() -> Iterator[Callable[..., "Background"]]:
    """Run a command in a thread; it is over before the test is."""
    made: list[Background] = []

    def start(*arguments: str) -> Background:
        made.append(Background(arguments))
        return made[-1]

    yield start
    for each in made:
        each.thread.join(30)
        assert not each.thread.is_alive()


class Background:
    def __init__(self, arguments: tuple[str, ...]) -> None:
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, args=(arguments,))
        self.thread.start()

    def _run(self, arguments: tuple[str, ...]) -> None:
        self.code = main(arguments)


def test_without_a_word_nothing_is_done(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A run without consent says what would be done, with --json too."""
    plan = write(path, client)
    for arguments in ((), ("--dry-run",), ("--dry-run", "--yes")):
        assert main(["apply", str(path), *arguments]) == 0
        out = capsys.readouterr().out
        assert all(step.id in out for step in plan.steps)
        assert f"plan {plan.plan_id[7:15]} of cluster fake" in out
    assert main(["apply", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["plan_id"] == plan.plan_id
    assert {step["outlook"] for step in shown["steps"]} == {"do"}
    assert client.cluster.seen_steps == []
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_apply_and_rollback(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """spark §6.12: apply, then rollback: masters and copies are where they were; and the journal says so."""
    before = {key: (queue.master, set(queue.ring)) for key, queue in client.cluster.queues.items()}
    plan = write(path, client)
    assert main(["apply", str(path), "--yes"]) == 0
    out = capsys.readouterr().out
    assert "is done" in out
    after = {key: (queue.master, set(queue.ring)) for key, queue in client.cluster.queues.items()}
    assert after != before
    assert main(["apply", str(path), "--yes"]) == 0
    assert "nothing to do" in capsys.readouterr().err
    undo = tmp_path / "undo.json"
    assert main(["rollback", plan.plan_id[7:15], "-o", str(undo)]) == 0
    assert main(["apply", str(undo), "--yes", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["state"] == "done"
    assert {key: (queue.master, set(queue.ring)) for key, queue in client.cluster.queues.items()} == before
    place = Place(tmp_path / "state", plan.plan_id)
    assert read(place.journal).state is PlanState.ROLLED_BACK
    assert main(["rollback", plan.plan_id, "-o", str(undo)]) == 2
    assert main(["apply", str(path), "--yes"]) == 2
    assert "rolled-back" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_is_undone_on_another_machine(
    client: FakeClient, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the plan were copied there; the file that was applied is not needed."""
    before = {key: (queue.master, set(queue.ring)) for key, queue in client.cluster.queues.items()}
    plan = write(path, client)
    assert main(["apply", str(path), "--yes"]) == 0
    shutil.copytree(tmp_path / "state", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "state")
    path.unlink()
    monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / "elsewhere"))
    undo = tmp_path / "undo.json"
    assert main(["rollback", plan.plan_id[7:15], "-o", str(undo)]) == 0
    assert main(["apply", str(undo), "--yes"]) == 0
    assert {key: (queue.master, set(queue.ring)) for key, queue in client.cluster.queues.items()} == before


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that refuses."""
    capsys.readouterr()
    code = main(arguments)
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert code != 0
    assert len(lines) == 1, lines
    return lines[0]


def test_bad_plans_are_refused(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Stale, edited, expired, foreign, torn: one clear line, before the first step."""
    write(path, client)
    good = path.read_text()
    apply = ("apply", str(path), "--yes")
    path.write_text(good.replace('"min_synced":2', '"min_synced":1', 1))
    assert "edited" in refused(capsys, *apply)
    path.write_text(good[: len(good) // 2])
    assert "no plan" in refused(capsys, *apply)
    path.write_bytes(b"\xff")
    assert "no plan" in refused(capsys, *apply)
    path.unlink()
    assert "No such file" in refused(capsys, *apply)
    write(path, client, now=time.time() - 4000)
    assert "expired" in refused(capsys, *apply)
    write(path, client, now=time.time() + 4000)
    assert "yet to come" in refused(capsys, *apply)
    write(path, client, name="other")
    assert "for the cluster 'other'" in refused(capsys, *apply)
    path.write_text(good)
    client.cluster.view_id += 1
    assert "membership changed" in refused(capsys, *apply)
    client.cluster.view_id -= 1
    client.cluster.queues["/", "b"].uid = "0" * 32
    assert "the plan is stale: step" in refused(capsys, *apply)
    client.cluster.queues["/", "a"].uid = "0" * 32
    assert "the plan is stale: step" in refused(capsys, *apply, "--on-stale", "skip")
    client.is_silent = True
    assert "does not answer" in refused(capsys, *apply)
    assert client.cluster.seen_steps == []
    assert not (tmp_path / "state").exists()


def test_commands_without_a_plan(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each says what is wrong in one line."""
    for command in ("pause", "resume", "abort"):
        assert "no plan in" in refused(capsys, command, "abcdef12")
        assert "no id of a plan" in refused(capsys, command, "nothing")
    assert "no plan in" in refused(capsys, "rollback", "abcdef12", "-o", str(tmp_path / "x"))
    write(path, client)
    assert "never begun" in refused(capsys, "resume", str(path))
    assert "never begun" in refused(capsys, "rollback", str(path), "-o", str(tmp_path / "x"))
    assert "never begun" in refused(capsys, "pause", str(path))
    assert "never begun" in refused(capsys, "abort", str(path))


def test_an_alarm_or_another_plan(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing is begun, and no journal is left."""
    plan = write(path, client)
    client.cluster.alarms.add("memory on rabbit@n2")
    assert "an alarm is set: memory on rabbit@n2" in refused(capsys, "apply", str(path), "--yes")
    client.cluster.alarms.clear()
    client.cluster.put_lock({"plan": "sha256:x", "owner": "eve", "ttl_s": 1e6}, time.time())
    assert "of eve is being carried out since" in refused(capsys, "apply", str(path), "--yes")
    assert not Place(tmp_path / "state", plan.plan_id).journal.exists()


@pytest.mark.slow
def test_pause_resume_and_abort(
    client: FakeClient,
    path: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    in_background: Callable[..., Background],
) -> None:
    """The operator's orders reach the process that carries it out; abort also works without one."""
    for queue in client.cluster.queues.values():
        queue.size_s = 2.0
    plan = write(path, client)
    place, id_ = Place(tmp_path / "state", plan.plan_id), plan.plan_id[7:17]
    running = in_background("apply", str(path), "--yes")
    wait_until(lambda: place.journal.exists() and read(place.journal).state is PlanState.RUNNING)
    assert "another process" in refused(capsys, "apply", str(path), "--yes")
    assert main(["pause", id_]) == 0
    wait_until(lambda: read(place.journal).state is PlanState.PAUSED)
    assert "being carried out" in refused(capsys, "rollback", id_, "-o", str(tmp_path / "u"))
    assert main(["resume", id_]) == 0
    wait_until(lambda: read(place.journal).state is PlanState.RUNNING)
    assert main(["abort", id_]) == 0
    wait_until(lambda: running.code is not None)
    assert running.code == 1
    assert not is_busy(place.journal)
    assert read(place.journal).state is PlanState.ABORTED
    assert client.cluster.lock is None
    assert "is aborted" in refused(capsys, "resume", id_)
    assert "is aborted" in refused(capsys, "abort", id_)
    undo = tmp_path / "undo.json"
    assert main(["rollback", id_, "-o", str(undo)]) == 0
    assert main(["apply", str(undo), "--yes"]) == 0


@pytest.mark.slow
def test_a_health_document_that_falls(
    client: FakeClient, path: Path, tmp_path: Path, in_background: Callable[..., Background]
) -> None:
    """spark §3.4: a score that drops by more than 10 aborts."""
    for queue in client.cluster.queues.values():
        queue.size_s = 1000.0
    plan = write(path, client)
    health = tmp_path / "health.json"
    health.write_text('{"score": 90}')
    place = Place(tmp_path / "state", plan.plan_id)
    running = in_background("apply", str(path), "--yes", "--health", str(health))
    wait_until(lambda: place.journal.exists() and read(place.journal).state is PlanState.RUNNING)
    health.write_text('{"score": 70}')
    wait_until(lambda: running.code is not None)
    assert read(place.journal).why == "the health score fell from 90 to 70"


@pytest.mark.real
def test_no_spark_is_imported() -> None:
    """These commands start at once: neither pyspark nor numpy is loaded."""
    names = "apply pause resume abort rollback"
    code = (
        "import sys\nfrom importlib import import_module\n"
        f"for name in {names!r}.split(): import_module('spark_ops.cli.' + name)\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


@pytest.mark.parametrize(
    ("came_from", "environ", "expected"),
    [
        (None, {}, "http://localhost:15672"),
        ("http://127.0.0.1:16672", {}, "http://127.0.0.1:16672"),
        ("http://[::1]:16672", {}, "http://[::1]:16672"),
        ("http://evil.example:16672", {"SPARK_OPS_URL": "http://n1:1"}, "http://n1:1"),
    ],
)
def test_where_a_plan_came_from_is_where_it_goes(
    came_from: str | None, environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_OPS_URL", raising=False)
    for name, value in {"SPARK_OPS_USER": "u", **environ}.items():
        monkeypatch.setenv(name, value)
    arguments = argparse.Namespace(url=None, ca_file=None)
    [found] = carrying_out.client(arguments, came_from)._addresses
    assert found.shown == expected


@pytest.mark.parametrize(
    "came_from", ["http://evil.example:16672", "http://localhost@evil.example", "http://["]
)
def test_a_plan_sends_no_password_to_another_machine_by_itself(
    came_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_OPS_URL", raising=False)
    with pytest.raises(OpsError, match="--url"):
        carrying_out.client(argparse.Namespace(url=None, ca_file=None), came_from)
