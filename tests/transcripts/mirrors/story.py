"""Stories of a mirrored queue `q`: whole brokers with their disks, what happens to them, and what clients and operators
see of it.

    nodes n1 n2 n3                a cluster; all are up
    policy {ha-mode=all}          for all queues; `policy` alone: none any more
    queue on n1 n2 n3             q is declared, durable, the master on n1, mirrors on the others; `queue … {x-…=…}`
    client 1 on n2                a client logs in (to be told of cancelled consumers)
    client 1 basic.get queue=q    as in tests.transcripts.story; several lines with & at their end go together
    wait 2.5                      seconds go by, and all that was due in them happens
    q                             what is where; for each node

    n1 crashes                    kill -9, and the log says so; `n1 crashes unnoticed`: it doesn't
    n1 stops, n1 starts           in good order; with what its disk has
    n1 is declared dead           the log says so, true or not
    n1 is cut off, reached        from now on nothing goes to it and comes from it, not even the log; until now
    n1 freezes, thaws             and it does nothing either, what is sent to it waits; until now
    n1 disk stops, goes on        what is written waits to be synced; until now
    n1 pages out                  memory is short: all contents leave it that can
    transfer to n2, drop n2, evict n2, synchronise on|off, delete     what a master or an operator wants

    by hand                       from here on nothing moves between nodes but by the next two lines
    n2 hears n1                   all frames that are under way from n1; `n2 hears n1 2`: the next two
    n2 applies                    all commands of the log; `n2 applies 1`: the next one
    by itself                     things move again by themselves

What comes of a line is indented. `view`: what the log made of the queue, its members in the order of the ring (* is
synchronised, ? joining, † dead). `n1: …`: a line of n1's log. `n1 → n2`: what was sent, which is shown `by hand` only:
`[of 1: +2 (+4–5 -3 next 6) ack 0 on disk 1]` is broadcast 2 of member 1, whose queue got the messages 4 and 5 and is
done with 3; `inventory` tells a member that lacks something what there is, pull and chunk are of a synchronisation.

Write a story without the indented lines and let

    python -m tests.transcripts.mirrors.story --rewrite [NAME]

fill them in: then read the difference.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from cluster.gm_ring.messages import Activity, Item
from cluster.gm_ring.wire import decode_frame
from cluster.mirror.batch import Clock, Handover, Inventory, SenderGone, SyncMode, decode_batch
from cluster.mirror.side import Chunk, Probe, Pull, Report, decode_side
from cluster.remote.remote_pb2 import Frame
from node.amqp.field_table import Field, Table, boolean
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import ChangeView, ClearPolicy, DeleteQueue, Refused, SetPolicy
from node.catalogue.events import QueueCreated, QueueDeleted, ViewChanged
from node.catalogue.mirrors.views import DropMirror, RingMember, View
from node.catalogue.records import QueueRecord
from node.queue.operations import Delivered, Enqueue, Remove
from node.queue.queue import Queue
from tests.kit.cluster import RING
from tests.kit.disk_cluster import DiskCluster
from tests.kit.world import GUEST, Client
from tests.transcripts.script import INDENT, main, retold
from tests.transcripts.story import frames_of, shown, table_of

STORIES: Final = sorted(Path(__file__).parent.glob("*.txt"))
_PREFIX: Final = "Mirrored queue 'q' in vhost '/': "


class Story:
    """A cluster, its clients by number, and what the log has made of the queue."""

    def __init__(self) -> None:
        self.cluster = DiskCluster()
        self.clients: dict[int, Client] = {}
        self._together = b""
        self._truth = Catalogue()
        self._told = 0
        self._heard: dict[str, int] = {}
        self._notes: list[str] = []
        self._seen: dict[int, bytes] = {}
        """Frames that were shown, by id; kept, so that their ids are not used again."""

    def tell(self, line: str) -> Iterator[str]:
        """Do what the line says; what came of it."""
        words = line.split()
        match words:
            case ["nodes", *names]:
                self.cluster = DiskCluster(*names)
                self._truth = _everything(self.cluster)
                self._told = len(self.cluster.log)
            case ["policy"]:
                self._submit(ClearPolicy("/", "ha"))
            case ["policy", definition]:
                self._submit(SetPolicy("/", "ha", "^q$", _plain(table_of(definition))))
            case ["queue", "on", *names]:
                arguments = table_of(names.pop()) if names[-1].startswith("{") else {}
                self.cluster.declare_mirrored("q", *names, arguments=arguments)
            case ["client", number, "on", node] if node in self.cluster.nodes:
                capabilities = {"consumer_cancel_notify": boolean(True)}
                self.clients[int(number)] = self.cluster[node].client(capabilities=capabilities)
            case ["client", number, "goes", "away"]:
                self.clients.pop(int(number)).lose()
            case ["client", number, *rest]:
                if rest[-1] == "&":
                    self._together += frames_of(self.clients[int(number)], 1, rest[:-1])
                    return
                data = self._together + frames_of(self.clients[int(number)], 1, rest)
                self._together = b""
                self.clients[int(number)].feed(data)
                self.cluster.settle()
            case ["wait", seconds]:
                self.cluster.advance(float(seconds))
            case ["by", "hand"]:
                self.cluster.is_held = True
            case ["by", "itself"]:
                self.cluster.is_held = False
                self.cluster.settle()
            case ["q"]:
                yield from self._look()
            case ["transfer", "to", node]:
                self.cluster.transfer("q", node)
            case ["delete"]:
                self._submit(DeleteQueue("/", "q", self._record.uid))
            case ["drop", node]:
                self.cluster.change_view("q", lambda view: DropMirror(_member(view, node).id))
            case ["evict", node]:
                self._evict(node)
            case ["synchronise", state]:
                view = self._view
                assert view.master_node is not None
                self.cluster[view.master_node].mirrors.sync(self._record, is_on=state == "on")
                self.cluster.settle()
            case [node, *rest]:
                self._tell_node(node, " ".join(rest))
            case _:
                raise AssertionError(line)
        yield from self._news()

    def _tell_node(self, name: str, what: str) -> None:
        cluster = self.cluster
        match what.split():
            case ["crashes", *unnoticed]:
                cluster.crash(name, is_noticed=not unnoticed)
            case ["stops"]:
                cluster.stop(name)
            case ["starts"]:
                cluster.start(name)
                self._heard.pop(name, None)
            case ["is", "declared", "dead"]:
                cluster.declare_dead(name)
            case ["is", "cut", "off"]:
                cluster.cut_off.add(name)
            case ["is", "reached"]:
                cluster.cut_off.remove(name)
            case ["freezes"]:
                cluster.frozen.add(name)
            case ["thaws"]:
                cluster.frozen.remove(name)
            case ["disk", "stops"]:
                cluster[name].is_disk_held = True
            case ["disk", "goes", "on"]:
                cluster[name].is_disk_held = False
                cluster[name].turn()
            case ["pages", "out"]:
                cluster[name].page_out()
            case ["hears", origin, *count]:
                if not cluster.deliver(origin, name, int(count[0]) if count else 1 << 30):
                    self._notes.append("nothing is under way")
            case ["applies", *count]:
                done = 0
                while (not count or done < int(count[0])) and cluster.apply(name):
                    done += 1
                if not done:
                    self._notes.append("there is nothing to apply")
            case _:
                raise AssertionError(what)
        cluster.settle()

    def _submit(self, command: Any) -> None:
        self.cluster.log.append((command, "", 0, None))
        self.cluster.settle()

    def _evict(self, node: str) -> None:
        master = self._view.master_node
        assert master is not None
        record = self._record
        self.cluster[master].mirrors.controller.evict(
            record, _member(self._view, node).id, "does not keep up"
        )
        self.cluster.settle()

    @property
    def _record(self) -> QueueRecord:
        record = self._truth.queue("/", "q")
        assert record is not None
        return record

    @property
    def _view(self) -> View:
        view = self._record.view
        assert view is not None
        return view

    # --- what came of it ---

    def _news(self) -> Iterator[str]:
        cluster = self.cluster
        notes, self._notes = self._notes, []
        yield from (INDENT + note for note in notes)
        yield from self._log()
        for node in cluster:
            heard = self._heard.get(node.name, 0)
            for text in node.events[heard:]:
                yield f"{INDENT}{node.name}: {text.removeprefix(_PREFIX)}"
            self._heard[node.name] = len(node.events)
            assert node.faults == []
        for number, client in self.clients.items():
            if client.world.name in cluster.frozen:  # type: ignore[attr-defined]
                continue
            client._decode()
            unread, client._unread = client._unread, []
            for item in unread:
                yield f"{INDENT}client {number} {shown(item)}"
            if client.is_reset:
                yield f"{INDENT}client {number} is disconnected"
        self.clients = {number: client for number, client in self.clients.items() if not client.is_reset}
        yield from self._frames()

    def _log(self) -> Iterator[str]:
        """Views that the log made since the last time."""
        log = self.cluster.log
        while self._told < len(log):
            command = log[self._told][0]
            self._told += 1
            result = self._truth.apply(command)
            if isinstance(result, Refused):
                what = type(command.change if isinstance(command, ChangeView) else command).__name__
                yield f"{INDENT}{what} is refused"
            for event in self._truth.take_events():
                match event:
                    case QueueCreated(record):
                        yield f"{INDENT}{_shown_view(record)}"
                    case ViewChanged(before, after) if before.view != after.view:
                        yield f"{INDENT}{_shown_view(after)}"
                    case QueueDeleted():
                        yield f"{INDENT}deleted"

    def _frames(self) -> Iterator[str]:
        """Yield the frames that were sent since the last time, while nothing moves by itself."""
        for (origin, to), frames in self.cluster.frames.items():
            new = [frame for frame in frames if id(frame) not in self._seen]
            for frame in new:
                self._seen[id(frame)] = frame
                if self.cluster.is_held:
                    yield from (f"{INDENT}{origin} → {to} {text}" for text in _shown_frame(frame))

    def _look(self) -> Iterator[str]:
        for node in self.cluster:
            live = node.broker.vhosts["/"].queues.get("q")
            if live is None:
                yield f"{INDENT}{node.name}: no queue"
                continue
            known = node.mirrors._known.get(live.record.uid)
            replica = None if known is None else known.replica
            yield f"{INDENT}{node.name}: {_shown_live(live)}{_shown_replica(replica)}"


def _everything(cluster: DiskCluster) -> Catalogue:
    """The catalogue of all that is in the log, with what every node begins with."""
    truth = Catalogue()
    for command in (*GUEST, *(command for command, *_ in cluster.log)):
        truth.apply(command)
    truth.take_events()
    return truth


def _member(view: View, node: str) -> RingMember:
    member = view.member_on(node)
    assert member is not None
    return member


def _plain(definition: Table) -> dict[str, Any]:
    def plain(field: Field) -> Any:
        value = field.value
        if isinstance(value, list):
            return [plain(each) for each in value]
        return value.decode() if isinstance(value, bytes) else value

    return {key: plain(field) for key, field in definition.items()}


# --- showing ----------------------------------------------------------------------------------------------


def _shown_view(record: QueueRecord) -> str:
    view = record.view
    if view is None:
        return f"not mirrored, on {record.home}"
    words = [f"view {view.version} {view.state}:"]
    if view.state == "down":
        words.append("waits for " + " or ".join(view.recoverable))
        words += [f"(offered: {node} up to {position - 1})" for node, _, position in view.offers]
        return " ".join(words)
    for member in view.members:
        is_synced = member.id in view.synced
        mark = {"joining": "?", "alive": "*" if is_synced else "", "dead": "†"}[member.status]
        role = " (master)" if member.id == view.master else ""
        words.append(f"{member.node}.{member.id}{mark}{role}")
    if view.previous:
        words.append(f"after {view.previous}")
    return " ".join(words)


def _shown_live(live: Any) -> str:
    if not isinstance(live, Queue):
        kind = {"RemoteQueue": "asks the master's node", "MasterlessQueue": "has no master"}[
            type(live).__name__
        ]
        return f"{kind}, "
    consumers = f", {len(live.consumers)} consumers" if len(live.consumers) else ""
    next_seq = f", next {live.next_seq}" if live.replicator is not None else ""
    return f"master: {live.backlog.count} ready, {live.unacked_count} unacked{consumers}{next_seq}"


def _shown_replica(replica: Any) -> str:
    if replica is None:
        return "has no copy"
    if replica.follower is None:
        return ""
    copy = replica.follower.copy
    if not replica.follower.has_inventory:
        return "copy that does not know what it lacks"
    missing = f", lacks {_numbers(copy.missing.ranges())}" if copy.missing else ""
    return f"copy with {_numbers(copy.held.ranges()) or 'nothing'}{missing}, next {copy.next_seq}"


def _numbers(ranges: Any) -> str:
    return " ".join(_range(part.start, part.stop - 1) for part in ranges)


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}–{last}"


def _shown_frame(frame: bytes) -> Iterator[str]:
    if not frame.startswith(RING):
        yield "front end and home: " + ", ".join(
            operation.WhichOneof("kind").replace("_", " ") for operation in Frame.FromString(frame).operations
        )
        return
    for packet in decode_frame(frame.removeprefix(RING), []):
        message = packet.message
        if isinstance(message, bytes):
            yield f"({packet.sender} to {packet.receiver}) {_shown_side(message)}"
            continue
        kind = "activity" if isinstance(message, Activity) else "catch-up"
        items = message.items if isinstance(message, Activity) else message.origins
        yield f"({packet.sender} to {packet.receiver}, view {message.version}) {kind}" + "".join(
            f" {_shown_item(item)}" for item in items
        )


def _shown_item(item: Item) -> str:
    words = []
    if item.payloads:
        words.append(f"+{_range(item.upto - len(item.payloads) + 1, item.upto)}")
        words += [_shown_batch(payload) for payload in item.payloads]
    elif item.upto >= 0:
        words.append(f"up to {item.upto}")
    words += [f"ack {item.ack}"] if item.ack >= 0 else []
    words += [f"on disk {item.mark}"] if item.mark >= 0 else []
    return f"[of {item.origin}: {' '.join(words) or 'nothing'}]"


def _shown_batch(payload: bytes) -> str:
    if not payload:
        return "(while alone)"
    batch = decode_batch(payload)
    return f"({' '.join([*map(_shown_step, batch.steps), f'next {batch.next_seq}'])})"


def _shown_step(step: Any) -> str:
    match step:
        case Clock():
            return "clock"
        case Enqueue():
            return f"+{_range(step.first_seq, step.first_seq + step.count - 1)}"
        case Remove(ranges):
            return "-" + _numbers(ranges).replace(" ", " -")
        case Delivered(ranges, count):
            return f"{_numbers(ranges)} delivered {count}"
        case Inventory(member, ids):
            return f"inventory for {member}: {_numbers(ids) or 'nothing'};"
        case Handover():
            return "handover"
        case SyncMode(is_on):
            return f"synchronise {'on' if is_on else 'off'}"
        case SenderGone():
            return "front end gone"
    raise AssertionError(step)


def _shown_side(raw: bytes) -> str:
    match message := decode_side(raw):
        case Pull(ranges=ranges, taken=taken):
            return f"pull {_numbers(ranges)}" if ranges else f"pull on, {taken} taken"
        case Chunk(entries=entries, is_refused=True):
            return "refuses"
        case Chunk(entries=entries, is_end=is_end):
            return f"chunk {' '.join(map(_shown_step, entries))}{', end' if is_end else ''}"
        case Probe():
            return "probe"
        case Report(last):
            return f"report {last}"
    raise AssertionError(message)


# --- playing ----------------------------------------------------------------------------------------------


def play(text: str, on_line: Callable[[str], None] = lambda line: None) -> str:
    """Return the story with the present outcome of each line."""
    story = Story()

    def tell(line: str) -> Iterator[str]:
        on_line(line)
        return story.tell(line)

    return retold(text, tell)


if __name__ == "__main__":
    main(STORIES, play)
