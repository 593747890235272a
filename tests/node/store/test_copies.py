"""A start keeps or drops each copy of a mirrored queue by its view: reliability §1.1 (L9), §4.10."""

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import PutVhost, RestoreQueue
from node.catalogue.mirrors.views import EraseMirror, View, changed, created, died, stored_uid
from node.catalogue.records import QueueRecord
from node.store.copies import copy_to_recover, recoverable_copies, stored
from node.store.inspection import cluster_metadata
from tests.kit.stored import (
    ENTRIES,
    OTHER_UID,
    UID,
    UNKNOWN_UID,
    FailingDisk,
    Files,
    PowerOff,
    enqueue,
    enqueue_stored,
    remove,
)

A, B, C = "a@h", "b@h", "c@h"
NODES = ((A, 11), (B, 12), (C, 13))
ALL = created(0, NODES)
"""Three synchronised copies, the master on A."""


def record_of(view: View | None, uid: str = UID, **fields: object) -> QueueRecord:
    return replace(QueueRecord("/", f"q{uid[-1]}", uid, durable=True, home=A, view=view), **fields)


def keepers(view: View | None, **fields: object) -> list[str]:
    return [node for node, _ in NODES if copy_to_recover(record_of(view, **fields), node) is not None]


def test_after_a_power_cut_all_synchronised_copies_count() -> None:
    """§4.10 b: nobody could declare anybody down; who starts first still reads the last view before it."""
    assert keepers(ALL) == [A, B, C]


def test_a_queue_that_is_down_waits_for_its_recoverable_nodes() -> None:
    """Shut down one by one, the last one had all (§4.10 a)."""
    view = died(ALL, [ALL.members[2].id], may_lose=False)
    view = changed(view, EraseMirror(ALL.members[2].id, ALL.master)) or view
    view = died(view, [ALL.master], may_lose=False)
    view = died(view, [ALL.members[1].id], may_lose=False)
    assert view.state == "down"
    assert keepers(view) == [A, B]


def test_while_it_is_flushing_the_dead_keep_theirs() -> None:
    view = died(ALL, [ALL.master], may_lose=False)
    assert view.state == "flushing"
    assert keepers(view) == [A, B, C]


def test_who_was_away_while_the_queue_went_on_begins_empty() -> None:
    """L9: its copy lacks what came since."""
    dead = ALL.members[2].id
    view = died(ALL, [dead], may_lose=False)
    erased = changed(view, EraseMirror(dead, view.owner_of(dead)))
    assert erased is not None
    assert keepers(erased) == [A, B]


def test_a_copy_that_never_had_all_counts_for_nothing() -> None:
    view = replace(ALL, synced=(ALL.members[0].id,))
    assert keepers(view) == [A]


@pytest.mark.parametrize("fields", [{"durable": False}, {"exclusive_owner": "c1"}])
def test_what_no_restart_keeps(fields: dict[str, object]) -> None:
    assert keepers(ALL, **fields) == []


def test_a_queue_that_is_not_mirrored_has_no_copies() -> None:
    assert keepers(None) == []


def catalogue_of(*records: QueueRecord) -> Catalogue:
    catalogue = Catalogue()
    for command in (PutVhost("/"), *map(RestoreQueue, records)):
        catalogue.apply(command)
    return catalogue


def test_all_of_a_catalogue() -> None:
    down = replace(created(3, NODES[:1]), state="down", members=(), synced=(), recoverable=(B,), copies=(7,))
    catalogue = catalogue_of(record_of(ALL), record_of(down, OTHER_UID), record_of(None, UNKNOWN_UID))
    first, second, third = record_of(ALL), record_of(down, OTHER_UID), ALL.members
    assert recoverable_copies(catalogue, A) == {stored_uid(UID, third[0].copy): (first, third[0].copy)}
    assert recoverable_copies(catalogue, B) == {
        stored_uid(UID, third[1].copy): (first, third[1].copy),
        stored_uid(OTHER_UID, 7): (second, 7),
    }


def test_what_is_stored_of_a_queue_has_a_name_of_its_own() -> None:
    """A copy that was given up is never taken for the one that came after it."""
    record = record_of(None)
    assert stored(record, 0) is record
    assert len({stored(record, copy).uid for copy in range(10)}) == 10


def test_tools_look_at_them_too() -> None:
    """`fluffle store check` says what the next start would find, unmirrored queues as well."""
    catalogue = catalogue_of(record_of(ALL), record_of(None, UNKNOWN_UID, copy=4))
    own, mirror = ALL.members[0].copy, ALL.members[1].copy
    assert set(cluster_metadata(catalogue, A).queues) == {stored_uid(UID, own), stored_uid(UNKNOWN_UID, 4)}
    assert set(cluster_metadata(catalogue, B).queues) == {stored_uid(UID, mirror)}


# --- on disk ---


def test_a_discarded_copy_takes_nothing_of_another_queue_along() -> None:
    """Discarding a copy leaves another queue with the same large message and a journal in common as it was."""
    files = Files()
    other = files.records.pop(OTHER_UID)
    assert other.uid == OTHER_UID
    files.contents(1, {4: b"x" * 5000, 5: b"y" * 5000})
    files.segment(0, enqueue(1, b"old"), uid=OTHER_UID)
    files.segment(0, enqueue(1, b"kept"))
    shared = enqueue_stored(2, 4, 2)
    files.journal(shared, number=1)
    files.journal(enqueue(ENTRIES + 2, b"gone"), shared, number=2, uid=OTHER_UID)
    files.journal(enqueue(ENTRIES + 2, b"late"), number=3, is_clean=True)
    result, _ = files.recover()
    assert files.bodies() == {1: b"kept", 2: 4, 3: 5, ENTRIES + 2: b"late"}
    assert files.disk.names(f"queues/{OTHER_UID}") == []
    assert result.unknown_queues == {OTHER_UID}
    assert result.findings == []


def test_after_that_the_copy_begins_with_nothing() -> None:
    """A queue that gets another copy later, under the same uid, finds nothing of the first."""
    files = Files()
    other = files.records.pop(OTHER_UID)
    files.segment(0, enqueue(1, b"old"), uid=OTHER_UID)
    files.journal(enqueue(2, b"older"), uid=OTHER_UID, is_clean=True)
    files.recover()
    files.records[OTHER_UID] = other
    result, _ = files.recover()
    assert result.queues[OTHER_UID].pages == []
    assert result.queues[OTHER_UID].next_seq == 1


@pytest.mark.parametrize("steps", range(2, 30))
def test_discarding_may_be_cut_short_anywhere(steps: int) -> None:
    """The power goes while a copy is discarded: the other queue has all its messages, the copy nothing."""
    files = Files()
    other = files.records.pop(OTHER_UID)
    files.segment(0, enqueue(1, b"a"), enqueue(2, b"b"))
    files.segment(0, enqueue(1, b"x"), uid=OTHER_UID)
    files.journal(enqueue(3, b"c"), remove(1), number=1)
    files.journal(enqueue(2, b"y"), number=2, uid=OTHER_UID)
    with suppress(PowerOff):
        files.recover(FailingDisk(files.disk, steps))
    for seed in range(5):
        left = Files(files.disk.crash(Random(seed)))
        left.records.pop(OTHER_UID)
        left.recover()
        assert left.bodies() == {2: b"b", 3: b"c"}
        left.records[OTHER_UID] = other
        assert left.recover()[0].queues[OTHER_UID].pages == []
