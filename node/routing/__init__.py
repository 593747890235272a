"""Where messages go: from an exchange and the keys of a message to queues."""
