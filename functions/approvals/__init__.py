"""The approval page."""
