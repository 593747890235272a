"""Statistics of this node's queues, channels and connections: counters kept over time, and rows made of them."""
