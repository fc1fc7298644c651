"""What the servers of a collection share: settings, running, problem documents, metrics, logs, health."""
