"""Settles steps without calls, and decides after failures."""
