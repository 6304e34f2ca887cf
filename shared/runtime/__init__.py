"""The step protocol and everything that decides about a run: pure logic against ports."""
