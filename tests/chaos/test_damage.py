"""Damage of files is what it says, no more and no less."""

from pathlib import Path
from random import Random

from tests.chaos.damage import HEADER_BYTES, emptied, flip, folders_gone


def _bits(before: bytes, after: bytes) -> list[int]:
    return [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]


def test_one_bit_flips_behind_the_header(tmp_path: Path) -> None:
    path = tmp_path / "journal" / "1.journal"
    path.parent.mkdir()
    for seed in range(50):
        path.write_bytes(bytes(HEADER_BYTES + 3))
        told = flip(tmp_path, "journal/*.journal", Random(seed))
        [at] = _bits(bytes(HEADER_BYTES + 3), path.read_bytes())
        assert at >= HEADER_BYTES
        assert path.read_bytes()[at].bit_count() == 1
        assert told == f"a bit of journal/1.journal at {at} of {HEADER_BYTES + 3}"


def test_a_file_without_anything_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(bytes(HEADER_BYTES))
    assert flip(tmp_path, "empty", Random(1)) == ""
    assert flip(tmp_path, "nothing", Random(1)) == ""
    assert (tmp_path / "empty").read_bytes() == bytes(HEADER_BYTES)


def test_folders_go_and_others_stay(tmp_path: Path) -> None:
    for name in ("journal", "messages", "raft"):
        (tmp_path / name / "x").mkdir(parents=True)
    assert folders_gone(tmp_path, ("journal", "queues", "messages")) == "journal messages gone"
    assert [path.name for path in tmp_path.iterdir()] == ["raft"]
    (tmp_path / "store.json").touch()
    emptied(tmp_path)
    assert list(tmp_path.iterdir()) == []
