"""`fluffle migrate cut-over`: consumers move, then publishers, then shovels are removed.

Each step is refused while something would be lost. A step waits for consumers to leave, or for queues to run empty,
until `--timeout`, and goes on there when it is run again.
"""

import argparse
import sys
import time
from typing import Final

from node.catalogue.records import Json
from node.cli.migrate.carrying import (
    make_user,
    put_shovels,
    remove_shovels,
    remove_user,
    shovels_to_put,
)
from node.cli.migrate.command import EX_OK, EX_REFUSED
from node.cli.migrate.failures import MigrateError
from node.cli.migrate.looking import Session, session
from node.definitions.reading import finish
from node.migrate.answers import rows, texts
from node.migrate.clients import MOVER
from node.migrate.counts import Reading, reading
from node.migrate.cut_over import NEXT, Step, is_settled, objections, overtaking
from node.migrate.document import document, of_vhosts
from node.migrate.features import abilities
from node.migrate.history import STAGES, stage_record
from node.migrate.move import Move
from node.migrate.plan import users_of
from node.migrate.procedure import REASON, Balancer, close_path, leaving, procedure
from node.migrate.queues import Key
from node.migrate.tables import counted

LOOK_S: Final = 2.0
"""While a step waits it looks so often."""

SHOWN_MAX: Final = 20
"""The most reasons that are printed."""


def run(arguments: argparse.Namespace) -> int:
    """Do a step. Returns: 1 if it is refused, or not done within the timeout."""
    found = session(arguments)
    if arguments.check:
        return _check(found, arguments)
    with found.state.lock():
        found.history = found.state.history()
        step = _step(found, arguments)
        move = found.look()
        reasons = [each.text for each in objections(move, step, objects_to_have(move))]
        if step == "finish":
            return _finish(found, arguments)
        if reasons and not arguments.force:
            return _refused(step, reasons)
        print("\n".join(procedure(move, step, _balancer(arguments), _users(found, arguments))), flush=True)
        if line := (overtaking(move) if step == "publishers" else ""):
            print(f"# {line}")
        if arguments.close:
            _close(found, move, step, _users(found, arguments))
        if step == "consumers":
            return _await_consumers(found, arguments)
        found.append(*found.samples(move), stage_record("publishers", move.direction))
        print("next: fluffle migrate cut-over finish")
        return EX_OK


def _step(found: Session, arguments: argparse.Namespace) -> Step:
    """Return the step to do. Raises: MigrateError, if there is none, or it comes too early."""
    stage = found.history.stage
    given: Step | None = arguments.step or NEXT[stage]
    if given is None or stage in ("planned", "finished"):
        what = "is finished" if stage == "finished" else "has not begun: run `fluffle migrate start`"
        raise MigrateError(f"the migration {what}", EX_REFUSED)
    if given == "finish" and stage != "publishers" and not arguments.force:
        raise MigrateError("publishers have not been let go: cut-over publishers comes first", EX_REFUSED)
    return given


def _check(found: Session, arguments: argparse.Namespace) -> int:
    """Print what a step would do. Returns: 1 if it would be refused."""
    step, move = arguments.step or NEXT[found.history.stage] or "consumers", found.look()
    reasons = [each.text for each in objections(move, step, objects_to_have(move))]
    print("\n".join(procedure(move, step, _balancer(arguments), _users(found, arguments))))
    return _refused(step, reasons) if reasons else EX_OK


def objects_to_have(move: Move) -> dict[str, Json]:
    """Return the definitions of the source that the target has to have."""
    source = move.source.definitions
    found = finish(document(source, abilities(move.target), users_of(move.target)))
    of_vhosts(found, move.selection.vhosts)
    return found.json


def _refused(step: Step, reasons: list[str]) -> int:
    print(f"{step} would lose something:", file=sys.stderr)
    for reason in reasons[:SHOWN_MAX]:
        print(f"  {reason}", file=sys.stderr)
    if len(reasons) > SHOWN_MAX:
        print(f"  and {len(reasons) - SHOWN_MAX:,} more", file=sys.stderr)
    return EX_REFUSED


