"""Goes round the open runs and mends what nobody else would."""
