"""Audits: lower bounds on epsilon from simulated rounds, compared with the claimed guarantee."""

from shuffledp.testing.audit.faults import FAULTS, Fault, plant
from shuffledp.testing.audit.result import AuditPoint, AuditResult, Finding
from shuffledp.testing.audit.search import audit

__all__ = ["FAULTS", "AuditPoint", "AuditResult", "Fault", "Finding", "audit", "plant"]