def _balancer(arguments: argparse.Namespace) -> Balancer:
    return Balancer(arguments.backend, arguments.socket)


def _users(found: Session, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the users of a group of the plan; none for all. Raises: MigrateError."""
    if arguments.group is None:
        return ()
    groups = list(rows(found.document.get("groups")))
    if not 1 <= arguments.group <= len(groups):
        raise MigrateError(f"the plan has {len(groups)} groups", EX_REFUSED)
    return texts(groups[arguments.group - 1].get("users"))


def _close(found: Session, move: Move, step: Step, users: tuple[str, ...]) -> None:
    """Close the connections of clients that a step moves."""
    api, number = found.source_api(), 0
    for client in leaving(move.clients(), step, users):
        number += api.delete(close_path(client), {"x-reason": REASON})
    print(f"{counted(number, 'connection')} closed")


def _await_consumers(found: Session, arguments: argparse.Namespace) -> int:
    """Make the shovel of each queue as soon as its consumers have left, until all have one."""
    deadline_s = time.monotonic() + arguments.timeout
    shown, is_under_way = "", False
    while True:
        move = found.look(is_light=True)
        # Those that are missing, although they were made, are made once more: as the step begins, and not each time.
        ready = move.to_begin() if is_under_way else shovels_to_put(found, move, False)
        is_under_way = True
        if ready:
            found.append(*found.samples(move))
            is_new = make_user(found, (each.vhost for each in ready))
            made = put_shovels(found, shovels_to_put(found, move, True) if is_new else ready)
            print(f"{counted(made, 'shovel')} made", flush=True)
            continue
        consumers = move.consumers()
        waiting = [(each.key, consumers.get(each.key, 0)) for each in move.without_shovel()]
        if not waiting:
            break
        number = sum(count for _, count in waiting)
        text = (
            f"{counted(number, 'consumer')} of {counted(len(waiting), 'queue')} are at {move.source.product}"
        )
        if text != shown:
            print(text, flush=True)
            shown = text
        if time.monotonic() >= deadline_s:
            return _refused(
                "consumers",
                [f"queue {key[1]!r} in {key[0]!r}: {counted(count, 'consumer')}" for key, count in waiting],
            )
        time.sleep(LOOK_S)
    if STAGES.index(found.history.stage) < STAGES.index("consumers"):
        found.append(stage_record("consumers", move.direction))
    print("all consumers have left; next: fluffle migrate cut-over publishers")
    return EX_OK


def _finish(found: Session, arguments: argparse.Namespace) -> int:
    """Wait until the source is empty, twice in a row, and remove the shovels."""
    deadline_s = time.monotonic() + arguments.timeout
    before: dict[Key, Reading] | None = None
    before_s, shown = 0.0, ""
    while True:
        move, now_s = found.look(), time.monotonic()
        reasons = [each.text for each in objections(move, "finish", objects_to_have(move))]
        now = {each.key: reading(each) for each in move.queues()}
        if reasons and not arguments.force:
            before = None
        elif arguments.force or (before is not None and is_settled(before, now, now_s - before_s)):
            break
        elif before is None or before.keys() != now.keys():
            before, before_s = now, now_s
        if now_s >= deadline_s:
            return _refused("finish", reasons or ["the source was empty for too short a time"])
        text = reasons[0] if reasons else f"{move.source.product} is empty; looking once more"
        if text != shown:
            print(text + (f", and {len(reasons) - 1:,} more" if len(reasons) > 1 else ""), flush=True)
            shown = text
        time.sleep(LOOK_S)
    found.append(*found.samples(move))
    number = remove_shovels(found, sorted(found.history.shovels, key=lambda each: each.key))
    remove_user(found)
    found.append(stage_record("finished", move.direction))
    print(f"{counted(number, 'shovel')} and their user {MOVER} removed; the migration is finished")
    print("\n".join(procedure(move, "finish", _balancer(arguments))))
    return EX_OK
