"""Where the copies of queues are and which of them is the master: placement, views, promotion, and steps of plans."""
