"""Where the secrets of tenants are kept."""
