"""`spark-ops apply` shows what a plan would do now; with the operator's approval, it does it."""

import argparse
import getpass
import json
import secrets
import socket
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Literal

from spark_ops.applying.client import Client
from spark_ops.applying.cluster_journals import Copy
from spark_ops.applying.cluster_orders import Orders
from spark_ops.applying.history import History, JournalDamaged
from spark_ops.applying.journal import Journal, JournalBusy, Place, keep, read
from spark_ops.applying.observation import Queue
from spark_ops.applying.outlook import Outlook, outlooks, reason_to_refuse
from spark_ops.applying.runner import Options, Runner
from spark_ops.applying.shell import Shell, score, steady_clock
from spark_ops.applying.states import EDGES, ENDED, SUCCEEDED, PlanState
from spark_ops.applying.throttle import Limits
from spark_ops.applying.work import works
from spark_ops.cli import carrying_out as common
from spark_ops.cli import elsewhere
from spark_ops.cli.errors import EX_ENGINE, EX_FINDINGS, OpsError
from spark_ops.planning.plan import Plan, PlanError, refuse_unless_valid
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.sizes import size_of

RATE_DEFAULT: Final = "20MB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", type=Path, help="the plan's file")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument("--yes", action="store_true", help="apply the plan without asking for approval")
    parser.add_argument("--json", action="store_true", help="print the dry run, or the final state, as JSON")
    add_run_arguments(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `resume` shares."""
    parser.add_argument("--wave", type=int, metavar="N", help="only this wave")
    parser.add_argument(
        "--rate",
        type=rate,
        default=RATE_DEFAULT,
        help=f"the most bytes to copy per second; 0: no limit (default: {RATE_DEFAULT})",
    )
    parser.add_argument(
        "--on-stale",
        choices=("skip", "stop"),
        default="stop",
        help="when the cluster is not as a step expects: skip that queue, or stop (default: stop)",
    )
    parser.add_argument(
        "--health",
        type=Path,
        metavar="FILE",
        help="a health document that another process keeps up to date: a falling score aborts the plan",
    )
    common.add_cluster_arguments(parser)
    common.add_place_argument(parser)


def rate(text: str) -> float:
    """Return bytes per second of `20MB/s`, `512k`, `1GiB`. Raises: argparse.ArgumentTypeError."""
    found = size_of(text.strip().lower().removesuffix("/s"))
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write 20MB/s, for example")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Apply a plan from its file."""
    return apply(common.read_plan(arguments.plan), arguments, arguments.plan.read_bytes())


def apply(plan: Plan, arguments: argparse.Namespace, data: bytes, *, is_resuming: bool = False) -> int:
    """Show the outlook, ask for approval, and apply.   data: the plan's file. Returns: exit code. Raises: OpsError."""
    clock = steady_clock()
    place = Place(common.directory(arguments), plan.plan_id)
    past = common.past(place)
    refuse_by_state(past, on_stale=arguments.on_stale)
    if arguments.health is not None and score(arguments.health) is None:
        raise OpsError(f"{arguments.health} is not a health document with a score")
    nodes = common.client(arguments, plan.came_from)
    current = check(plan, nodes, clock())
    waiting = [step for step in works(plan) if past.state_of(step.id) not in ENDED]
    found = outlooks([step for step in waiting if arguments.wave in (None, step.wave)], current)
    if not is_resuming:
        show(plan, found, is_json=wants_json(arguments) and not arguments.yes)
    if not waiting:
        print(f"nothing to do: plan {common.short(plan.plan_id)} is {past.state}", file=sys.stderr)
        return 0
    if reason := reason_to_refuse(found, on_stale=arguments.on_stale):
        raise OpsError(reason, EX_FINDINGS)
    if not is_resuming and not is_approved(plan, arguments):
        return 0
    try:
        keep(place.plan, data)
        journal = Journal(place.journal)
    except JournalBusy:
        raise OpsError("another process on this machine is carrying out this plan") from None
    except (OSError, JournalDamaged) as error:
        raise OpsError(f"{place.journal}: {error}", EX_ENGINE) from None
    safe = {(row.vhost, row.queue) for row in current.queues if len(row.synced) > 1}
    copy = Copy(nodes, plan.cluster, read(place.journal), data, len(works(plan)))
    try:
        runner = carry_out(plan, arguments, nodes, journal, place, safe, clock, copy)
    except OSError as error:
        raise OpsError(f"the journal cannot be written: {error}", EX_ENGINE) from None
    finally:
        if place.journal.stat().st_size == 0:
            place.journal.unlink()  # nothing was begun
        journal.close()
    if copy.why_not is not None and runner.refusal is None:
        print(f"other machines cannot resume this plan or undo it: {copy.why_not}", file=sys.stderr)
    if runner.state is PlanState.DONE and plan.mode == "rollback":
        elsewhere.mark(nodes, str(plan.inputs.get("undoes")), PlanState.ROLLED_BACK, clock())
    return ended(plan, runner, place, clock(), is_json=wants_json(arguments))


def carry_out(
    plan: Plan,
    arguments: argparse.Namespace,
    nodes: Client,
    journal: Journal,
    place: Place,
    safe: Collection[Queue],
    clock: Callable[[], float],
    copy: Copy,
) -> Runner:
    """Run the plan to its end.   copy: that of the journal, in the cluster. Raises: OSError: the journal cannot be
    written."""
    steps = works(plan)
    options = Options(
        limits=Limits(bytes_per_s=arguments.rate or None), on_stale=arguments.on_stale, wave=arguments.wave
    )
    runner = Runner(plan.plan_id, steps, owner(), options=options, past=journal.past, safe=safe, now=clock())
    teller = common.Teller(steps, is_quiet=wants_json(arguments))
    shell = Shell(
        runner,
        nodes,
        journal,
        place.control,
        clock=clock,
        told=teller.tell,
        health=arguments.health,
        copied=copy.write,
        ordered=Orders(nodes, plan.plan_id, runner.owner).take,
    )
    shell.run()
    return runner


def wants_json(arguments: argparse.Namespace) -> bool:
    """True if the output is for a program."""
    return bool(getattr(arguments, "json", False))


def refuse_by_state(past: History, *, on_stale: Literal["skip", "stop"]) -> None:
    """Refuse to apply a plan in whose state that makes no sense. Raises: OpsError."""
    match past.state:
        case PlanState.ABORTED | PlanState.ROLLED_BACK | PlanState.EXPIRED:
            raise OpsError(f"this plan is {past.state}: {common.verbs(past)}")
        case PlanState.STALE if on_stale == "stop":
            raise OpsError(f"this plan is stale: {past.why}; {common.verbs(past)}")


def check(plan: Plan, nodes: Client, now: float) -> ClusterRows:
    """Refuse an expired or foreign plan, or one of another membership. Returns: the placement. Raises: OpsError."""
    try:
        refuse_unless_valid(plan, cluster=None, now=now)
        refuse_unless_valid(plan, cluster=common.cluster_name(nodes), now=now)
    except PlanError as error:
        raise OpsError(str(error)) from None
    current = common.topology(nodes, now)
    planned = plan.inputs.get("view_id")
    if planned is not None and planned != current.view_id:
        raise OpsError(
            f"the plan is stale: the cluster's membership changed since it was made "
            f"(view {planned}, now {current.view_id}); plan anew"
        )
    return current


def show(plan: Plan, found: list[Outlook], *, is_json: bool) -> None:
    """Print the steps that would be done now, on stdout."""
    if is_json:
        rows = [{"step": each.step.id, "outlook": each.what, "why": each.why} for each in found]
        print(json.dumps({"plan_id": plan.plan_id, "steps": rows}))
        return
    words = {"do": "", "skip": "already so", "stale": "STALE", "drop": "left out"}
    wave = 0
    for each in found:
        if each.step.wave != wave:
            wave = each.step.wave
            print(f"wave {wave}")
        why = ": ".join(filter(None, (words[each.what], each.why)))
        print(f"  {common.described(each.step)}{'   ' + why if why else ''}")
    summary = plan.summary
    print(
        f"plan {common.short(plan.plan_id)} of cluster {plan.cluster}: {summary.get('promotions', 0)} promotions, "
        f"{summary.get('copies', 0)} copies, {summary.get('bytes', 0)} bytes"
    )


def is_approved(plan: Plan, arguments: argparse.Namespace) -> bool:
    """True if the operator approves: `--yes`, or the first digits of the plan's id typed in. Raises: OpsError."""
    if arguments.dry_run:
        return False
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        print("nothing was done: give --yes to apply the plan", file=sys.stderr)
        return False
    print(f"Type {common.short(plan.plan_id)} to apply the plan: ", end="", file=sys.stderr, flush=True)
    typed = sys.stdin.readline().strip().lower()
    if typed != common.short(plan.plan_id):
        raise OpsError("that is not the plan's id: nothing was done")
    return True


def owner() -> str:
    """Return a name for the lock's holder; its random end makes it unique to this run."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "someone"
    return f"{user}@{socket.gethostname()}#{secrets.token_hex(4)}"


def ended(plan: Plan, runner: Runner, place: Place, now: float, *, is_json: bool) -> int:
    """Print how the plan ended. Returns: the exit code. Raises: OpsError if it was not begun."""
    if runner.refusal is not None:
        raise OpsError(runner.refusal, EX_ENGINE)
    if runner.state is PlanState.DONE and plan.mode == "rollback":
        mark_rolled_back(place.directory, str(plan.inputs.get("undoes")), now)
    if is_json:
        states = {id_: str(state) for id_, state in runner.states.items()}
        print(
            json.dumps(
                {
                    "plan_id": plan.plan_id,
                    "state": runner.state,
                    "why": runner.why,
                    "steps": states,
                    "journal": str(place.journal),
                }
            )
        )
    else:
        print(f"plan {common.short(plan.plan_id)} is {runner.state}: {common.summary(runner.states)}")
        print(f"journal {place.journal}; now: {common.verbs(common.past(place))}", file=sys.stderr)
    if runner.state is PlanState.PAUSED and runner.why == "interrupted":
        return 130
    is_good = runner.state is PlanState.DONE or (runner.state is PlanState.PAUSED and _is_wave_done(runner))
    return 0 if is_good and all(state not in ENDED - SUCCEEDED for state in runner.states.values()) else 1


def _is_wave_done(runner: Runner) -> bool:
    return runner.why is not None and runner.why.startswith("wave ")


def mark_rolled_back(directory: Path, plan_id: str, now: float) -> None:
    """Record in the journal of a plan that it was undone, if that journal is on this machine."""
    place = Place(directory, plan_id)
    if not place.journal.exists():
        return
    try:
        journal = Journal(place.journal)
    except (OSError, JournalBusy, JournalDamaged) as error:
        print(f"{place.journal}: not marked as rolled back: {error}", file=sys.stderr)
        return
    try:
        if PlanState.ROLLED_BACK in EDGES[journal.past.state]:
            journal.write([{"at": now, "plan": journal.past.plan, "to": PlanState.ROLLED_BACK}])
    finally:
        journal.close()
