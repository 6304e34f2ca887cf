"""Budgets: reservation before dispatch, settlement after. Pure rules over the run's head."""
