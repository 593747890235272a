"""The log of a node: `log.py` writes lines in RabbitMQ's format, the other files have the messages in its words."""
