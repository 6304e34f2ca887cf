"""Creates runs and starts their machines."""
