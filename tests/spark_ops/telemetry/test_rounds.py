"""Records of collectors say how far these have come, while they live."""

import json
from pathlib import Path

from spark_ops.telemetry.rounds import ALIVE_S, BEHIND_MAX_S, RENEWED_S, Rounds, collected_until

FLUSH_S = 60.0


def rounds(root: Path, now: float, source: str = "in") -> Rounds:
    return Rounds(root, [root / source], FLUSH_S, now)


def test_without_a_collector_that_lives_all_counts_as_collected(tmp_path: Path) -> None:
    assert collected_until(tmp_path, 1000.0) == 1000.0
    one = rounds(tmp_path, 1000.0)
    one.renew(1000.0)
    one.ended(1000.0, 1001.0)
    gone = 1001.0 + 2 * FLUSH_S + ALIVE_S
    assert collected_until(tmp_path, gone) == 1000.0
    assert collected_until(tmp_path, gone + 1) == gone + 1


def test_a_collector_that_is_behind_has_collected_up_to_its_last_round(tmp_path: Path) -> None:
    """The collector is at work all the time, and its first round takes minutes. One that restarts is no further."""
    one = rounds(tmp_path, 1000.0)
    for now in range(1000, 1400, 30):
        one.renew(float(now))
        assert collected_until(tmp_path, now + 10.0) == 1000.0
    one.ended(1005.0, 1400.0)
    assert collected_until(tmp_path, 1401.0) == 1005.0
    again = rounds(tmp_path, 1450.0)
    again.renew(1450.0)
    assert collected_until(tmp_path, 1451.0) == 1005.0


def test_the_slowest_of_all_collectors_counts(tmp_path: Path) -> None:
    one, other = rounds(tmp_path, 1000.0, "a"), rounds(tmp_path, 1000.0, "b")
    one.ended(1100.0, 1101.0)
    other.ended(1050.0, 1102.0)
    assert collected_until(tmp_path, 1110.0) == 1050.0
    other.ended(1110.0, 1111.0)
    assert collected_until(tmp_path, 1112.0) == 1100.0


def test_a_collector_that_never_comes_to_an_end_does_not_hide_an_outage(tmp_path: Path) -> None:
    """The disk is full, for example, and the collector tries again and again."""
    one = rounds(tmp_path, 1000.0)
    one.renew(1000.0 + BEHIND_MAX_S)
    assert collected_until(tmp_path, 1000.0 + BEHIND_MAX_S) == 1000.0
    assert collected_until(tmp_path, 1001.0 + BEHIND_MAX_S) == 1001.0 + BEHIND_MAX_S


def test_a_record_is_not_written_again_and_again(tmp_path: Path) -> None:
    one = rounds(tmp_path, 1000.0)
    one.renew(1000.0)
    (path,) = tmp_path.rglob("*.json")
    path.unlink()
    one.renew(1000.0 + RENEWED_S / 2)
    assert not path.exists()
    one.renew(1000.0 + RENEWED_S)
    assert json.loads(path.read_bytes())["active"] == 1000.0 + RENEWED_S


def test_a_damaged_record_says_nothing(tmp_path: Path) -> None:
    one = rounds(tmp_path, 1000.0)
    one.ended(900.0, 1000.0)
    (path,) = tmp_path.rglob("*.json")
    for text in ("{", "[]", '{"format": "other"}', '{"format": "spark-ops-round/1"}'):
        path.write_text(text)
        assert collected_until(tmp_path, 1010.0) == 1010.0
