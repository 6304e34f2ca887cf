"""Starts runs by schedules, events and messages."""
