"""The publisher: a custom resource of the workflows stack."""
