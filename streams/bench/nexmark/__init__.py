"""Nexmark: an auction site's events, its queries as views, and other systems beside us."""
