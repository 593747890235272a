"""Histories are what a journal's records say, whichever of them are missing or repeated."""

from node.migrate.counts import Reading
from node.migrate.history import History, Record, history, sample_record, shovel_record, stage_record
from node.migrate.shovels import Shovel

ORDERS = Shovel("/", "orders", "out")
BACK = Shovel("/", "orders", "back")


def sample(side: str, messages: int, publish: int, out: int, redelivered: int = 0) -> Record:
    found = Reading(("/", "orders"), messages, publish, out, redelivered)
    return sample_record("rabbitmq" if side == "rabbitmq" else "fluffle", [found], 1.0)


def test_a_stage_has_a_direction() -> None:
    found = history([stage_record("started", "out"), stage_record("consumers", "out")])
    assert (found.stage, found.direction) == ("consumers", "out")
    found.take(stage_record("planned", "back"))
    assert (found.stage, found.direction) == ("planned", "back")


def test_shovels_come_and_go() -> None:
    """A queue that had a shovel stays among those of the report."""
    found = history([shovel_record(ORDERS, is_put=True), shovel_record(ORDERS, is_put=True)])
    assert found.shovels == {ORDERS}
    found.take(shovel_record(ORDERS, is_put=False))
    assert found.shovels == set()
    assert found.moved == {("/", "orders")}


def test_what_a_shovel_carried() -> None:
    """Messages that went before are not its work; those that came in beside it are duplicates, or clients'."""
    found = history(
        [
            sample("rabbitmq", 100, 50, 40, 2),
            sample("fluffle", 0, 0, 0),
            sample("rabbitmq", 100, 60, 50, 4),
            shovel_record(ORDERS, is_put=True),
            sample("rabbitmq", 0, 60, 150, 7),
            sample("fluffle", 105, 105, 0),
        ]
    )
    assert found.carried(("/", "orders")) == (100, 5, 3)
    assert found.carried(("/", "other")) == (0, 0, 0)


def test_a_shovel_that_is_made_again_goes_on() -> None:
    records = [sample("rabbitmq", 9, 9, 0), shovel_record(ORDERS, is_put=True), sample("rabbitmq", 4, 9, 5)]
    found = history([*records, shovel_record(ORDERS, is_put=True), sample("rabbitmq", 0, 9, 9)])
    assert found.carried(("/", "orders")).messages == 9


def test_the_way_back_is_counted_from_the_other_end() -> None:
    found = history(
        [
            stage_record("started", "back"),
            sample("fluffle", 9, 9, 0),
            sample("rabbitmq", 0, 0, 0),
            shovel_record(BACK, is_put=True),
            sample("fluffle", 0, 9, 9),
            sample("rabbitmq", 9, 9, 0),
        ]
    )
    assert found.carried(("/", "orders")) == (9, 0, 0)


def test_records_of_a_later_version_are_passed_over() -> None:
    found = History()
    for record in (
        {"what": "new"},
        {},
        {"what": "stage", "stage": "new"},
        {"what": "sample", "side": "x", "rows": []},
        {"what": "sample", "side": "fluffle", "rows": [5, ["/", "q"], ["/", "q", "many", 1, 1, 0]]},
    ):
        found.take(record)  # type: ignore[arg-type]
    assert found == History()


def test_times_are_told() -> None:
    found = history(
        [{"at": "10:00", **stage_record("started", "out")}, {"at": "09:00", "what": "definitions"}]
    )
    assert found.times == [("10:00", "started (to Fluffle)"), ("09:00", "definitions imported")]
