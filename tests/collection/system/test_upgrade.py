"""An upgrade as the page on operations describes it: all servers restarted in order, with rounds of both versions."""

import json
import random
import threading

import pytest

from shuffledp.collection.device.client import sealed_report
from shuffledp.collection.device.sending import Patience, deliver, reports_path
from shuffledp.collection.task.task import Task
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.wire.keys import SealingKey, SigningKey

ORDER = ("analyzer", "shuffler-2", "shuffler")


def old_task(here) -> Task:
    """A task of version 1 for the servers of a chain: the first of its shufflers delivers to the analyzer itself."""
    new, key = here.task.task, SigningKey.load(here.directory / "shuffler.key")
    task = Task(
        name="Old",
        description="",
        population=new.population,
        protocol=new.protocol,
        epsilon=new.epsilon,
        delta=new.delta,
        maximum_users=new.maximum_users,
        opens=new.opens,
        closes=new.closes,
        messages_per_report=new.messages_per_report,
        analyzer=SealingKey.load(here.directory / "analyzer.key").public,
        shuffler=key.public,
    )
    author = SigningKey.load(here.directory / "author.key")
    (here.directory / "tasks" / "old.json").write_bytes(task.signed(author).to_bytes())
    (here.directory / "budgets.toml").write_text(f"[{task.population}]\nepsilon = 100.0\ndelta = 0.5\n")
    return task


def restart(here, processes, role) -> None:
    """End a server as its supervisor does, and start the next version of it."""
    processes[role].terminate()
    processes[role].join(60)
    assert processes[role].exitcode in (0, -15)  # the interpreter itself was starting
    processes[role] = here.start(role)


@pytest.mark.slow
def test_all_servers_are_replaced_while_rounds_of_both_versions_are_open(new_chain_round, until):
    here = new_chain_round()
    old = old_task(here)
    processes = {role: here.start(role) for role in ORDER}
    places = random.sample(range(here.users), here.users)
    bodies = [sealed_report(old, index % 3) for index in range(old.maximum_users)]
    patience = Patience(attempts=1000, first_pause=0.02, longest_pause=0.2)
    answers: list[int] = []

    def send_old(some) -> None:
        with Connection(here.shuffler_url, timeout=10) as connection:
            answers.extend(deliver(connection, reports_path(old), body, patience=patience).status for body in some)

    halves = len(places) // 2, len(bodies) // 2
    here.send(places[: halves[0]])
    send_old(bodies[: halves[1]])
    devices = [*here.devices(places[halves[0] :]), threading.Thread(target=send_old, args=(bodies[halves[1] :],))]
    for each in devices:
        each.start()
    for role in ORDER:
        restart(here, processes, role)
    for each in devices:
        each.join()
    assert set(answers) <= {200, 201}
    assert (len(answers), len(here.acknowledged)) == (len(bodies), here.users)
    document = here.release()
    assert (document["reports"], document["rejected"]) == (here.users, {})
    assert set(here.counted(document).values()) == {here.times, 0}
    released = here.directory / "analyzer" / "releases" / f"{old.id.hex()}.json"
    until(released.exists, what="the release of version 1")
    found = json.loads(released.read_bytes())
    assert (found["reports"], found["rejected"]) == (len(bodies), {})
    until(lambda: not here.left_over(), what="the end of both rounds")
