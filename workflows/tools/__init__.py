"""Tools of the workflows. Each file is loaded by its path; files that begin with `_` are not searched."""
