"""The commands of `signalbox`, one module a group. scripts/cli.py puts them together."""
