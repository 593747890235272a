"""Look at both ends of a migration: fetch what their APIs show, and make a `Move` of it."""

import argparse
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from node.catalogue.records import Json
from node.cli.migrate.addresses import AddressError, address
from node.cli.migrate.failures import MigrateError
from node.cli.migrate.http_api import Api, ApiFailed
from node.cli.migrate.state import State
from node.migrate.answers import count, rows, text
from node.migrate.counts import Side, reading
from node.migrate.ends import Ends
from node.migrate.history import History, Record, sample_record
from node.migrate.move import Move
from node.migrate.plan import PlanInvalid, Settled, settled_from_json
from node.migrate.queues import Key
from node.migrate.site import LIGHT, OPTIONAL, PATHS, Site, SiteUnreadable, site


def api_of(urls: str, ca_file: str | None) -> Api:
    """Return the client of one URL, or of several with commas. Raises: MigrateError; OSError."""
    try:
        found = [address(each.strip(), os.environ) for each in urls.split(",") if each.strip()]
    except AddressError as error:
        raise MigrateError(str(error)) from None
    if not found:
        raise MigrateError("a URL is empty")
    return Api(found, ca_file=ca_file)


def fetch(api: Api, names: Collection[str] = tuple(PATHS)) -> Site:
    """Return what an API shows. Raises: MigrateError; ApiFailed."""
    answers: dict[str, Json] = {}
    for name in names:
        try:
            answers[name] = api.get(PATHS[name])
        except ApiFailed as failed:
            if name not in OPTIONAL or not failed.status:
                raise
    try:
        return site(answers)
    except SiteUnreadable as error:
        raise MigrateError(f"{api.shown}: {error}") from None


@dataclass(slots=True)
class Session:
    """A migration that was planned: its directory, its ends, and their APIs."""

    state: State
    settled: Settled
    ends: Ends
    rabbitmq: Api
    fluffle: Api
    history: History
    document: Mapping[str, Json]

    def look(self, *, is_light: bool = False) -> Move:
        """Return both ends as they are now. Raises: MigrateError; ApiFailed.

        is_light: without definitions, and without what each channel does.
        """
        names = LIGHT if is_light else tuple(PATHS)
        return Move(
            self.ends,
            self.history,
            fetch(self.rabbitmq, names),
            fetch(self.fluffle, names),
            self.settled.selection,
            self._consumed(),
        )

    def _consumed(self) -> dict[Key, int]:
        return {
            (text(row, "vhost"), text(row, "name")): count(row, "consumers")
            for row in rows(self.document.get("queues"))
        }

    def host_api(self) -> Api:
        """Return the API of the end that runs the shovels."""
        return self.rabbitmq if self.ends.host == "rabbitmq" else self.fluffle

    def far_api(self) -> Api:
        """Return the API of the end that the shovels log in at."""
        return self.fluffle if self.ends.host == "rabbitmq" else self.rabbitmq

    def source_api(self) -> Api:
        """Return the API of the end that messages leave."""
        return self.rabbitmq if self.history.direction == "out" else self.fluffle

    def samples(self, move: Move) -> list[Record]:
        """Return records of the queues at both ends whose counters have changed."""
        wanted = {each.key for each in move.plans()} | self.history.moved
        found = []
        sides: tuple[tuple[Side, Site], ...] = (("rabbitmq", move.rabbitmq), ("fluffle", move.fluffle))
        for side, at in sides:
            news = [
                each
                for each in (reading(at.queues[key]) for key in sorted(wanted) if key in at.queues)
                if self.history.account(side, each.key).is_news(each)
            ]
            if news:
                found.append(sample_record(side, news, time.time()))
        return found

    def append(self, *records: Record) -> None:
        """Write records into the journal. Raises: OSError."""
        self.state.append(self.history, records)


def session(arguments: argparse.Namespace) -> Session:
    """Return the migration of a command line. Raises: MigrateError; StateError; OSError."""
    state = State(Path(arguments.state))
    document: dict[str, Any] = state.read_plan()
    try:
        settled = settled_from_json(document)
        ends = settled.ends()
    except PlanInvalid as error:
        raise MigrateError(f"{state.plan_path}: {error}") from None
    if not ends.rabbitmq.amqp or not ends.fluffle.amqp:
        raise MigrateError("the plan has no AMQP address of an end: give --from-amqp or --to-amqp to `plan`")
    rabbitmq = api_of(arguments.from_url or ",".join(settled.rabbitmq.urls), arguments.ca_file)
    fluffle = api_of(arguments.to or ",".join(ends.fluffle.urls), arguments.ca_file)
    ends = replace(
        ends,
        rabbitmq=replace(ends.rabbitmq, urls=rabbitmq.all_shown),
        fluffle=replace(ends.fluffle, urls=fluffle.all_shown),
    )
    return Session(state, settled, ends, rabbitmq, fluffle, state.history(), document)
