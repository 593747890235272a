"""Tests of shovels: Fluffle's and those of RabbitMQ's plug-in, between each other and themselves."""
