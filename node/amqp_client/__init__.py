"""A client of AMQP 0-9-1 without I/O: shovels, federation links and `fluffle migrate` talk to brokers with it."""
