"""The relational plan: statements, binding, nodes, passes (one a file), lowering. Pure."""
