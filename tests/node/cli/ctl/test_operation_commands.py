"""Commands that close connections and change a running node: as a live RabbitMQ 3.10.8's (management §3.2)."""

import pytest

from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run


@pytest.mark.parametrize(
    ("words", "asked", "output"),
    [
        (
            "close_connection <n1@h.1.2.0> bye",
            {"pid": "<n1@h.1.2.0>", "reason": "bye"},
            "Closing connection <n1@h.1.2.0>, reason: bye...\n",
        ),
        (
            "close_all_connections -p v2 bye",
            {"vhost": "v2", "limit": 0, "delay_ms": 0, "reason": "bye"},
            "Closing all connections in vhost v2, reason: bye...\nClosed 3 connections\n",
        ),
        (
            "close_all_connections --limit 1 --per-connection-delay 5 bye",
            {"vhost": "/", "limit": 1, "delay_ms": 5, "reason": "bye"},
            "Closing 1 connections in vhost /, reason: bye...\nClosed 3 connections\n",
        ),
        (
            "close_all_connections --global bye",
            {"vhost": None, "limit": 0, "delay_ms": 0, "reason": "bye"},
            f"Closing all connections to node {NODE} (across all vhosts), reason: bye...\n"
            "Closed 3 connections\n",
        ),
        (
            "close_all_user_connections u1 bye",
            {"user": "u1", "reason": "bye"},
            "Closing connections of user u1, reason: bye...\n",
        ),
        (
            "set_vm_memory_high_watermark 0.5",
            {"relative": 0.5},
            f"Setting memory threshold on {NODE} to 0.5 ...\n",
        ),
        (
            "set_vm_memory_high_watermark absolute 2GB",
            {"absolute_bytes": 2_000_000_000},
            f"Setting memory threshold on {NODE} to 2GB bytes ...\n",
        ),
        (
            "set_disk_free_limit 1MiB",
            {"absolute_bytes": 1 << 20},
            f"Setting disk free limit on {NODE} to 1MiB bytes ...\n",
        ),
        (
            "set_disk_free_limit mem_relative 0.1",
            {"relative": 0.1},
            f"Setting disk free limit on {NODE} to 0.1 times the total RAM ...\n",
        ),
        ("set_log_level debug", {"level": "debug"}, 'Setting log level to "debug" ...\n'),
        (
            "force_gc",
            {},
            f"Will ask all processes on node {NODE} to schedule a full sweep GC\n",
        ),
    ],
)
def test_a_command(run: Run, fake: FakeNode, words: str, asked: object, output: str) -> None:
    fake.answers["close_all_connections"] = {"closed": 3}
    assert run(*words.split()) == (0, output, "")
    assert fake.asked == [(words.split()[0], asked)]


FRACTION = (
    "Error (argument validation): Bad argument: The threshold should be a fraction between 0.0 and 1.0\n"
)
BAD = "Error (argument validation): Bad argument.\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("set_vm_memory_high_watermark 5", 65, FRACTION),
        ("set_vm_memory_high_watermark -1", 65, FRACTION),
        ("set_vm_memory_high_watermark nan", 65, FRACTION),
        ("set_vm_memory_high_watermark nope", 65, BAD),
        ("set_vm_memory_high_watermark absolute nope", 65, BAD),
        ("set_vm_memory_high_watermark absolute 1e9", 65, BAD),
        (
            "set_vm_memory_high_watermark relative 0.5",
            64,
            "Error (argument validation): too many arguments.\n",
        ),
        (
            "set_vm_memory_high_watermark absolute",
            64,
            "Error (argument validation): not enough arguments.\n",
        ),
        ("set_disk_free_limit nope", 65, BAD),
        ("set_disk_free_limit mem_relative nope", 65, BAD),
        ("set_disk_free_limit mem_relative", 64, "Error (argument validation): not enough arguments.\n"),
        (
            "set_log_level nope",
            69,
            "Error:\nlevel nope is not supported. Try one of debug, info, warning, error, critical, none\n",
        ),
    ],
)
def test_a_value_that_makes_no_sense(run: Run, fake: FakeNode, words: str, code: int, says: str) -> None:
    got, output, error = run(*words.split())
    assert (got, output, fake.asked) == (code, "", [])
    assert error.startswith(says)
