"""The relational plan: statements, binding, typed nodes, passes (one a file), lowering. Pure."""
