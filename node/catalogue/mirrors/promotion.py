"""The decision which copy of a mirrored queue becomes its master, after the loss of the master or of all copies.

After `kill -9` of the master's node this is the way to the next master:

    1. `node.clustering.verdicts`                    Raft's leader has the node declared down: command `NodeDown`
    2. `mirrored_queues.MirroredQueues.lose`         each node applies it, for all queues of the dead node
    3. `views.died`                                  the member is dead, the queue `flushing`: it has no master
    4. `cluster.gm_ring.member`                      the survivors complete the dead master's last broadcasts
    5. `views.changed` with `EraseMirror`            proposed by the dead member's neighbour when they have come round
    6. `promoted`, below                             the first synchronised member is master, or the queue is `down`
    7. `cluster.mirror.replica.Replica.take_up`          that node makes a queue of its copy
    8. `node.broker.broker.Broker.replace`           on each node clients move over to it

A queue that is `down` comes back here, too: nodes offer their copies (`offered`), and the best is taken (`revived`).
Pure functions of the view, so all nodes decide alike.
Source: reliability §4.6, §4.10.
"""

from dataclasses import replace

from node.catalogue.mirrors.view import RingMember, View, is_there
from node.catalogue.mirrors.view_changes import OfferCopy


def promoted(view: View) -> View:
    """Return the view with the first synchronised member as master, or that of a queue that is down.

    All members have the same operations, so all synchronised copies are equal.
    """
    alive = [member for member in view.members if member.status == "alive"]
    synced = tuple(member.id for member in alive if member.id in view.synced)
    if synced:
        master = synced[0]
    elif view.may_lose and alive:
        master = min(member.id for member in alive)
        synced = (master,)
    else:
        return down(view)
    if view.previous == master:  # it need not wait for its own broadcasts
        view = replace(view, previous=0, handover=0)
    return replace(
        view, master=master, synced=synced, state="live", since=view.version, recoverable=(), copies=()
    )


def down(view: View) -> View:
    """Return the view of a queue that no node can serve: it waits for its recoverable nodes to offer their copies."""
    return replace(
        view, members=(), master=0, synced=(), state="down", previous=0, handover=0, offers=(), judged=()
    )


def offered(view: View, change: OfferCopy) -> View | None:
    """Return the view with a node's offer of its copy; the best copy is taken when all recoverable nodes have offered.

    None: the queue is not down, the node's copy is not recoverable, or this very offer is known.
    """
    node = change.node
    if view.state != "down" or node not in view.recoverable:
        return None
    if is_offered(view, change):
        return None
    offer = (node, change.incarnation, change.position)
    judgement = () if change.is_clean is None else ((node, change.is_clean),)
    after = _without_offer(view, node)
    after = replace(
        after,
        version=view.version + 1,
        offers=(*after.offers, offer),
        judged=(*after.judged, *judgement),
    )
    if change.is_clean is None and node == view.recoverable[0]:
        return _revived_from(after, offer)
    return _revived_from(after, _best(after)) if _has_all(after) else after


def is_offered(view: View, change: OfferCopy) -> bool:
    """True if the view has this very offer."""
    judgement = None if change.is_clean is None else (change.node, change.is_clean)
    offer = (change.node, change.incarnation, change.position)
    return offer in view.offers and (judgement is None or judgement in view.judged)


def _has_all(view: View) -> bool:
    return {offer[0] for offer in view.offers} == set(view.recoverable)


def _without_offer(view: View, node: str) -> View:
    return replace(
        view,
        offers=tuple(offer for offer in view.offers if offer[0] != node),
        judged=tuple(each for each in view.judged if each[0] != node),
    )


def revived(view: View) -> View | None:
    """Return the view with the best copy that was offered, without waiting for other nodes; None if none is clean."""
    if view.state != "down" or not view.clean_offers:
        return None
    return _revived_from(replace(view, version=view.version + 1), _best(view))


def _best(view: View) -> tuple[str, int, int]:
    """Return the best offer: a clean copy before others, then the longest, then the first of the recoverable nodes."""
    return max(
        view.clean_offers or view.offers, key=lambda offer: (offer[2], -view.recoverable.index(offer[0]))
    )


def _revived_from(view: View, offer: tuple[str, int, int]) -> View:
    """Return the view with an offered copy as the master's. Others are kept until there is a synchronised mirror."""
    node, incarnation, position = offer
    version = view.version
    copy = view.copies[view.recoverable.index(node)]
    master = RingMember(version, node, incarnation, "alive", version, copy)
    judged = tuple(each for each in view.judged if each[0] == node)
    # An older version, which did not judge, had the others removed at once: what it decided stays as it was.
    others = zip(view.recoverable, view.copies, strict=True) if judged else ()
    kept = tuple(each for each in (*others, *view.kept) if each[0] != node)
    common = min(view.common, position) if view.kept else position
    return View(
        version,
        (master,),
        version,
        (version,),
        since=version,
        judged=judged,
        kept=kept,
        common=common if kept else 0,
    )


def withdrawn(view: View, node: str) -> View | None:
    """Return the view after a node that had offered its copy went down; None if it had not."""
    after = _without_offer(view, node)
    return None if after.offers == view.offers else replace(after, version=view.version + 1)


def forgotten(view: View, node: str) -> View | None:
    """Return the view after a node was forgotten, so that its copy is not waited for; None if it was not.

    If all other copies were offered, the best of them is taken. If there is no other, those count that were not taken
    when the queue came back before.
    """
    gone = {member.id for member in view.members if member.node == node and not is_there(member)}
    synced = tuple(id_ for id_ in view.synced if id_ not in gone)
    kept = tuple(each for each in view.kept if each[0] != node)
    if node not in view.recoverable and synced == view.synced and kept == view.kept:
        return None
    left = tuple(each for each in zip(view.recoverable, view.copies, strict=True) if each[0] != node)
    if view.state != "live" and not left:
        left, kept = kept, ()
    after = replace(
        _without_offer(view, node),
        version=view.version + 1,
        synced=synced,
        recoverable=tuple(known for known, _ in left),
        copies=tuple(copy for _, copy in left),
        kept=kept,
    )
    if after.state == "down" and after.offers and _has_all(after):
        return _revived_from(after, _best(after))
    return after
