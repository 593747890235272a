"""Conformance of STOMP: raw frames and unmodified clients against Fluffle's plug-in or RabbitMQ's."""
