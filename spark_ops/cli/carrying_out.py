"""Shared parts of the commands that carry out plans: options, the cluster, a plan's files, and progress output."""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from spark_ops.applying.asking import Silence
from spark_ops.applying.client import Client
from spark_ops.applying.credentials import AddressError, address
from spark_ops.applying.history import History, JournalDamaged, Record
from spark_ops.applying.journal import NoSuchPlan, Place, default_directory, find, read
from spark_ops.applying.states import VERBS, StepState
from spark_ops.applying.work import Work
from spark_ops.cli.errors import EX_ENGINE, OpsError
from spark_ops.planning import plan as plans
from spark_ops.planning.plan import Plan, PlanError
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.topology import TopologyError, rows_of

URL: Final = "http://localhost:15672"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
URL_SHOWN: Final = 200
SHOWN_DIGITS: Final = 8


def add_place_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the directory of begun plans."""
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="the directory of journals (default: SPARK_OPS_STATE, else ~/.local/state/spark-ops)",
    )


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the cluster."""
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="the HTTP API of a node; repeat the option to name nodes to use if that one does not answer (default: "
        f"SPARK_OPS_URL, else {URL}). Credentials come from the URL, from SPARK_OPS_USER and SPARK_OPS_PASSWORD, or "
        "from ~/.netrc",
    )
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates of the authorities that signed the nodes' certificates",
    )


def directory(arguments: argparse.Namespace) -> Path:
    """Return the directory of journals."""
    given: Path | None = arguments.state
    return default_directory(os.environ) if given is None else given


def client(arguments: argparse.Namespace, came_from: str | None = None) -> Client:
    """Return a client of the nodes on the command line. Raises: OpsError.   came_from: the URL in the plan's file."""
    urls = arguments.url or os.environ.get("SPARK_OPS_URL", "").split() or [_trusted(came_from)]
    try:
        return Client([address(url, os.environ) for url in urls], ca_file=arguments.ca_file)
    except (AddressError, OSError) as error:
        raise OpsError(str(error)) from None


def _trusted(came_from: str | None) -> str:
    """Return the URL to use if the operator gives none. Raises: OpsError.

    A plan's file may come from any source, and the node at its URL gets the operator's password: so only a URL of this
    machine is trusted.
    """
    if came_from is None:
        return URL
    try:
        host = urlsplit(came_from).hostname
    except ValueError:
        host = None
    if host in LOOPBACK:
        return came_from
    shown = "".join(each for each in came_from if each.isprintable())[:URL_SHOWN]
    raise OpsError(f"this plan was made from {shown}: give --url {shown} if that is the right cluster")


def get(nodes: Client, path: str) -> Any:
    """Return the cluster's answer to a GET request. Raises: OpsError."""
    found = nodes.get(path)
    if isinstance(found, Silence):
        raise OpsError(f"the cluster does not answer: {found.why}", EX_ENGINE)
    if found.status == 404:
        raise OpsError("the nodes of this cluster do not support plans: upgrade them", EX_ENGINE)
    if found.status in (401, 403):
        raise OpsError(f"the cluster refuses: {found.reason}; a user with the tag administrator is needed")
    if found.status != 200:
        raise OpsError(f"the cluster refuses: {found.reason}", EX_ENGINE)
    return found.body


def cluster_name(nodes: Client) -> str:
    """Return the cluster's own name. Raises: OpsError."""
    found = get(nodes, "/cluster-name")
    return str(found.get("name")) if isinstance(found, Mapping) else ""


def topology(nodes: Client, now: float) -> ClusterRows:
    """Return the current placement of all queues. Raises: OpsError."""
    try:
        return rows_of(get(nodes, "/mirroring/topology"), now=now)
    except TopologyError as error:
        raise OpsError(f"the cluster's topology: {error}", EX_ENGINE) from None


def read_plan(path: Path) -> Plan:
    """Return a plan from a file. Raises: OpsError."""
    try:
        return plans.parse(path.read_bytes())
    except OSError as error:
        raise OpsError(f"{path}: {error.strerror}") from None
    except PlanError as error:
        raise OpsError(f"{path}: {error}") from None


def place_of(arguments: argparse.Namespace, named: str) -> Place:
    """Return the place of a plan that was begun, named by its id or by its file. Raises: OpsError."""
    where = directory(arguments)
    if Path(named).is_file():
        return Place(where, read_plan(Path(named)).plan_id)
    try:
        return find(where, named)
    except NoSuchPlan as error:
        raise OpsError(str(error)) from None


def past(place: Place) -> History:
    """Return the history in a plan's journal. Raises: OpsError."""
    try:
        return read(place.journal)
    except JournalDamaged as error:
        raise OpsError(f"{place.journal} is damaged: {error}") from None
    except OSError as error:
        raise OpsError(f"{place.journal}: {error.strerror}") from None


def begun(place: Place) -> History:
    """Return the history of a plan, which must have been begun. Raises: OpsError."""
    found = past(place)
    if not found.plan:
        raise OpsError(f"this plan was never begun on this machine: there is no journal in {place.directory}")
    return found


def short(plan_id: str) -> str:
    """Return the first digits of a plan's id, as shown to operators."""
    return plan_id.removeprefix("sha256:")[:SHOWN_DIGITS]


def described(step: Work) -> str:
    """Return a step in a few words, on one line whatever the names are."""
    route = " → ".join(node for node in (step.source, step.target) if node is not None)
    text = f"{step.id:<6} {step.action:<12} {step.queue} ({step.vhost})  {route}"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


class Teller:
    """Prints the progress of steps: a line for each that ends, on stdout.

    If stderr is a terminal, it also shows the number of steps under way.
    """

    def __init__(self, steps: Sequence[Work], *, is_quiet: bool = False) -> None:
        self._steps = {step.id: step for step in steps}
        self._going: set[str] = set()
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()

    def tell(self, record: Record) -> None:
        """Print a record of the journal."""
        if self._is_quiet:
            return
        why = f": {record['why']}" if record.get("why") else ""
        if "step" not in record:
            self._line(f"{time.strftime('%H:%M:%S')} {record['to']}{why}")
            return
        id_, state = str(record["step"]), StepState(record["to"])
        if state is StepState.SENT:
            self._going.add(id_)
        else:
            self._going.discard(id_)
            self._line(f"{time.strftime('%H:%M:%S')} {state:<8} {described(self._steps[id_])}{why}")
        if self._is_terminal:
            print(f"\r\033[K{len(self._going)} steps under way", end="", file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(text, flush=True)


def summary(found: History | Mapping[str, StepState]) -> str:
    """Return the number of steps in each state, as text."""
    states = found.steps if isinstance(found, History) else found
    count = Counter(states.values())
    return ", ".join(f"{count[state]} {state}" for state in StepState if count[state]) or "no steps"


def verbs(found: History) -> str:
    """Return the commands that an operator may use now, as text."""
    return ", ".join(VERBS[found.state])
