"""The planner behind the page: calibrations in worker processes, each made once and cached, streamed as they finish."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing
from typing import Any, TypeVar

from shuffledp.app.calculations import Candidate, account, calibrate, collect, preview
from shuffledp.app.preview import Preview
from shuffledp.app.query import Query, plan_id
from shuffledp.app.workers import WorkerError, Workers
from shuffledp.collection.task.costs import CollectionCost as Collected
from shuffledp.errors import InfeasibleError, ShuffledpError
from shuffledp.planning.planner import Plan, Plans, Rejection, ranked
from shuffledp.protocols.registry import PROTOCOLS

Result = TypeVar("Result")
Event = tuple[str, dict[str, Any]]
_CACHED_RESULTS = 10_000
_CACHED_PREVIEWS = 100
"""Fewer than other results: previews contain charts, and every draw is another preview."""


class Planner:
    """Plans for queries; everything that was computed is cached."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._cache: OrderedDict[Hashable, Any] = OrderedDict()
        self._previews: OrderedDict[Hashable, Preview | str] = OrderedDict()

    async def candidates(self, query: Query, name: str) -> list[Candidate]:
        """The candidates of one protocol, those beyond a limit rejected."""
        candidates = await self._cached(calibrate, query.calibrated, name)
        return [_limited(candidate, query) for candidate in candidates]

    async def plans(self, query: Query) -> Plans:
        """All plans, best first; InfeasibleError if there is none."""
        by_protocol = await asyncio.gather(*(self.candidates(query, name) for name in _names(query)))
        return _ranked(query, [candidate for candidates in by_protocol for candidate in candidates])

    async def collected(self, query: Query, plan: Plan) -> Collected | str:
        """The plan in a collection, or why there is none."""
        return await self._cached(collect, query.calibrated, plan.protocol.name, plan.variant)

    async def account(self, query: Query, plan: Plan) -> list[tuple[int, float]]:
        """Numbers of releases with their epsilon."""
        return await self._cached(account, query.calibrated, plan.protocol.name, plan.variant)

    async def preview(self, query: Query, plan: Plan) -> Preview | str:
        """A release about invented data, always the same for one ``draw``; or why there is none."""
        key = (query, plan_id(plan))
        if key not in self._previews:
            try:
                result: Preview | str = await self._workers.run(
                    preview, query, plan.protocol.name, plan.variant, group=query
                )
            except WorkerError as error:  # the next attempt may succeed
                return str(error)
            except ShuffledpError as error:
                result = str(error)
            self._previews[key] = result
            while len(self._previews) > _CACHED_PREVIEWS:
                self._previews.popitem(last=False)
            return result
        return self._previews[key]

    def cached_results(self, query: Query) -> CachedResults:
        """The cached results for a query."""
        return CachedResults(self, query)

    def peek(self, function: Callable[..., Result], *arguments: Hashable) -> Result | None:
        """A cached result, or None."""
        return self._cache.get((function, *arguments))

    async def stream(self, query: Query) -> AsyncGenerator[Event]:
        """Events as results are computed; when the caller stops, so do the calculations.

        ``candidate`` for every plan and rejection, ``ranked`` or ``infeasible``, ``collection`` for every plan that can
        be collected, ``account`` for the chosen plan, ``end``.
        """
        names = list(_names(query))
        tasks = {asyncio.create_task(self.candidates(query, name)): name for name in names}
        calibrated: dict[str, list[Candidate]] = {}
        try:
            yield "start", {"protocols": len(names)}
            waiting = set(tasks)
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    calibrated[tasks[task]] = task.result()
                    for candidate in task.result():
                        yield "candidate", _event(candidate) | {"done": len(calibrated), "protocols": len(names)}
            try:
                plans = _ranked(query, [candidate for name in names for candidate in calibrated[name]])
            except InfeasibleError as error:
                yield "infeasible", {"error": str(error)}
            else:
                yield "ranked", _ranking(plans)
                async with aclosing(self._further(query, plans)) as further:
                    async for event in further:
                        yield event
            yield "end", {}
        finally:
            await _cancel(*tasks)

    async def _further(self, query: Query, plans: Plans) -> AsyncGenerator[Event]:
        """Results that are computed after the ranking, first those of the chosen plan."""
        chosen = choose(plans, query)
        account = asyncio.create_task(self.account(query, chosen))
        collected = {
            plan_id(plan): asyncio.create_task(self.collected(query, plan))
            for plan in plans
            if not plan.reference or plan.protocol.trust == "local"
        }
        try:
            yield "account", {"id": plan_id(chosen)} | account_document(await account)
            for name, task in collected.items():
                yield "collection", {"id": name} | collection_document(await task)
        finally:
            await _cancel(account, *collected.values())

    async def _cached(self, function: Callable[..., Result], *arguments: Hashable) -> Result:
        key = (function, *arguments)
        if key not in self._cache:
            self._store(key, await self._workers.run(function, *arguments, group=arguments[0]))
        self._cache.move_to_end(key)
        result: Result = self._cache[key]
        return result

    def _store(self, key: Hashable, result: Any) -> None:
        self._cache[key] = result
        while len(self._cache) > _CACHED_RESULTS:
            self._cache.popitem(last=False)


