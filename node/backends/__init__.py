"""Built-in plug-ins that talk to other services. Each is imported when it is enabled, and knows `node.plugins` only."""
