"""The device's side of a collection: check a task, report once, deliver."""

from shuffledp.collection.authentic import authentic_task
from shuffledp.collection.client.client import Client
from shuffledp.collection.client.many import Devices, Summary
from shuffledp.collection.client.outbox import State
from shuffledp.collection.client.policy import Policy
from shuffledp.collection.client.report import sealed_report
from shuffledp.collection.client.sending import Connection, Patience

__all__ = [
    "Client",
    "Connection",
    "Devices",
    "Patience",
    "Policy",
    "State",
    "Summary",
    "authentic_task",
    "sealed_report",
]
