"""The plug-in `rabbitmq_stomp`: STOMP 1.0, 1.1 and 1.2 upon the same queues. No I/O; imported when it is enabled.

    bytes ─► Decoder ─► Frame ─► StompConnection ─► Session (node.extension.protocol) ─► broker
    bytes ◄─ encode  ◄─ MESSAGE, RECEIPT, ERROR ◄─┘

docs/stomp.md is for users.
"""
