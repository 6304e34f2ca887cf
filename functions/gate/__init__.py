"""Opens gates."""
