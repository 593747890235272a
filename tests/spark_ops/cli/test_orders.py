"""A plan that one machine carries out is paused or aborted from another one, by way of the cluster."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ops.applying import cluster_orders
from spark_ops.applying.cluster_journals import JOURNAL, ORDER, Copy, digits_of
from spark_ops.applying.cluster_orders import FORMAT, NotTaken, Orders, give
from spark_ops.applying.history import History
from spark_ops.applying.journal import Place, read
from spark_ops.applying.states import PlanState, StepState
from spark_ops.cli.main import main
from tests.kit.patience import wait_until
from tests.spark_ops.cli.test_apply import Background, FakeClient, client, in_background, path, refused, write
from tests.spark_ops.cli.test_elsewhere import begin, other, shape

__all__ = ["client", "in_background", "other", "path"]

PLAN = "sha256:" + "ab12" * 16
NAME = f"{ORDER}{digits_of(PLAN)}"


def test_an_order_is_taken_once_and_by_whom_it_names(client: FakeClient) -> None:
    value = {"format": FORMAT, "order": "pause", "to": "me#1", "by": "you#2", "at": 1.0}
    client.parameters[NAME] = value
    assert Orders(client, PLAN, "else#3").take() is None
    assert client.parameters[NAME] == value
    mine = Orders(client, PLAN, "me#1")
    assert mine.take() == "pause"
    assert client.parameters[NAME] == {**value, "taken": True}
    assert mine.take() is None
    for wrong in (7, {**value, "format": "other"}, {**value, "order": "dance"}):
        client.parameters[NAME] = wrong
        assert mine.take() is None
    client.is_silent = True
    assert mine.take() is None


def test_an_order_that_nobody_takes_is_withdrawn(client: FakeClient) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def given(by: Callable[[float], None]) -> None:
        give(client, PLAN, "me#1", "abort", "you#2", clock=lambda: now[0], sleep=by)

    with pytest.raises(NotTaken, match="me#1 did not take the order within 30 s"):
        given(sleep)
    assert client.parameters == {}

    def dropped_then_taken(seconds: float) -> None:
        """A run that begins removes the order, and takes it when it comes again."""
        sleep(seconds)
        if now[0] < until:
            client.parameters.clear()
        else:
            Orders(client, PLAN, "me#1").take()

    until = now[0] + 2.0
    given(dropped_then_taken)
    assert now[0] >= until
    assert client.parameters == {}
    client.refuses_parameters = True
    with pytest.raises(NotTaken, match="did not take the order: no majority"):
        given(sleep)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["pause", "abort"])
def test_another_machine_pauses_or_aborts(
    client: FakeClient,
    path: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    in_background: Callable[..., Background],
    other: Any,
    order: str,
) -> None:
    """The process ends after its current steps. After a pause, a third machine goes on with the plan."""
    for queue in client.cluster.queues.values():
        queue.size_s = 1.0
    before = shape(client)
    plan = write(path, client)
    journal = Place(tmp_path / "state", plan.plan_id).journal
    running = in_background("apply", str(path), "--yes")
    wait_until(lambda: journal.exists() and StepState.SENT in read(journal).steps.values())
    path.unlink()
    other("second")
    assert main([order, plan.plan_id[7:17]]) == 0
    wait_until(lambda: running.code is not None)
    assert not any(name.startswith(ORDER) for name in client.parameters)
    found = read(journal)
    if order == "abort":
        assert (found.state, running.code) == (PlanState.ABORTED, 1)
        assert main(["resume", plan.plan_id[7:17]]) == 2
        assert "this plan is aborted" in capsys.readouterr().err
        return
    assert (found.state, running.code) == (PlanState.PAUSED, 130)
    assert client.cluster.lock is None
    other("third")
    assert main(["resume", plan.plan_id[7:17]]) == 0
    assert shape(client) != before


def test_a_plan_that_nobody_carries_out(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, other: Any
) -> None:
    """A plan without a process cannot be paused. Any machine may abort it, and all others learn so from the cluster."""
    plan = begin(client, path)
    other("second")
    assert "no plan in" in refused(capsys, "pause", plan.plan_id)
    assert main(["abort", plan.plan_id]) == 0
    assert "is aborted" in capsys.readouterr().out
    (name,) = (name for name in client.parameters if name.startswith(JOURNAL))
    assert client.parameters[name]["state"] == "aborted"
    other("third")
    assert main(["resume", plan.plan_id]) == 2
    assert "this plan is aborted" in capsys.readouterr().err
    other("state")
    assert "this plan is aborted" in refused(capsys, "resume", plan.plan_id)
    assert "it is aborted" in refused(capsys, "pause", plan.plan_id)


def test_without_an_answer_a_plan_of_this_machine_is_aborted_here(
    client: FakeClient, path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, other: Any
) -> None:
    plan = begin(client, path)
    client.is_silent = True
    assert main(["abort", plan.plan_id]) == 0
    assert "not asked whether another machine" in capsys.readouterr().err
    assert read(Place(tmp_path / "state", plan.plan_id).journal).state is PlanState.ABORTED
    other("second")
    assert "does not answer" in refused(capsys, "abort", plan.plan_id)


def test_an_order_that_the_lock_holder_does_not_take_is_told(
    client: FakeClient,
    path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    other: Any,
) -> None:
    """The plan's process has died, and the lock has not expired yet."""
    plan = begin(client, path)
    client.cluster.put_lock({"plan": plan.plan_id, "owner": "gone#1", "ttl_s": 30}, time.time())
    monkeypatch.setattr(cluster_orders, "TAKEN_S", 0.0)
    other("second")
    for order in ("pause", "abort"):
        assert "gone#1 did not take the order" in refused(capsys, order, plan.plan_id)
    assert not any(name.startswith(ORDER) for name in client.parameters)


def test_an_order_to_an_earlier_run_is_dropped(client: FakeClient) -> None:
    """A run begins with nothing to do but its plan; orders of forgotten plans go, too."""
    client.parameters[NAME] = client.parameters[f"{ORDER}{'f' * 16}"] = {"order": "abort"}
    copy = Copy(client, "c", History(), b"plan", 1)
    copy.write([{"at": 1.0, "plan": PLAN, "to": "running", "owner": "me#1"}])
    assert not any(name.startswith(ORDER) for name in client.parameters)
