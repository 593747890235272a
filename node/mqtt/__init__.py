"""MQTT 3.1, 3.1.1 and 5.0, as a plug-in: the codec of packets, topics, and the sessions of clients. No I/O."""
