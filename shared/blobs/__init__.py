"""Content-addressed storage of large values."""
