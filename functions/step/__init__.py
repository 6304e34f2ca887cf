"""Runs steps that call models and tools."""
