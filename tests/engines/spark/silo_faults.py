"""Scenarios with a Spark of their own: ``python silo_faults.py SCENARIO DIRECTORY SETTINGS`` prints what it found."""

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def session(master: str, directory: Path, **settings):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master)
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.shuffle.partitions": "4",
        "spark.shuffle.io.maxRetries": "1",  # a lost executor is noticed soon
        "spark.shuffle.io.retryWait": "100ms",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    for name, value in (common | settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


RECORDS, SIZE = 40_000, 8


def killed(directory: Path, *, fault: bool) -> dict:
    """Kill an executor between the tasks that label records and the last of those that permute them."""
    import shuffledp as sdp
    from shuffledp.engines.spark import mixing
    from shuffledp.errors import ShuffledpError

    spark = session("local-cluster[2,1,1024]", directory, **{"spark.sql.adaptive.enabled": "false"})
    source = directory / "in"
    source.mkdir()
    for number in range(8):
        part = np.arange(number * RECORDS // 8, (number + 1) * RECORDS // 8, dtype="<u8")
        (source / f"{number}.records").write_bytes(part.tobytes())
    marks = directory / "marks"
    marks.mkdir()
    permuter = mixing._permuter

    def waiting_permuter(found, run):
        task = permuter(found, run)

        def wait(table):
            from pyspark import TaskContext

            first = not (marks / "killed").exists()
            result = task(table)
            (marks / f"permuted-{os.getpid()}").touch()
            if first and TaskContext.get().partitionId() == 0:
                (marks / "ready").write_text(str(os.getppid()))
                while not (marks / "killed").exists():
                    time.sleep(0.1)
            return result

        return wait

    mixing._permuter = waiting_permuter
    if fault:
        mixing.RepeatableRandomness = FreshLabels
    import threading

    killer = threading.Thread(target=kill_other_executor, args=(marks,), daemon=True)
    killer.start()
    out = directory / "out"
    failed = False
    try:
        # one file per task: many maps on both executors
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(RECORDS // 8 * SIZE))
        sdp.spark.mix(source, out=out, record_size=SIZE, labels=16)
    except ShuffledpError as error:
        failed = str(error)
    committed = (out / "_SUCCESS").exists()
    counts = Counter()
    if out.exists() and committed:
        content = b"".join(pq.read_table(out).column("content").to_pylist())
        counts = Counter(np.frombuffer(content, dtype="<u8").tolist())
    return {
        "killed": int((marks / "killed").exists()),
        "failed": failed,
        "committed": committed,
        "lost": RECORDS - len(counts) if committed else 0,
        "twice": sum(count > 1 for count in counts.values()),
    }


class FreshLabels:
    """The planted fault: labels that do not depend on key and batch."""

    def __init__(self, key: bytes, label: bytes) -> None:
        from shuffledp.randomness import InsecureSeededRandomness

        self._source = InsecureSeededRandomness(int.from_bytes(os.urandom(8), "big"))

    @staticmethod
    def new_key() -> bytes:
        return b""

    @property
    def secure(self) -> bool:
        return False

    def fill(self, out) -> None:
        self._source.fill(out)


def kill_other_executor(marks: Path) -> None:
    """Once a permuting task waits: kill the executor that does not run it, whose shuffle files are lost with it."""
    while not (marks / "ready").exists():
        time.sleep(0.1)
    waiting = int((marks / "ready").read_text())
    executors = executor_processes()
    mine = ancestor_among(waiting, executors)
    victims = [process for process in executors if process != mine]
    if victims:
        os.kill(victims[0], signal.SIGKILL)
    (marks / "killed").touch()


def executor_processes() -> list[int]:
    """The executors among the descendants of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and has_ancestor(int(entry.name), os.getpid()):
                found.append(int(entry.name))
    return found


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def has_ancestor(process: int, ancestor: int) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        process = parent_of(process)
    return False


def ancestor_among(process: int, candidates: list[int]) -> int:
    while process > 1 and process not in candidates:
        process = parent_of(process)
    return process


if __name__ == "__main__":
    scenario, where, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    print(json.dumps({"killed": killed}[scenario](where, **settings)), flush=True)
    os._exit(0)  # executors that were killed would delay a regular shutdown
