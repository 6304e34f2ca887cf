"""The workflow engine behind its port."""