class CachedResults:
    """The cached results for a query; nothing is computed."""

    def __init__(self, planner: Planner, query: Query) -> None:
        self._planner, self._query = planner, query
        cached = {name: planner.peek(calibrate, query.calibrated, name) for name in _names(query)}
        self.protocols, self.done = len(cached), sum(candidates is not None for candidates in cached.values())
        self.candidates = [
            _limited(candidate, query) for candidates in cached.values() for candidate in candidates or ()
        ]
        self.error = ""
        self.plans: Plans | None = None
        """The plans so far; None if there is none."""
        try:
            self.plans = _ranked(query, self.candidates) if self.candidates else None
        except InfeasibleError as error:
            self.error = str(error)

    @property
    def is_complete(self) -> bool:
        """Whether every protocol was calibrated."""
        return self.done == self.protocols

    def candidate(self, plan: Plan) -> Candidate:
        """What is shown of a plan."""
        return next(
            candidate
            for candidate in self.candidates
            if isinstance(candidate.result, Plan) and plan_id(candidate.result) == plan_id(plan)
        )

    def collected(self, plan: Plan) -> Collected | str | None:
        """The plan in a collection, if that was computed."""
        return self._planner.peek(collect, self._query.calibrated, plan.protocol.name, plan.variant)

    def account(self, plan: Plan) -> list[tuple[int, float]] | None:
        """Numbers of releases with their epsilon, if that was computed."""
        return self._planner.peek(account, self._query.calibrated, plan.protocol.name, plan.variant)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end, whatever it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def choose(plans: Plans, query: Query) -> Plan:
    """The plan that the page shows in detail: the chosen one, or the best if there is no such plan."""
    return next((plan for plan in plans if plan_id(plan) == query.choice), plans[0])


def collection_document(collected: Collected | str) -> dict[str, Any]:
    """The plan in a collection as JSON; ``moved`` is null if one report can change the result arbitrarily."""
    if isinstance(collected, str):
        return {"reason": collected}
    return {
        "messages_per_report": collected.messages,
        "bytes_per_report": collected.report_bytes,
        "moved": collected.moved if collected.moved < float("inf") else None,
    }


def account_document(curve: list[tuple[int, float]]) -> dict[str, Any]:
    """The epsilon of several releases as JSON; null if there is no guarantee."""
    return {
        "curve": [
            {"releases": releases, "epsilon": epsilon if epsilon < float("inf") else None}
            for releases, epsilon in curve
        ]
    }


def _names(query: Query) -> list[str]:
    return list(PROTOCOLS[query.asked.planned.question])


def _limited(candidate: Candidate, query: Query) -> Candidate:
    """The candidate, or its rejection if it exceeds a limit of the query."""
    plan = candidate.result
    if isinstance(plan, Rejection) or plan.reference:
        return candidate
    local = candidate.document["guarantee"]["local_epsilon"]
    reason = query.limits.why_not(plan.protocol, query.releases, local_epsilon=float("inf") if local is None else local)
    if not reason:
        return candidate
    rejection = Rejection(plan.protocol.name, plan.variant, reason)
    return Candidate(rejection, rejection.to_json())


def _ranked(query: Query, candidates: list[Candidate]) -> Plans:
    results = [candidate.result for candidate in candidates]
    return ranked(query.asked.planned, query.epsilon, query.delta, query.limits, results, releases=query.releases)


def _event(candidate: Candidate) -> dict[str, Any]:
    if isinstance(candidate.result, Plan):
        return {"id": plan_id(candidate.result), "plan": candidate.document}
    return {"rejected": candidate.document}


def _ranking(plans: Plans) -> dict[str, Any]:
    """The order of the plans and what follows from it; with the candidates, all of ``shuffledp plan --json``."""
    return {
        "question": plans.question.to_json(),
        "target": {"epsilon": plans.epsilon, "delta": plans.delta},
        "releases": plans.releases,
        "warnings": list(plans.warnings),
        "plans": [{"id": plan_id(plan), "why": plan.why} for plan in plans],
        "rejected": [rejection.to_json() for rejection in plans.rejected],
        "frontier": [plan_id(plan) for plan in plans.frontier],
    }
