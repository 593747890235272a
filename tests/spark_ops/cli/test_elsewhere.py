"""A plan that one machine began is resumed or undone by another one, which has no file of it."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from spark_ops.applying import cluster_journals
from spark_ops.applying.cluster_journals import JOURNAL, PLAN, PLANS_MAX, Copy, kept_plans
from spark_ops.applying.history import History
from spark_ops.applying.journal import Place, read
from spark_ops.applying.states import PlanState, StepState
from spark_ops.cli.main import main
from tests.spark_ops.cli.test_apply import FakeClient, client, path, refused, write

__all__ = ["client", "path"]


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: FakeClient) -> Any:
    """Make this process another machine: one with an empty directory of journals."""

    def become(name: str) -> Path:
        monkeypatch.setenv("SPARK_OPS_STATE", str(tmp_path / name))
        return tmp_path / name

    return become


def shape(client: FakeClient) -> dict[Any, Any]:
    return {key: (queue.master, set(queue.ring)) for key, queue in client.cluster.queues.items()}


@pytest.mark.slow
def test_another_machine_resumes_and_a_third_one_undoes(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, other: Any
) -> None:
    before = shape(client)
    plan = write(path, client)
    assert main(["apply", str(path), "--yes", "--wave", "1"]) in (0, 1)
    first = read(Place(tmp_path / "state", plan.plan_id).journal)
    path.unlink()
    there = other("second")
    if first.state is PlanState.PAUSED:
        assert main(["resume", plan.plan_id[7:15]]) == 0
        assert "came from the cluster" in capsys.readouterr().err
        second = read(Place(there, plan.plan_id).journal)
        assert second.state is PlanState.DONE
        assert second.owner != first.owner
    after = shape(client)
    assert after != before
    third, undo = other("third"), tmp_path / "undo.json"
    assert main(["rollback", plan.plan_id[7:15], "-o", str(undo)]) == 0
    assert main(["apply", str(undo), "--yes"]) == 0
    assert shape(client) == before
    assert read(Place(third, plan.plan_id).journal).state is PlanState.ROLLED_BACK
    other("state")
    assert "already been rolled back" in refused(capsys, "rollback", plan.plan_id[7:15], "-o", str(undo))


def begin(client: FakeClient, path: Path) -> Any:
    """A plan that was paused before its first step ended, by a machine that is gone."""
    plan = write(path, client)
    state = path.parent / "state"
    copy = Copy(client, plan.cluster, History(), path.read_bytes(), len(plan.steps))
    place = Place(state, plan.plan_id)
    from spark_ops.applying.journal import Journal

    records: list[dict[str, Any]] = [
        {"at": time.time(), "plan": plan.plan_id, "to": "running", "owner": "gone#1", "why": None},
        {"at": time.time(), "step": "s1", "to": "sent"},
    ]
    journal = Journal(place.journal)
    journal.write(records)
    journal.close()
    copy.write(records)
    shutil.copy(path, place.plan)
    return plan


def test_a_plan_that_is_carried_out_stays_where_it_is(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], other: Any
) -> None:
    """The lock keeps machines apart: it is held by another name, so nothing is brought here."""
    plan = begin(client, path)
    client.cluster.put_lock({"plan": plan.plan_id, "owner": "gone#1", "ttl_s": 30}, time.time())
    there = other("second")
    for command in (["resume", plan.plan_id], ["rollback", plan.plan_id, "-o", str(path)]):
        assert "gone#1 carries out this plan" in refused(capsys, *command)
    assert not there.exists()


@pytest.mark.slow
def test_the_first_machine_learns_what_the_second_did(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, other: Any
) -> None:
    """Otherwise it would find all steps done by nobody, and its rollback would undo nothing."""
    before = shape(client)
    plan = begin(client, path)
    other("second")
    assert main(["resume", plan.plan_id]) == 0
    assert shape(client) != before
    there = other("state")
    undo = tmp_path / "undo.json"
    assert main(["rollback", plan.plan_id, "-o", str(undo)]) == 0
    found = read(Place(there, plan.plan_id).journal)
    assert found.state is PlanState.DONE
    assert StepState.DONE in found.steps.values()
    assert main(["apply", str(undo), "--yes"]) == 0
    assert shape(client) == before


@pytest.mark.slow
def test_without_the_copy_a_plan_goes_on(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], other: Any
) -> None:
    plan = write(path, client)
    client.refuses_parameters = True
    assert main(["apply", str(path), "--yes"]) == 0
    assert "other machines cannot resume this plan or undo it: " in capsys.readouterr().err
    client.refuses_parameters = False
    other("second")
    assert "the cluster keeps none" in refused(capsys, "resume", plan.plan_id)


def test_what_the_cluster_keeps_is_checked(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], other: Any
) -> None:
    """A plan of another id, an edited one, and one that is none: one line each."""
    plan = begin(client, path)
    there = other("second")
    name = next(name for name in client.parameters if name.startswith(PLAN))
    good = client.parameters[name]
    from spark_ops.applying.kept_journal import packed

    edited = path.read_bytes().replace(b'"min_synced":2', b'"min_synced":1', 1)
    write(path, client, now=time.time() - 60)
    for wrong, what in ((packed(edited), "edited"), ("AAAA", "compressed"), (7, "no plan")):
        client.parameters[name] = wrong
        assert what in refused(capsys, "resume", plan.plan_id)
    client.parameters[name] = packed(path.read_bytes())
    assert "another plan" in refused(capsys, "resume", plan.plan_id)
    del client.parameters[name]
    assert "does not give the plan" in refused(capsys, "resume", plan.plan_id)
    client.parameters[name] = good
    client.parameters[name.replace(PLAN, JOURNAL)] = {"format": "other"}
    assert "keeps none" in refused(capsys, "resume", plan.plan_id)
    assert not there.exists()


def test_a_cluster_keeps_a_bounded_number_of_plans(client: FakeClient) -> None:
    """The oldest of those that have ended go first; what is no journal goes, too; other parameters stay."""
    client.parameters = {"cluster_name": "x", f"{PLAN}{'f' * 16}": "orphan"}

    def keep(number: int, state: str) -> None:
        plan = f"sha256:{number:016}"
        copy = Copy(client, "c", History(), b"plan", 1)
        copy.write([{"at": float(number), "plan": plan, "to": "running", "owner": "me"}])
        copy.write([{"at": float(number), "plan": plan, "to": state, "owner": "me"}])
        assert copy.why_not is None

    keep(1, "paused")
    for number in range(2, PLANS_MAX + 3):
        keep(number, "done")
    found = {each.digits for each in kept_plans(client)}
    assert found == {f"{number:016}" for number in (1, *range(4, PLANS_MAX + 3))}
    assert len(client.parameters) == 2 * PLANS_MAX + 1
    assert client.parameters["cluster_name"] == "x"


def test_a_cluster_in_trouble_is_not_asked_in_vain(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    request = client.request
    monkeypatch.setattr(client, "request", lambda *given: asked.append(given[0]) or request(*given))
    client.is_silent = True
    copy = Copy(client, "c", History(), b"plan", 1)
    copy.write([{"at": 1.0, "plan": "sha256:1", "to": "running", "owner": "me"}])
    for number in range(10):
        copy.write([{"at": 2.0, "step": f"s{number}", "to": "sent"}])
    assert len(asked) == cluster_journals.FAILURES_MAX
    assert copy.why_not is not None


def test_what_makes_no_difference_is_not_written(client: FakeClient) -> None:
    copy = Copy(client, "c", History(), b"plan", 1)
    copy.write([{"at": 1.0, "plan": "sha256:1", "to": "running", "owner": "me"}])
    before = dict(client.parameters)
    client.parameters.clear()
    copy.write([{"at": 2.0, "step": "s1", "to": "sent", "goes_on": True}])
    assert client.parameters == {}
    copy.write([{"at": 3.0, "step": "s1", "to": "done"}])
    assert set(client.parameters) == {name for name in before if name.startswith(JOURNAL)}


def test_a_large_plan_is_not_kept(client: FakeClient) -> None:
    copy = Copy(client, "c", History(), b"plan", 1001)
    copy.write([{"at": 1.0, "plan": "sha256:1", "to": "running", "owner": "me"}])
    assert client.parameters == {}
    assert copy.why_not == "it is too large for the cluster's metadata"
