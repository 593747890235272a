"""Rehearsals of `fluffle migrate` with real clusters of RabbitMQ and Fluffle, and clients that keep count."""
