"""READS AND WRITES FROM SPARK: the data source `quiver`, and what is built on it."""
