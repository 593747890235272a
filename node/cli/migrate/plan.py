"""`fluffle migrate plan`: read both brokers, and say what would happen. Nothing is changed at either."""

import argparse
import json
from pathlib import Path

from node.catalogue.patterns import PatternInvalid
from node.cli.migrate.command import EX_OK, EX_REFUSED
from node.cli.migrate.failures import MigrateError
from node.cli.migrate.http_api import Api
from node.cli.migrate.looking import api_of, fetch
from node.cli.migrate.state import State, now_text
from node.definitions.reading import finish
from node.migrate.ends import End, Host, end, shovel_host
from node.migrate.plan import Settled, as_json, plan
from node.migrate.plan_text import plan_text
from node.migrate.site import Site
from node.migrate.ways import Selection

EX_USAGE = 64


def run(arguments: argparse.Namespace) -> int:
    """Make a plan, print it and keep it. Returns: 1 if something blocks."""
    state = State(Path(arguments.state))
    if state.history().stage not in ("planned", "finished"):
        raise MigrateError(
            f"{state.directory} has a migration that has begun: take another --state", EX_REFUSED
        )
    rabbitmq = api_of(arguments.url, arguments.ca_file)
    fluffle = api_of(arguments.to, arguments.ca_file) if arguments.to else None
    source = fetch(rabbitmq)
    target = None if fluffle is None else fetch(fluffle)
    settled = Settled(
        _end(rabbitmq, source, arguments.from_amqp),
        None if fluffle is None or target is None else _end(fluffle, target, arguments.to_amqp),
        _host(arguments, source, target),
        Selection(tuple(arguments.vhost), arguments.queues),
    )
    try:
        made = finish(plan(source, target, settled))
    except PatternInvalid as invalid:
        raise MigrateError(f"--queues is no regular expression: {invalid.reason}", EX_USAGE) from None
    created = now_text()
    document = as_json(made, created)
    state.write_plan(document)
    if arguments.json:
        print(json.dumps(document, indent=1))
    else:
        print(plan_text(made, created), end="")
        print(f"\nkept in {state.plan_path}")
    return EX_REFUSED if made.blocking else EX_OK


def _end(api: Api, site: Site, given: list[str]) -> End:
    return end(api.all_shown, api.host, site, tuple(given))


def _host(arguments: argparse.Namespace, source: Site, target: Site | None) -> Host | None:
    given: Host | None = arguments.shovels
    return given or shovel_host(source, target)
