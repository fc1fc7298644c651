"""Durable storage of the shuffler: SQLite for one process, PostgreSQL for several."""

from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome, RoundState, Store, StoreError
from shuffledp.collection.shuffler.store.location import open_store

__all__ = ["Incoming", "ReportOutcome", "RoundState", "Store", "StoreError", "open_store"]
