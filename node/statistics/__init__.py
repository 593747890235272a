"""What the queues, channels, connections … of this node are doing: counters kept over time, and rows made of them."""
