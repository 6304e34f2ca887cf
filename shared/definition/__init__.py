"""The workflow file: models, loader, expressions, types and checks."""
