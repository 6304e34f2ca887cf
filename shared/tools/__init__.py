"""Tools that workflows call."""
