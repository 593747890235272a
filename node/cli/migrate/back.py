"""`fluffle migrate back`: messages go back to RabbitMQ, and `cut-over` moves clients there, consumers first.

Queues, exchanges and bindings that are at Fluffle alone are made at RabbitMQ, too. It can be run again after a failure.
"""

import argparse
from typing import Final

from node.cli.migrate.carrying import make_user, remove_shovels, start_shovels
from node.cli.migrate.command import EX_OK, EX_REFUSED
from node.cli.migrate.cut_over import objects_to_have
from node.cli.migrate.failures import MigrateError
from node.cli.migrate.looking import Session, session
from node.migrate.history import stage_record
from node.migrate.move import missing_document

SECTIONS: Final = ("exchanges", "queues", "bindings")
"""The sections that are made at RabbitMQ if they are missing. Users and policies are the operator's."""


def run(arguments: argparse.Namespace) -> int:
    """Turn the migration round, or go on with that."""
    found = session(arguments)
    with found.state.lock():
        found.history = found.state.history()
        past = found.history
        if past.stage == "planned" and past.direction == "out":
            raise MigrateError("the migration has not begun", EX_REFUSED)
        if past.stage == "finished" and past.direction == "back":
            raise MigrateError("all has gone back already", EX_REFUSED)
        return _turn(found)


def _turn(found: Session) -> int:
    out = [each for each in found.history.shovels if each.direction == "out"]
    if out:
        print(f"{remove_shovels(found, out):,} shovels to Fluffle removed")
    if found.history.direction == "out":
        found.append(stage_record("planned", "back"))
    move = found.look()
    missing = missing_document(objects_to_have(move), move.target.definitions, SECTIONS)
    number = sum(map(len, missing.values()))
    if number:
        version = move.rabbitmq.definitions.get("rabbitmq_version") or move.rabbitmq.version
        found.rabbitmq.request("POST", "/definitions", {"rabbitmq_version": version, **missing})
        print(f"{number:,} queues, exchanges and bindings made at RabbitMQ")
        move = found.look()
    is_new = make_user(found, (queue.vhost for queue in move.queues()))
    found.append(*found.samples(move))
    start_shovels(found, move, is_new=is_new)
    print("next: fluffle migrate cut-over consumers")
    return EX_OK
