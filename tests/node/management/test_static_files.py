"""The UI's files."""

from pathlib import Path

import pytest

from node.management.reply import ApiError
from node.management.static_files import FILE_BYTES_MAX, StaticFiles


@pytest.fixture
def files(tmp_path: Path) -> StaticFiles:
    folder = tmp_path / "static"
    (folder / "js").mkdir(parents=True)
    (folder / "index.html").write_text("<p>")
    (folder / "js" / "app.js").write_text("1")
    (folder / "js" / "big.js").write_bytes(b" " * (FILE_BYTES_MAX + 1))
    (folder / "js" / "x.py").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    return StaticFiles(folder)


def test_files_by_their_paths(files: StaticFiles) -> None:
    reply = files.reply("/", None)
    assert (reply.status, reply.body, reply.content_type) == (200, b"<p>", "text/html; charset=utf-8")
    assert files.reply("/js/app.js", None).content_type == "text/javascript; charset=utf-8"
    assert files.reply("/index.html", reply.headers["etag"]).status == 304
    assert files.reply("/index.html", '"other"').status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/js/../../secret.txt",
        "/js/..%2f..%2fsecret.txt",
        "//index.html",
        "/js",
        "/js/",
        "/js/x.py",
        "/js/big.js",
        "/index.html\0",
        "/./index.html",
    ],
)
def test_nothing_but_what_was_in_the_folder(files: StaticFiles, path: str) -> None:
    with pytest.raises(ApiError) as raised:
        files.reply(path, None)
    assert raised.value.status == 404
