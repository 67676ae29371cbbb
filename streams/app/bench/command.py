"""`slackwater bench`: measure, print a table, and say what dominates."""

import typer

app = typer.Typer(help="Measure: throughput, freshness, change, dataflows, memory.")
