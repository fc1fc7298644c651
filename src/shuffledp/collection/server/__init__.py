"""Common parts of the shuffler and the analyzer: settings, running, problem documents, metrics, logs, health."""
