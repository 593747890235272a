"""The document of a plan: what is refused, and that nothing else than what was made is taken."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ops.documents import content_hash
from spark_ops.planning.drafting import draft
from spark_ops.planning.plan import (
    Plan,
    PlanError,
    parse,
    parse_document,
    refuse_unless_valid,
    step_document,
    written,
)
from tests.spark_ops.planning.clusters import FREE, NOW, cluster, node, queue


def _document() -> dict[str, Any]:
    """With a promotion, a copy, a copy of a master, and a note."""
    names = ["a", "b", "c", "d"]
    queues = [queue(f"q{n}", "a", "b", cpu=1.0, size=5e6, memory=1e6) for n in range(6)]
    queues += [queue("alone", "a", is_exclusive=True)]
    rows = cluster([node(name, is_draining=name == "a") for name in names], queues)
    return draft(rows, FREE, now=NOW)


def _sealed(document: dict[str, Any]) -> dict[str, Any]:
    """With the hash of what it is now: as somebody would who wants to harm."""
    body = {name: value for name, value in document.items() if name != "plan_id"}
    return {**body, "plan_id": content_hash(body)}


def test_a_plan_comes_back_as_it_was_written() -> None:
    document = _document()
    found = parse(written(document).encode())
    assert [step_document(step) for step in found.steps] == document["steps"]
    assert found.plan_id == document["plan_id"]
    actions = {step.action for step in found.steps}
    assert actions == {"promote", "add_mirror", "wait_synced", "drop_mirror", "note"}
    assert parse_document(json.loads(json.dumps(document, indent=2))) == found


def test_a_copy_is_added_filled_and_only_then_given_up() -> None:
    found = parse_document(_document())
    for step in found.steps:
        if step.action == "drop_mirror":
            before = [found.by_id[id_].action for id_ in step.depends]
            assert "wait_synced" in before
            assert step.pre is not None
            assert step.pre.min_synced == 2


def _edit(document: dict[str, Any], *path: str | int, value: Any) -> dict[str, Any]:
    changed = json.loads(json.dumps(document))
    at = changed
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return changed


def test_who_edits_a_plan_has_another() -> None:
    for path, value in (
        (("steps", 0, "to"), "d"),
        (("expires",), "2099-01-01T00:00:00Z"),
        (("cluster",), "other"),
        (("summary", "bytes"), 0),
        (("plan_id",), "sha256:" + "0" * 64),
    ):
        with pytest.raises(PlanError, match="edited"):
            parse(written(_edit(_document(), *path, value=value)))


def _step_of(document: dict[str, Any], action: str) -> int:
    return next(at for at, step in enumerate(document["steps"]) if step["action"] == action)


@pytest.mark.parametrize(
    ("action", "path", "value"),
    [
        ("promote", ("to",), None),
        ("promote", ("to",), 7),
        ("promote", ("action",), "delete_queue"),
        ("promote", ("pre",), None),
        ("promote", ("pre", "synced"), []),
        ("promote", ("pre", "epoch"), -1),
        ("promote", ("pre", "epoch"), None),
        ("promote", ("pre", "min_synced"), 0),
        ("promote", ("post", "master"), "a"),
        ("promote", ("depends",), ["s9999"]),
        ("promote", ("depends",), ["s1", "s1", 3]),
        ("promote", ("cost", "bytes"), -5),
        ("promote", ("cost", "bytes"), 1.5),
        ("promote", ("effect",), {"a.cpu": "much"}),
        ("promote", ("id",), "s77"),
        ("promote", ("queue",), None),
        ("promote", ("why",), "x" * 5000),
        ("drop_mirror", ("pre", "min_synced"), 0),
        ("drop_mirror", ("from",), None),
        ("drop_mirror", ("pre", "master"), "a"),
        ("add_mirror", ("to",), "b"),
        ("wait_synced", ("depends",), []),
    ],
)
def test_what_contradicts_itself_is_refused(action: str, path: tuple[str, ...], value: Any) -> None:
    document = _document()
    at = _step_of(document, action)
    if path == ("pre", "master") or (path == ("to",) and value == "b"):
        value = document["steps"][at]["from"]
    with pytest.raises(PlanError) as caught:
        parse_document(_sealed(_edit(document, "steps", at, *path, value=value)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "waves", [[], [{"n": 2, "steps": []}], [{"n": 1, "steps": ["s1", "s1"]}], {"n": 1}, None]
)
def test_each_step_is_in_one_wave(waves: Any) -> None:
    with pytest.raises(PlanError):
        parse_document(_sealed({**_document(), "waves": waves}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"plan"',
        b"{}",
        b'{"format":"spark-ops-plan/2"}',
        b'{"format":["spark-ops-plan/1"]}',
        b'{"format":"spark-ops-plan/1","format":"spark-ops-plan/1"}',
        b'{"format":"spark-ops-plan/1","x":NaN}',
        b'{"format":"spark-ops-plan/1","x":1e999}',
        b'{"format":"spark-ops-plan/1","x":' + b"9" * 5000 + b"}",
        b'{"format":"spark-ops-plan/1","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"format":"spark-ops-plan/1","x":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
def test_what_is_no_plan_is_refused_in_a_line(data: bytes) -> None:
    with pytest.raises(PlanError) as caught:
        parse(data)
    assert "\n" not in str(caught.value)


def test_a_torn_plan_is_refused_wherever_it_ends() -> None:
    data = written(_document()).encode()
    for end in range(0, len(data) - 2, 97):
        with pytest.raises(PlanError):
            parse(data[:end])


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(st.data(), _JSON)
def test_anything_anywhere_is_a_plan_or_a_plan_error(data: st.DataObject, value: Any) -> None:
    """Whatever stands in place of any part, with the right hash: a plan, or one line."""
    document = _document()
    path: list[str | int] = []
    at: Any = document
    while isinstance(at, dict | list) and at and (not path or data.draw(st.booleans())):
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        path.append(key)
        at = at[key]
    with suppress(PlanError):
        assert isinstance(parse_document(_sealed(_edit(document, *path, value=value))), Plan)


def test_expired_foreign_and_future_plans_are_refused() -> None:
    found = parse_document(_document())
    refuse_unless_valid(found, cluster="c", now=NOW + 10)
    refuse_unless_valid(found, cluster=None, now=NOW + 10)
    with pytest.raises(PlanError, match="expired"):
        refuse_unless_valid(found, cluster="c", now=NOW + 3600)
    with pytest.raises(PlanError, match="is for the cluster 'c'"):
        refuse_unless_valid(found, cluster="d", now=NOW + 10)
    with pytest.raises(PlanError, match="clocks"):
        refuse_unless_valid(found, cluster="c", now=NOW - 1000)


def test_names_may_be_anything() -> None:
    names = ["</script>", "=cmd()", "ü" * 127, "a\nb", "\ud800"]
    queues = [queue(name, "a", "b", cpu=1.0) for name in names]
    rows = cluster([node(name) for name in ("a", "b")], queues)
    document = draft(rows, replace(FREE, goals=("masters",)), now=NOW)
    found = parse_document(document)
    assert {step.queue for step in found.steps} <= set(names)
    assert found.waves
