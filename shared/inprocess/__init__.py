"""The in-process host: what drives the interpreter's walks, and the ports of a laptop."""
