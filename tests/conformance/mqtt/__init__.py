"""MQTT's clients against a running node: Fluffle's plug-in, or RabbitMQ's own."""
