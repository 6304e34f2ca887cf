"""The ledger: a run's records and the store that keeps them."""
