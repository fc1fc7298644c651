"""Traps of the second shuffler of a chain: no alarm if nothing is dropped, none of the messages released if it is."""

import json

DROP_HALF = """
if log.endswith("shuffler.log"):
    from shuffledp.collection.shuffler.mixtures import ReportMixture
    messages = ReportMixture._messages

    def drop_half(self):
        bodies = list(self.bodies())
        self.bodies = lambda: bodies[::2] * 2  # and invent as many: copies stand for reports of its own
        self.open_report = fresh(self.open_report)
        return messages(self)

    def fresh(open_report):
        seen = set()

        def open_once(body):
            content = open_report(body)
            if body in seen:
                content = os.urandom(len(content))
            seen.add(body)
            return content

        return open_once

    ReportMixture._messages = drop_half
"""
"""A malicious first shuffler: it replaces every second report by garbage of its own."""


def play(here, schedules, fault=""):
    """A round in which all traps are accepted before the devices report; the events of the second shuffler."""
    over = {"delivered", "destroyed"}
    with schedules.kept(here, {}, fault=here.at_once + fault) as keepers:
        schedules.until(lambda: here.accepted() == here.traps or schedules.in_trouble(keepers), what="the traps")
        schedules.report(here, keepers, list(range(len(here.reports))), pause=0.0)
        schedules.until(
            lambda: over & {event["event"] for event in here.events("shuffler-2")} or schedules.in_trouble(keepers),
            what="the second shuffler",
        )
        if "delivered" in {event["event"] for event in here.events("shuffler-2")}:
            document = schedules.release(here, keepers)
            return here.events("shuffler-2"), document
    return here.events("shuffler-2"), None


def test_without_dropped_reports_there_is_no_alarm(new_trapped_round, schedules):
    """Traps are left out of the batch and of the number of reports."""
    here = new_trapped_round()
    events, document = play(here, schedules)
    schedules.check(here, document)
    assert not [event for event in events if event["event"] in ("trap-missing", "unopenable")]
    assert not list((here.directory / "shuffler-2" / ".traps").iterdir())
    assert json.dumps(document["reports"]) == str(here.users)


def test_dropped_reports_destroy_the_round(new_trapped_round, schedules):
    """Half of 216 reports replaced: that no trap is among them has a probability below 2^-16."""
    here = new_trapped_round()
    events, document = play(here, schedules, DROP_HALF)
    assert document is None
    names = [event["event"] for event in events]
    assert "trap-missing" in names
    assert "shuffled" not in names
    assert here.look() == "waiting"
    assert not here.left_over() - {each for each in here.left_over() if each.startswith("round-")}
