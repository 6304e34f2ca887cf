"""Publishing versions of workflows: rules, and adapters to AWS."""
