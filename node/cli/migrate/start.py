"""`fluffle migrate start`: definitions in, a user for the shovels, shovels for queues that no client consumes from.

Every part can be done again, and is: after a failure, after a change at RabbitMQ, and after `back`.
"""

import argparse

from node.cli.migrate.carrying import make_user, remove_shovels, start_shovels
from node.cli.migrate.command import EX_OK, EX_REFUSED
from node.cli.migrate.failures import MigrateError
from node.cli.migrate.looking import Session, session
from node.definitions.reading import finish
from node.migrate.findings import lines
from node.migrate.history import stage_record
from node.migrate.plan import Plan, plan


def run(arguments: argparse.Namespace) -> int:
    """Start the migration, or go on with the start. Returns: 1 if something blocks."""
    found = session(arguments)
    with found.state.lock():
        found.history = found.state.history()
        if found.history.stage == "finished" and found.history.direction == "out":
            raise MigrateError(
                "the migration is finished: take another --state for the next queues", EX_REFUSED
            )
        move = found.look()
        made = finish(plan(move.rabbitmq, move.fluffle, found.settled))
        if made.blocking and not arguments.accept:
            print("\n".join(lines(made.blocking)))
            print("nothing was changed; --accept goes on without what blocks")
            return EX_REFUSED
        return _start(found, made)


def _start(found: Session, made: Plan) -> int:
    answer = found.fluffle.request("POST", "/definitions?skip_unsupported=true", made.document.json)
    skipped = answer.get("skipped", []) if isinstance(answer, dict) else []
    left_out = sum(each.weight == "blocks" for each in made.document.findings) + len(skipped)
    found.append({"what": "definitions", "left_out": left_out})
    print(f"definitions imported{f', without {left_out:,} objects' if left_out else ''}")
    if found.history.direction == "back":
        back = [each for each in found.history.shovels if each.direction == "back"]
        print(f"{remove_shovels(found, back):,} shovels back to RabbitMQ removed")
        found.append(stage_record("planned", "out"))
    is_new = make_user(found, (each.queue.vhost for each in made.queues if each.way != "stays"))
    move = found.look()
    found.append(*found.samples(move))
    start_shovels(found, move, is_new=is_new)
    print("next: fluffle migrate watch; fluffle migrate cut-over consumers")
    return EX_OK
