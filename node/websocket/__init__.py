"""Protocols over WebSocket: a listener around the listener of another protocol. No I/O.

socket ─► WebSocketConnection ─► frames ─► payloads ─► the other protocol's connection ─► Session
"""
