"""Progress of long work is told: nothing if it is quick, one line on a terminal, a line at times elsewhere."""

import io

from spark_ops.jobs.progress import LINE_S, _Told


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal() -> None:
    """The line is replaced, and gone at the end."""
    out = _Terminal()
    told = _Told("rollup", out)
    told.tell(10.0, 3, 10)
    told.tell(11.0, 0, 0)
    told.clear()
    shown = out.getvalue().split("\r")
    assert shown[1] == "rollup: 10 s, 3 of 10 tasks"
    assert shown[2].rstrip() == "rollup: 11 s"
    assert len(shown[2]) == len(shown[1])
    assert shown[3].strip() == shown[4] == ""


def test_elsewhere() -> None:
    """Lines stay, so there are few."""
    out = io.StringIO()
    told = _Told("rollup", out)
    for second in range(10, 10 + round(LINE_S) * 2):
        told.tell(float(second), 1, 2)
    told.clear()
    assert len(out.getvalue().splitlines()) == 2
