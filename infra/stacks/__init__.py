"""The stacks, in the order in which they deploy: data, engine, workflows, api."""
