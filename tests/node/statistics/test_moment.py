"""Times of day as RabbitMQ shows them."""

from node.statistics.moment import moment


def test_a_moment_as_rabbitmq_shows_it() -> None:
    """management §1.3: `idle_since`."""
    assert moment(1_795_305_760_960) == "2026-11-22T00:02:40.960+00:00"
    assert moment(0) == "1970-01-01T00:00:00.000+00:00"
    assert moment(951_782_399_005) == "2000-02-28T23:59:59.005+00:00"
    assert moment(951_782_400_000) == "2000-02-29T00:00:00.000+00:00"
