"""The replica: a Spark driver with its data source, lanes, scheduler, steps and commit.

Only this package imports pyspark.
"""
