"""The built-in plug-ins that bring exchange types, a file a plug-in, and what some of them share."""
