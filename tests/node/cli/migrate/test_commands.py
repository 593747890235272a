"""The commands of a migration against brokers in memory: each can be run again, wherever it was interrupted."""

import errno
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from node.cli.main import main
from node.cli.migrate import cut_over, looking, plan, watch
from node.cli.migrate.state import State
from node.migrate.cut_over import SETTLED_S
from node.migrate.history import History, Record
from tests.node.cli.migrate.fake_broker import FakeBroker
from tests.node.migrate.sites import connection_row, consumer_row, counters, queue_row

Run = Callable[..., int]


@pytest.fixture
def old() -> FakeBroker:
    found = FakeBroker("old")
    found.queues = {name: queue_row(name, 5) for name in ("a", "b")}
    return found


@pytest.fixture
def new() -> FakeBroker:
    return FakeBroker("new", is_fluffle=True, plugins=("rabbitmq_management",))


@pytest.fixture
def run(old: FakeBroker, new: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `fluffle migrate WORDS` with both brokers, and a clock that moves as far as is slept."""
    now = [0.0]

    class Clock:
        time = staticmethod(lambda: 1e9 + now[0])
        monotonic = staticmethod(lambda: now[0])

        @staticmethod
        def sleep(seconds: float) -> None:
            now[0] += seconds

    def api_of(urls: str, ca_file: str | None) -> Any:
        return new if "new" in urls else old

    for module in (looking, plan):
        monkeypatch.setattr(module, "api_of", api_of)
    monkeypatch.setattr(cut_over, "time", Clock)
    monkeypatch.setattr(looking, "time", Clock)

    def run(*words: str) -> int:
        return main(["migrate", *words, "--state", str(tmp_path / "state")])

    return run


def started(run: Run) -> None:
    assert run("plan", "old", "--to", "new") == 0
    assert run("start") == 0


def with_consumer(old: FakeBroker, queue: str) -> None:
    old.options |= {"connections": [connection_row("c")], "consumers": [consumer_row("c", queue)]}


def records(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "state" / "journal.log").read_text().splitlines()]


def test_a_plan_changes_nothing(
    run: Run, old: FakeBroker, new: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("plan", "old", "--to", "new", "--json") == 0
    assert old.asked == new.asked == []
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["queues"]] == ["a", "b"]
    assert (tmp_path / "state" / "plan.json").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "state" / "journal.log").exists()


def test_a_plan_that_blocks(run: Run, old: FakeBroker, new: FakeBroker) -> None:
    """Nothing is started unless what blocks is accepted."""
    old.queues["s"] = queue_row("s", 5, type="stream", arguments={"x-queue-type": "stream"})
    assert run("plan", "old", "--to", "new") == 1
    assert run("start") == 1
    assert new.asked == []
    assert run("start", "--accept") == 0
    assert set(new.queues) == {"a", "b"}


def test_a_bad_pattern_is_a_bad_command_line(run: Run) -> None:
    assert run("plan", "old", "--queues", "(") == 64


def test_steps_need_a_plan_with_two_ends(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("start") == 2
    assert "run `fluffle migrate plan` first" in capsys.readouterr().err
    run("plan", "old")
    assert run("start") == 2
    assert "--to" in capsys.readouterr().err


def test_start_makes_shovels_where_nobody_consumes(run: Run, old: FakeBroker, new: FakeBroker) -> None:
    with_consumer(old, "a")
    started(run)
    assert [name for _, name in old.shovels] == ["fluffle-migrate b"]
    assert new.users.keys() == {"fluffle-migrate"}
    uri = old.shovels["/", "fluffle-migrate b"]["dest-uri"][0]
    assert f":{new.users['fluffle-migrate']['password']}@10.0.1.1:5672" in uri


def test_start_again_makes_what_is_missing(run: Run, old: FakeBroker) -> None:
    """Shovels that run are not touched: one that is set again begins anew, and messages under way come twice."""
    started(run)
    assert old.count("PUT /parameters") == 2
    old.shovels.popitem()
    old.queues["c"] = queue_row("c", 5)
    assert run("start") == 0
    assert old.count("PUT /parameters") == 4
    assert len(old.shovels) == 3


def test_a_new_password_makes_all_shovels_again(run: Run, old: FakeBroker, tmp_path: Path) -> None:
    started(run)
    (tmp_path / "state" / "password").unlink()
    assert run("start") == 0
    assert old.count("PUT /parameters") == 4


@pytest.mark.parametrize("changes", range(2))
def test_a_start_that_is_interrupted_goes_on(changes: int, run: Run, old: FakeBroker, tmp_path: Path) -> None:
    run("plan", "old", "--to", "new")
    old.fails_after = changes
    assert run("start") == 2
    old.fails_after = None
    assert run("start") == 0
    assert len(old.shovels) == 2
    assert [each["stage"] for each in records(tmp_path) if each["what"] == "stage"] == ["started"]


def test_no_password_is_printed_or_kept(
    run: Run, new: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The password of the shovels' user is in its own file alone."""
    started(run)
    password = new.users["fluffle-migrate"]["password"]
    assert password not in "".join(capsys.readouterr())
    has_it = [path.name for path in (tmp_path / "state").iterdir() if password in path.read_text()]
    assert has_it == ["password"]
    assert (tmp_path / "state" / "password").stat().st_mode & 0o777 == 0o600


def test_consumers_are_waited_for(
    run: Run, old: FakeBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shovel of a queue begins when its consumers have left, and not before."""
    with_consumer(old, "a")
    started(run)
    assert run("cut-over", "consumers", "--timeout", "10") == 1
    assert "1 consumer" in capsys.readouterr().err
    assert len(old.shovels) == 1
    slept = cut_over.time.sleep

    def leave(seconds: float) -> None:
        slept(seconds)
        old.options["consumers"] = []

    monkeypatch.setattr(cut_over.time, "sleep", staticmethod(leave))
    assert run("cut-over", "consumers") == 0
    assert len(old.shovels) == 2


def test_no_shovel_is_left_behind_by_a_journal_that_cannot_be_written(
    run: Run, old: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shovel that the journal does not know would run against the one of the way back."""
    with_consumer(old, "a")
    started(run)
    old.options["consumers"] = []
    append = State.append

    def full(state: State, past: History, found: Iterable[Record]) -> None:
        kept = list(found)
        if any(each["what"] == "shovel" for each in kept):
            raise OSError(errno.ENOSPC, "No space left on device")
        append(state, past, kept)

    with monkeypatch.context() as patched:
        patched.setattr(State, "append", full)
        assert run("cut-over", "consumers") == 2
    assert run("back") == 0
    assert {name for _, name in old.shovels} == {f"fluffle-migrate-back {name}" for name in ("a", "b")}


def test_a_shovel_that_is_missing_is_told_with_its_remedy(
    run: Run, old: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    started(run)
    old.shovels.popitem()
    assert run("cut-over", "consumers") == 1
    assert "is missing: run `fluffle migrate start` again" in capsys.readouterr().err
    assert run("start") == 0
    assert run("cut-over", "consumers") == 0


def test_consumers_get_a_shovel_that_is_missing_where_its_state_is_not_told(
    run: Run, old: FakeBroker
) -> None:
    """RabbitMQ tells no states without the plug-in for management."""
    started(run)
    old.shovels.popitem()
    old.options["shovels"] = None
    assert run("cut-over", "consumers") == 0
    assert len(old.shovels) == 2


def test_close_closes_consumers_only(run: Run, old: FakeBroker) -> None:
    with_consumer(old, "a")
    old.options["connections"] = [connection_row("c"), connection_row("p 1")]
    started(run)
    run("cut-over", "consumers", "--close", "--timeout", "0")
    assert [path for method, path in old.asked if method == "DELETE"] == ["/connections/c"]
    old.options["consumers"] = []
    assert run("cut-over", "consumers", "--timeout", "0") == 0
    assert run("cut-over", "publishers", "--close") == 0
    assert ("DELETE", "/connections/p%201") in old.asked


def test_a_check_changes_nothing(run: Run, old: FakeBroker, new: FakeBroker) -> None:
    started(run)
    asked = len(old.asked), len(new.asked)
    assert run("cut-over", "--check") == 0
    assert (len(old.asked), len(new.asked)) == asked


def test_publishers_are_refused_before_consumers(
    run: Run, old: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with_consumer(old, "a")
    started(run)
    assert run("cut-over", "publishers") == 1
    assert "queue 'a' in '/' has 1 consumer at RabbitMQ still" in capsys.readouterr().err
    assert run("cut-over", "finish") == 1


def test_the_end_waits_until_all_is_empty(run: Run, old: FakeBroker, new: FakeBroker, tmp_path: Path) -> None:
    """Shovels stay while there is a message, and go with their user and its password."""
    started(run)
    assert run("cut-over", "consumers") == 0
    assert run("cut-over", "publishers") == 0
    assert run("cut-over", "finish", "--timeout", "5") == 1
    assert len(old.shovels) == 2
    for name in old.queues:
        old.queues[name] = queue_row(name, 0, **counters(0, 5))
        new.queues[name] = queue_row(name, 5, **counters(5, 0))
    assert run("cut-over", "finish", "--timeout", str(SETTLED_S / 2)) == 1
    assert run("cut-over") == 0
    assert (old.shovels, new.users) == ({}, {})
    assert not (tmp_path / "state" / "password").exists()
    assert run("report") == 0
    assert run("cut-over") == 1
    assert run("start") == 1


@pytest.mark.parametrize("changes", range(3))
def test_an_end_that_is_interrupted_goes_on(changes: int, run: Run, old: FakeBroker, new: FakeBroker) -> None:
    """Queues that are empty need no shovel any more."""
    started(run)
    assert run("cut-over", "consumers") == 0
    assert run("cut-over", "publishers") == 0
    for name in old.queues:
        old.queues[name] = queue_row(name, 0, **counters(0, 5))
        new.queues[name] = queue_row(name, 5, **counters(5, 0))
    broker = old if changes < 2 else new
    broker.fails_after = changes % 2
    assert run("cut-over") == 2
    broker.fails_after = None
    assert run("cut-over") == 0
    assert (old.shovels, new.users) == ({}, {})


def test_a_message_that_is_missing_makes_the_report_fail(run: Run, old: FakeBroker, new: FakeBroker) -> None:
    started(run)
    old.queues["a"] = queue_row("a", 0, **counters(0, 5))
    new.queues["a"] = queue_row("a", 4, **counters(5, 0))
    assert run("report", "--json") == 1


def test_back_turns_the_shovels_round(run: Run, old: FakeBroker, new: FakeBroker) -> None:
    """A queue that is at Fluffle alone is made at RabbitMQ, and `start` turns it round once more."""
    started(run)
    new.queues["fresh"] = queue_row("fresh", 3)
    assert run("back") == 0
    assert {name for _, name in old.shovels} == {
        f"fluffle-migrate-back {name}" for name in ("a", "b", "fresh")
    }
    assert "fresh" in old.queues
    assert old.shovels["/", "fluffle-migrate-back a"]["dest-uri"] == ["amqp:///%2F"]
    assert run("back") == 0
    assert old.count("PUT /parameters") == 5
    assert run("start") == 0
    assert {name for _, name in old.shovels} == {f"fluffle-migrate {name}" for name in ("a", "b", "fresh")}


def test_later_steps_know_all_nodes(
    run: Run, new: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan by several URLs goes on when the first node is down."""
    new.all_shown = ("http://new:15672", "http://new2:15672")
    assert run("plan", "old", "--to", "new") == 0
    asked = []
    api_of = looking.api_of
    monkeypatch.setattr(looking, "api_of", lambda urls, file: asked.append(urls) or api_of(urls, file))
    assert run("start") == 0
    assert asked == ["http://old:15672", "http://new:15672,http://new2:15672"]


def test_watch_shows_both_ends(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    started(run)
    capsys.readouterr()
    assert run("watch", "--once", "--json") == 0
    assert json.loads(capsys.readouterr().out)["messages_source"] == 10
    assert run("watch", "--once") == 0
    assert "10 at RabbitMQ, 0 at Fluffle" in capsys.readouterr().out


def test_a_long_watch_does_not_fill_the_journal(
    run: Run, old: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal beyond its limit could not be read by the steps that follow."""
    started(run)
    old.queues["a"] = queue_row("a", 4, **counters(0, 1))
    monkeypatch.setattr(watch, "SAMPLED_MAX_BYTES", (tmp_path / "state" / "journal.log").stat().st_size)
    before = len(records(tmp_path))
    assert run("watch", "--once") == 0
    assert len(records(tmp_path)) == before


def test_shovels_at_fluffle(run: Run, old: FakeBroker, new: FakeBroker) -> None:
    """The user is at RabbitMQ then, and RabbitMQ needs no plug-in."""
    new.options["plugins"] = ("rabbitmq_shovel",)
    old.options["plugins"] = ()
    started(run)
    assert len(new.shovels) == 2
    assert old.users.keys() == {"fluffle-migrate"}
    assert new.shovels["/", "fluffle-migrate a"]["dest-uri"] == ["amqp:///%2F"]
