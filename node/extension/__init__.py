"""The kinds of extension that a plug-in may bring besides exchange types, as abstract classes. No I/O.

`node.plugins` has these names for plug-ins that are packages of their own.
"""
