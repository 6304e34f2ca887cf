"""The Lambda handlers."""
