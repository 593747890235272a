"""Requests as lines of a file."""

from pathlib import Path

from node.management.access_log import AccessLog


def test_a_line_an_answer_and_a_file_an_hour(tmp_path: Path) -> None:
    now = 1_795_305_600.0
    log = AccessLog(str(tmp_path / "http"), lambda: now)
    log.write("127.0.0.1", "guest", "GET /api/overview HTTP/1.1", 200, 1234, "", "curl/7")
    log.write("::1", "", "PUT /x HTTP/1.1", 401, 0, "http://x/", "")
    now += 3600
    log.write("::1", "", "GET / HTTP/1.1", 200, 1, "", "")
    first, second = sorted((tmp_path / "http").iterdir())
    assert first.read_text().splitlines() == [
        '127.0.0.1 - guest [22/Nov/2026:00:00:00 +0000] "GET /api/overview HTTP/1.1" 200 1234 "-" "curl/7"',
        '::1 - - [22/Nov/2026:00:00:00 +0000] "PUT /x HTTP/1.1" 401 0 "http://x/" "-"',
    ]
    assert (first.name, second.name) == ("access.log.2026_11_22_00", "access.log.2026_11_22_01")


def test_nobody_forges_a_line(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path), lambda: 0.0)
    log.write("::1", "a\nb", 'GET /" 200 HTTP/1.1', 200, 1, "x\r\ny", "\u2028" * 5000)
    (file,) = tmp_path.iterdir()
    (line,) = file.read_text().splitlines()
    assert "a\\nb" in line
    assert '/\\" 200' in line
    assert len(line) < 30_000


def test_a_password_in_an_address_is_left_out(tmp_path: Path) -> None:
    """`?auth=` has name and password: RabbitMQ's way to download definitions by a link."""
    log = AccessLog(str(tmp_path))
    log.write(
        "::1",
        "guest",
        "GET /api/definitions?a=1&auth=Z3Vlc3Q6Z3Vlc3Q%3D&b=2 HTTP/1.1",
        200,
        1,
        "http://x/?auth=Z3Vl",
        "",
    )
    (file,) = tmp_path.iterdir()
    assert '"GET /api/definitions?a=1&auth=***&b=2 HTTP/1.1" 200 1 "http://x/?auth=***"' in file.read_text()


def test_lines_are_not_for_everybody(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "http"))
    log.write("::1", "guest", "GET / HTTP/1.1", 200, 1, "", "")
    for path in (tmp_path / "http", *(tmp_path / "http").iterdir()):
        assert not path.stat().st_mode & 0o007, path
