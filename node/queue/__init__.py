"""One queue: its messages, its consumers, and its interfaces to disk, mirrors and broker.
`intake.py` is how batches come into queues, and who must have one before it is confirmed. `queue.py` is the queue,
`run.py` what messages travel in, `backlog.py` and its kin where they wait. What a queue asks of the disk
(`storage.py`), of its mirrors (`mirroring.py`) and of the broker (`host.py`) are protocols. `live_queue.py` is a queue
as clients see it, wherever it lives.
"""
