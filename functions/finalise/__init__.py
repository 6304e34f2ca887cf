"""Compares executions that ended with their runs."""
