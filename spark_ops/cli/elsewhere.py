"""Plans that another machine began: their journals come from the cluster to this machine, and then all goes on as if
they had been here."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from spark_ops.applying import cluster_journals, cluster_orders
from spark_ops.applying.client import Client
from spark_ops.applying.cluster_journals import KeptPlan, NoJournals
from spark_ops.applying.cluster_orders import RemoteOrder
from spark_ops.applying.history import JournalDamaged, Record
from spark_ops.applying.journal import DIGITS, PREFIX, Journal, JournalBusy, Place, is_busy, keep
from spark_ops.applying.kept_journal import NotKept, lacking, records_of
from spark_ops.applying.states import PlanState
from spark_ops.cli import carrying_out as common
from spark_ops.cli.errors import EX_ENGINE, OpsError
from spark_ops.planning import plan as plans
from spark_ops.planning.plan import PlanError


def brought(arguments: argparse.Namespace, named: str, owner: str) -> Place:
    """Return the place of a plan that was begun here or on another machine, with a journal that has what both did.

    named: its id or its file.   owner: the name by which this machine would take the lock.
    Raises: OpsError if no machine began it, or if another one carries it out now.
    """
    try:
        place = common.place_of(arguments, named)
    except OpsError as error:
        return _fetched(arguments, named, owner, error)
    if not place.journal.exists():
        digits = place.journal.name.split(".")[1]
        why = f"this plan was never begun on this machine: there is no journal in {place.directory}"
        return _fetched(arguments, digits, owner, OpsError(why))
    if not is_busy(place.journal):
        _update(arguments, place)
    return place


def _fetched(arguments: argparse.Namespace, named: str, owner: str, unknown: OpsError) -> Place:
    """Make the files of a plan that only the cluster has.   unknown: the error if it has none."""
    nodes = common.client(arguments)
    digits = _digits(named, unknown)
    try:
        found = [each for each in cluster_journals.kept_plans(nodes) if each.digits.startswith(digits)]
        if len(found) != 1:
            raise OpsError(f"{unknown}, and the cluster keeps {len(found) or 'none'} of that id") from None
        _refuse_if_at_work(nodes, found[0], None)
        data = cluster_journals.plan_file(nodes, found[0].digits)
        if plans.parse(data).plan_id != found[0].journal.plan:
            raise NotKept("it is another plan")
    except NoJournals as error:
        raise OpsError(f"{unknown}; {error}", EX_ENGINE) from None
    except (NotKept, PlanError) as error:
        raise OpsError(f"the plan that the cluster keeps: {error}") from None
    place = Place(common.directory(arguments), found[0].journal.plan)
    try:
        keep(place.plan, data)
    except OSError as error:
        raise OpsError(f"{place.plan}: {error.strerror}", EX_ENGINE) from None
    _add(place, records_of(found[0].journal, owner))
    print(
        f"the journal came from the cluster, where {found[0].journal.owner} began the plan", file=sys.stderr
    )
    return place


def _update(arguments: argparse.Namespace, place: Place) -> None:
    """Add what another machine did since to the journal of this one. Without an answer the journal stays as it is."""
    past = common.begun(place)
    nodes = common.client(arguments, common.read_plan(place.plan).came_from)
    try:
        kept = {each.journal.plan: each for each in cluster_journals.kept_plans(nodes)}.get(past.plan)
        if kept is None:
            return
        _refuse_if_at_work(nodes, kept, past.owner)
    except NoJournals:
        return
    _add(place, lacking(past, kept.journal))


def _refuse_if_at_work(nodes: Client, kept: KeptPlan, own: str | None) -> None:
    """Refuse if a machine carries out the plan now.   own: the name by which this machine has the lock, if it does.

    Raises: OpsError; NoJournals.
    """
    holder = cluster_journals.holder(nodes)
    if holder is not None and holder[0] == kept.journal.plan and holder[1] != own:
        raise OpsError(
            f"{holder[1]} carries out this plan, or did until some seconds ago: pause it there, or wait for the lock "
            "to expire (30 s)"
        )


def _add(place: Place, records: Sequence[Record]) -> None:
    if not records:
        return
    try:
        journal = Journal(place.journal)
    except JournalBusy:
        raise OpsError("another process on this machine is carrying out this plan") from None
    except (OSError, JournalDamaged) as error:
        raise OpsError(f"{place.journal}: {error}", EX_ENGINE) from None
    try:
        journal.write(records)
    except OSError as error:
        raise OpsError(f"{place.journal}: {error}", EX_ENGINE) from None
    finally:
        journal.close()


def known_place(arguments: argparse.Namespace, named: str) -> tuple[Place | None, OpsError | None]:
    """Return the place of a plan that was begun here; else None, and the error that says so."""
    try:
        place = common.place_of(arguments, named)
        common.begun(place)
    except OpsError as error:
        return None, error
    return place, None


def ordered(
    arguments: argparse.Namespace, place: Place | None, unknown: OpsError | None, order: RemoteOrder, by: str
) -> str | None:
    """Give an order to the process of another machine that carries out a plan, and wait until it has taken it.

    place, unknown: from `known_place`.   by: who gives the order.
    Returns: the owner of the lock; None if no process carries out this plan. Raises: OpsError.
    """
    named, came_from = arguments.plan, None
    if place is not None:
        digits = place.journal.name.split(".")[1]
        came_from = common.read_plan(place.plan).came_from if place.plan.exists() else None
    elif Path(named).is_file():
        plan = common.read_plan(Path(named))
        digits, came_from = cluster_journals.digits_of(plan.plan_id), plan.came_from
    else:
        digits = _digits(named, unknown)
    nodes = common.client(arguments, came_from)
    try:
        holder = cluster_journals.holder(nodes)
        if holder is None or not cluster_journals.digits_of(holder[0]).startswith(digits):
            return None
        cluster_orders.give(nodes, holder[0], holder[1], order, by)
    except (NoJournals, cluster_orders.NotTaken) as error:
        raise OpsError(str(error), EX_ENGINE) from None
    return holder[1]


def _digits(named: str, unknown: OpsError | None) -> str:
    """Return the first digits of a plan's id as an operator gave them. Raises: `unknown` if they are none."""
    digits = named.removeprefix(PREFIX).lower()[:DIGITS]
    if len(digits) < 4 or not set(digits) <= set("0123456789abcdef"):
        assert unknown is not None
        raise unknown
    return digits


def mark(nodes: Client, plan_id: str, state: PlanState, now: float) -> None:
    """Have the cluster note that a plan was undone or aborted, if it keeps the plan."""
    try:
        kept: Iterable[KeptPlan] = cluster_journals.kept_plans(nodes)
    except NoJournals:
        return
    for each in kept:
        if each.journal.plan == plan_id:
            cluster_journals.set_state(nodes, each, state, now)
