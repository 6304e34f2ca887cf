"""The HTTP API: requests in, JSON or problem documents out. Knows neither Lambda nor a web framework."""
