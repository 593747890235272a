"""One queue: its messages, its consumers, and its interfaces to disk, mirrors and broker.

`intake.py` puts batches into queues, and waits for all places that must have one before its confirm. `queue.py` is the
queue, `run.py` the unit in which messages travel, `backlog.py` and the other backlogs keep ready messages. Disk
(`storage.py`), mirrors (`mirroring.py`) and broker (`host.py`) are protocols. `live_queue.py` is the interface of a
queue to clients, wherever it lives.
"""
