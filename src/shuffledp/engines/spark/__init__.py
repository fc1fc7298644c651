"""The Spark engine: the same answers on data beyond one machine; only this package imports PySpark."""
