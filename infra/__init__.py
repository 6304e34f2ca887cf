"""The CDK app's parts: settings per environment, constructs, stacks."""
