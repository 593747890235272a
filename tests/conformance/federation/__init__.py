"""Federation between Fluffle and RabbitMQ 3.10.8, in all directions."""
