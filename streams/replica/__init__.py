"""The Spark side: data source, lanes, scheduler, steps and their commit.

Only this package imports pyspark.
"""
