"""Scenarios with a Spark of their own: ``python faults.py SCENARIO DIRECTORY SETTINGS`` prints what it found."""

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


def start_cluster(directory: Path) -> str:
    """A cluster of two workers with different addresses: Spark starts no copy of a task on the same host."""
    import socket
    import subprocess

    import pyspark

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    program = f"{pyspark.__path__[0]}/bin/spark-class"
    deploy = "org.apache.spark.deploy"

    def start(address: str, *arguments: str) -> None:
        environment = os.environ | {"SPARK_HOME": pyspark.__path__[0], "SPARK_LOCAL_IP": address}
        command = [program, *arguments, "--host", address, "--webui-port", "0"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        STARTED.append(process)

    start("127.0.0.1", f"{deploy}.master.Master", "--port", str(port))
    for number in (1, 2):
        work = str(directory / f"worker-{number}")
        start(f"127.0.0.{number}", f"{deploy}.worker.Worker", url, "--cores", "1", "--memory", "1g", "--work-dir", work)
    return url


STARTED: list = []


def speculation(directory: Path, *, route: str) -> dict:
    """One of four partitions waits in its first attempt until Spark has started a copy of it."""
    import dataclasses

    import shuffledp as sdp

    spark = session(
        start_cluster(directory),
        directory,
        **{
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.efficiency.enabled": "false",  # these tasks report no processing rate
        },
    )
    protocol = sdp.find("histogram", "uniform-blanket").calibrate(users=100, epsilon=2.0, delta=1e-3, domain_size=3)
    log = directory / "attempts"
    log.mkdir()

    @dataclasses.dataclass(frozen=True)
    class Slow(type(protocol)):
        def randomize_all(self, values, **options):
            from pyspark import TaskContext

            context = TaskContext.get()
            messages = super().randomize_all(values, **options)
            name = f"{context.partitionId()}-{context.attemptNumber()}-{os.getpid()}"
            (log / name).write_text(str(len(values)))
            if context.partitionId() == 0 and context.attemptNumber() == 0:
                while not list(log.glob("0-1-*")):
                    time.sleep(0.2)
            return messages

    slow = Slow(**{field.name: getattr(protocol, field.name) for field in dataclasses.fields(protocol) if field.init})
    frame = spark.range(0, 400, 1, 4).selectExpr("cast(id % 3 as int) as value")
    if route == "partial":
        users = committed = sdp.spark.run(frame, "value", slow, route="partial").users
        runs = 1
    else:
        users = sdp.spark.randomize(frame, "value", slow, out=directory / "messages").users
        table = pq.read_table(directory / "messages")
        committed, runs = sum(table.column("users").to_pylist()), len(set(table.column("run").to_pylist()))
    sizes = [int(file.read_text()) for file in log.iterdir()]
    return {
        "attempts": len(sizes),
        "partitions": 4,
        "users": users,
        "committed_users": committed,
        "runs": runs,
        "expected": 400,
        "written_by_tasks": sum(sizes),
    }


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

    killer = threading.Thread(target=kill_executor, args=(marks,), daemon=True)
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


def killed_partial(directory: Path) -> dict:
    """Kill an executor whose task has randomized its users, and not returned their tally yet."""
    import dataclasses
    import threading

    import shuffledp as sdp

    spark = session("local-cluster[2,1,1024]", directory)
    protocol = sdp.find("histogram", "uniform-blanket").calibrate(users=100, epsilon=2.0, delta=1e-3, domain_size=3)
    marks, log = directory / "marks", directory / "attempts"
    marks.mkdir()
    log.mkdir()

    @dataclasses.dataclass(frozen=True)
    class Waiting(type(protocol)):
        def randomize_all(self, values, **options):
            from pyspark import TaskContext

            messages = super().randomize_all(values, **options)
            (log / f"{TaskContext.get().partitionId()}-{os.getpid()}").write_text(str(len(values)))
            if TaskContext.get().partitionId() == 0 and not (marks / "killed").exists():
                (marks / "ready").write_text(str(os.getppid()))
                while True:  # ends when its executor is killed
                    time.sleep(0.1)
            return messages

    fields = {field.name: getattr(protocol, field.name) for field in dataclasses.fields(protocol) if field.init}
    threading.Thread(target=kill_executor, args=(marks,), kwargs={"waiting": True}, daemon=True).start()
    frame = spark.range(0, 400, 1, 4).selectExpr("cast(id % 3 as int) as value")
    users = sdp.spark.run(frame, "value", Waiting(**fields), route="partial").users
    return {
        "killed": int((marks / "killed").exists()),
        "users": users,
        "expected": 400,
        "written_by_tasks": sum(int(file.read_text()) for file in log.iterdir()),
    }


def killed_users(directory: Path, *, fault: bool) -> dict:
    """Kill an executor after rows were chosen, while the chosen ones are counted.

    The rows are in another order whenever they are read. The choice is followed by one more shuffle, as in the engine.
    """
    import threading

    import pyarrow as pa
    from pyspark.sql import functions as sf

    import shuffledp as sdp
    from shuffledp.engines.spark import users
    from shuffledp.engines.spark.session import explained_failures
    from shuffledp.engines.spark.table import Chosen
    from shuffledp.errors import ShuffledpError
    from shuffledp.sessions.data import column_of

    spark = session("local-cluster[2,1,1024]", directory, **{"spark.sql.adaptive.enabled": "false"})
    marks = directory / "marks"
    marks.mkdir()

    def in_another_order(batches):
        for batch in batches:
            yield batch.take(pa.array(np.random.default_rng().permutation(len(batch))))

    rows = spark.range(0, 30_000, 1, 8).selectExpr("id % 10000 as u", "cast(pmod(xxhash64(id), 16) as string) as v")
    column = column_of(sdp.spark.table(rows.mapInArrow(in_another_order, "u bigint, v string"))["v"], user="u")
    users._ROWS_AT_ONCE = 4_000  # several partitions
    if fault:
        users.Race._key = lambda self, *_: sf.rand() / sf.col("eligible")
    chosen = Chosen(column, column.encoding(lambda: column.histogram_encoder(sdp.Numbered(16))))
    counted = chosen.counted(["code"])
    expected = np.zeros(16, dtype=np.int64)
    expected[counted["code"].to_numpy()] = counted["users"].to_numpy()

    def count(batches):
        from pyspark import TaskContext

        codes = [code for batch in batches for code in batch.column("code").to_pylist()]
        if TaskContext.get().partitionId() == 0 and not (marks / "killed").exists():
            (marks / "ready").write_text(str(os.getppid()))
            while not (marks / "killed").exists():
                time.sleep(0.1)
        counts = np.bincount(np.array(codes, dtype=np.int64), minlength=16)
        yield pa.RecordBatch.from_arrays([pa.array([counts.tolist()], pa.list_(pa.int64()))], names=["counts"])

    threading.Thread(target=kill_executor, args=(marks,), daemon=True).start()
    counted = (
        chosen.picks.filter(chosen.counts_as_user).repartition(8, "code").mapInArrow(count, "counts array<bigint>")
    )
    failed, counts = False, np.zeros(16, dtype=np.int64)
    try:
        with explained_failures():
            counts = sum(np.array(row["counts"]) for row in counted.collect())
    except ShuffledpError as error:
        failed = str(error)
    return {
        "killed": int((marks / "killed").exists()),
        "failed": failed,
        "counts": counts.tolist(),
        "expected": expected.tolist(),
    }


def killed_choice(directory: Path, *, fault: bool) -> dict:
    """Kill an executor whose blocks of rows some tasks have read, and others not, while these choose a row per user.

    The rows are in another order whenever they are read.
    """
    import threading

    import pyarrow as pa

    import shuffledp as sdp
    from shuffledp.engines.spark import choosing
    from shuffledp.errors import ShuffledpError
    from shuffledp.sessions.data import column_of

    spark = session("local-cluster[2,1,1024]", directory, **{"spark.sql.adaptive.enabled": "false"})
    marks = directory / "marks"
    marks.mkdir()

    def in_another_order(batches):
        for batch in batches:
            yield batch.take(pa.array(np.random.default_rng().permutation(len(batch))))

    rows = spark.range(0, 30_000, 1, 8).selectExpr("id % 10000 as u", "cast(pmod(xxhash64(id), 16) as string) as v")
    column = column_of(sdp.spark.table(rows.mapInArrow(in_another_order, "u bigint, v string"))["v"], user="u")
    choosing._ROWS_PER_PART = 2_000  # several parts
    expected = column.histogram(sdp.Numbered(16))

    class WaitingChoice:
        def __init__(self, *settings) -> None:
            self.work = choose_rows(*settings)

        def __call__(self, table):
            from pyspark import TaskContext

            result = self.work(table)
            if TaskContext.get().partitionId() == 0 and not (marks / "killed").exists():
                (marks / "ready").write_text(str(os.getppid()))
                while not (marks / "killed").exists():
                    time.sleep(0.1)
            return result

    class FreshKeys:
        """The planted fault: keys that a task draws afresh whenever it runs."""

        def __init__(self, *settings) -> None:
            self.work = divide_rows(*settings)

        def __call__(self, batches):
            change = pa.scalar(int.from_bytes(os.urandom(7), "big"))
            for batch in batches:
                keys = pa.compute.bit_wise_xor(batch.column("key"), change)
                yield from self.work([batch.set_column(0, "key", keys)])

    choose_rows, divide_rows = choosing.ChooseRows, choosing.DivideRows
    choosing.ChooseRows = WaitingChoice
    if fault:
        choosing.DivideRows = FreshKeys
    threading.Thread(target=kill_executor, args=(marks,), daemon=True).start()
    failed, counts = False, np.zeros(16, dtype=np.int64)
    try:
        counts = column.histogram(sdp.Numbered(16))
    except ShuffledpError as error:
        failed = str(error)
    return {
        "killed": int((marks / "killed").exists()),
        "failed": failed,
        "counts": counts.tolist(),
        "expected": expected.tolist(),
    }


def lost(directory: Path) -> dict:
    """Every attempt of a task kills its own executor, as one that runs out of memory is killed."""
    import dataclasses

    import shuffledp as sdp
    from shuffledp.errors import EngineError

    spark = session("local-cluster[2,1,1024]", directory, **{"spark.task.maxFailures": "2"})
    protocol = sdp.find("histogram", "uniform-blanket").calibrate(users=100, epsilon=2.0, delta=1e-3, domain_size=3)

    @dataclasses.dataclass(frozen=True)
    class Deadly(type(protocol)):
        def randomize_all(self, values, **options):
            executor = os.getppid()
            while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{executor}/cmdline").read_bytes():
                executor = int(Path(f"/proc/{executor}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            time.sleep(600)  # ends with its executor

    fields = {field.name: getattr(protocol, field.name) for field in dataclasses.fields(protocol) if field.init}
    frame = spark.range(0, 400, 1, 1).selectExpr("cast(id % 3 as int) as value")
    try:
        sdp.spark.run(frame, "value", Deadly(**fields), route="partial")
    except EngineError as error:
        return {"error": str(error)}
    return {"error": ""}


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


def kill_executor(marks: Path, *, waiting: bool = False) -> None:
    """Once a task waits: kill the executor that runs it, or another one, whose shuffle files are lost with it."""
    while not (marks / "ready").exists() or not (marks / "ready").read_text():
        time.sleep(0.1)
    worker = int((marks / "ready").read_text())
    executors = executor_processes()
    mine = ancestor_among(worker, executors)
    victims = [process for process in executors if (process == mine) == waiting]
    (marks / "killed").write_text(str(len(victims)))
    if victims:
        os.kill(victims[0], signal.SIGKILL)


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
    scenarios = {
        each.__name__: each for each in (speculation, killed, killed_partial, killed_users, killed_choice, lost)
    }
    try:
        print(json.dumps(scenarios[scenario](where, **settings)), flush=True)
    finally:
        for process in STARTED:
            process.kill()
    os._exit(0)  # executors that were killed would delay a regular shutdown
