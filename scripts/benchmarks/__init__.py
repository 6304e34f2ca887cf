"""Measurements of what is promised, one module a subject."""
