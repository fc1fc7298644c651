"""The device's side of a collection: check a task, report once, deliver."""

from shuffledp.collection.device.budget import AuthorBudget, DeviceBudget
from shuffledp.collection.device.client import Client, sealed_report
from shuffledp.collection.device.outbox import State
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.device.sending import Patience
from shuffledp.collection.device.simulation import Devices, Summary
from shuffledp.collection.task.authentic import authentic_task
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.transport.oblivious import GatewayKey, ObliviousConnection

__all__ = [
    "AuthorBudget",
    "Client",
    "Connection",
    "DeviceBudget",
    "Devices",
    "GatewayKey",
    "ObliviousConnection",
    "Patience",
    "Policy",
    "State",
    "Summary",
    "authentic_task",
    "sealed_report",
]
