"""Who may do what: tenants' bearer tokens and roles."""
