"""Exact sums and products: of diffs, integers, decimals and doubles."""
