"""This module combines the steps of a plan into moves for the reader: a copy is one move of three steps."""

from typing import Any, Final

_STAGES: Final = ("add_mirror", "wait_synced", "promote", "drop_mirror")
"""The order of the steps in a move of several steps."""


def moves_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each move with its steps, in the order of the plan: from, to, reason, cost and effect.

    A step belongs to the move of a step that it depends on, if both are about the same queue and it is a later stage
    of a move that begins with an added mirror. A queue may move twice.
    """
    wave_of = {step: wave.get("n") for wave in plan.get("waves", ()) for step in wave.get("steps", ())}
    moves: list[dict[str, Any]] = []
    home: dict[str, dict[str, Any]] = {}
    for step in plan.get("steps", ()):
        if step.get("action") == "note":
            continue
        queue = (step.get("vhost"), step.get("queue"))
        move = next(
            (
                home[earlier]
                for earlier in step.get("depends", ())
                if earlier in home
                and (home[earlier]["vhost"], home[earlier]["queue"]) == queue
                and _goes_on(home[earlier]["actions"], step.get("action"))
            ),
            None,
        )
        if move is None:
            move = _begun(step, len(moves) + 1, wave_of.get(step["id"]))
            moves.append(move)
        else:
            _joined(move, step)
        home[step["id"]] = move
    for move in moves:
        move["kind"] = _kind(move.pop("actions"))
    return moves


def notes_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the plan's notes, for problems that no move can solve: shard this queue, add a node."""
    return [
        {"text": step.get("why") or step.get("reason") or "", "reason": step.get("reason"), **_subject(step)}
        for step in plan.get("steps", ())
        if step.get("action") == "note"
    ]


def _goes_on(actions: list[str], action: object) -> bool:
    """True if an action is a later stage of a move that had these actions."""
    return (
        actions[0] == "add_mirror"
        and action in _STAGES
        and actions[-1] in _STAGES
        and _STAGES.index(str(action)) > _STAGES.index(actions[-1])
    )


def _subject(step: dict[str, Any]) -> dict[str, Any]:
    return {"node": step.get("from"), "vhost": step.get("vhost"), "queue": step.get("queue")}


def _begun(step: dict[str, Any], number: int, wave: int | None) -> dict[str, Any]:
    move: dict[str, Any] = {
        "n": number,
        "wave": wave,
        "vhost": step.get("vhost"),
        "queue": step.get("queue"),
        "from": step.get("from"),
        "to": step.get("to"),
        "reason": step.get("reason") or "",
        "why": step.get("why") or "",
        "steps": [],
        "actions": [],
        "units": 0,
        "bytes": 0,
        "est_s": 0,
        "effect": {},
    }
    _joined(move, step)
    return move


def _joined(move: dict[str, Any], step: dict[str, Any]) -> None:
    move["steps"].append(step["id"])
    move["actions"].append(step.get("action"))
    for cost in ("units", "bytes", "est_s"):
        move[cost] += (step.get("cost") or {}).get(cost) or 0
    for place, change in (step.get("effect") or {}).items():
        move["effect"][place] = move["effect"].get(place, 0) + change
    if step.get("action") == "drop_mirror":
        move["from"] = step.get("from") or move["from"]
    elif step.get("action") == "promote" and len(move["steps"]) > 1:
        move["from"] = step.get("from") or move["from"]
        move["to"] = step.get("to") or move["to"]


def _kind(actions: list[str]) -> str:
    """Return the name for a move of these steps."""
    did = set(actions)
    if "add_mirror" in did:
        if "promote" in did:
            return "move master"
        return "move mirror" if "drop_mirror" in did else "add mirror"
    return {"promote": "promote", "drop_mirror": "drop mirror"}.get(actions[0], str(actions[0]))
