"""COPY: answers of SELECTs as Parquet files on file systems."""
