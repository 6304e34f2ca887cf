"""Keeps the list view of runs."""
