"""Moving from a RabbitMQ to Fluffle: plans, checks, counts and evidence. No I/O."""
