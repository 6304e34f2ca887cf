"""Approvals: links, mail and pages."""
