"""What works without the extras, and what says in one line which extra it needs.

A base installation is simulated: every package that is not required by the base dependencies cannot be imported.
"""

import json
import re
import subprocess
import sys
import threading
import tomllib
import venv
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import shuffledp as sdp
from shuffledp.cli import doctor
from shuffledp.collection.rehearsal import Rehearsal
from shuffledp.collection.task.task import SignedTask
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.protocols.count.cheu import CheuCount

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

BLOCK = """
import json, sys
BLOCKED, DISTRIBUTIONS = map(set, json.loads(sys.argv.pop(1)))
class Without:
    "A finder that does not find what is not installed."
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else self.finder.find_spec(name, path, target)
    def find_distributions(self, context):
        found = getattr(self.finder, "find_distributions", lambda context: [])(context)
        return [each for each in found if each.name.lower().replace("_", "-") not in DISTRIBUTIONS]
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def requirements(names, extras=frozenset()):
    """The distributions that pip would install for these requirements of the project."""
    wanted, seen = [Requirement(name) for name in names], set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name in seen and not requirement.extras:
            continue
        seen.add(name)
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            choices = [{"extra": extra} for extra in requirement.extras] or [{"extra": ""}]
            if needed.marker is None or any(needed.marker.evaluate(choice) for choice in choices):
                wanted.append(needed)
    return seen


@cache
def blocked(*extras):
    """The import names and distributions that an installation with these extras lacks, as JSON."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    lines = [line for line in lines if not line.startswith("shuffledp[")]
    installed = requirements(lines) | {"shuffledp"}
    homes = metadata.packages_distributions()
    lacking = [name for name, homes in homes.items() if not {canonicalize_name(home) for home in homes} & installed]
    others = {canonicalize_name(each.name) for each in metadata.distributions()} - installed
    return json.dumps([lacking, sorted(others)])


def run(code, *arguments, extras=()):
    command = [sys.executable, "-c", BLOCK + code, blocked(*extras), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def command(*arguments, extras=()):
    return run("from shuffledp.__main__ import main; main()", *arguments, extras=extras)


SEVERAL = """
import contextlib, io, json, sys
from shuffledp.cli import main
results = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main._run(words)
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


def results_of(done):
    """Exit status, output and errors of each command that ``SEVERAL`` was given."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def several(*lines):
    """Several commands one after the other in one process, whose imports take longest."""
    return results_of(run(SEVERAL, json.dumps([[str(word) for word in line] for line in lines])))


def test_the_simulated_installation_lacks_the_extras_and_has_the_rest():
    lacking, _ = json.loads(blocked())
    assert {"pyarrow", "altair", "vl_convert", "pandas", "starlette", "uvicorn", "psycopg", "opendp"} <= set(lacking)
    assert not {"numpy", "scipy", "cryptography", "dp_accounting", "typer", "rich", "shuffledp"} & set(lacking)
    assert "No module named 'pyarrow'" in run("import pyarrow").stderr
    assert "pyarrow" not in json.loads(blocked("files"))[0]


def test_the_base_installation_plans_and_accounts():
    """A count; that histograms are planned without the extras, the next test shows."""
    asked = ("--users", 1000, "--epsilon", 1, "--delta", 1e-6, "--json")
    planned, accounted = several(("plan", "count", *asked), ("account", "count/balcer-cheu", *asked))
    assert planned[0] == 0, planned
    assert json.loads(planned[1])["plans"][0]["reference"] is False
    assert accounted[0] == 0, accounted
    assert json.loads(accounted[1])["protocol"] == "balcer-cheu"


def test_the_base_installation_runs_on_arrays():
    code = """
import shuffledp as sdp
question = sdp.Histogram(categories=["a", "b"], users=1000)
estimate = sdp.plan(question, epsilon=1, delta=1e-6).best.run(["a"] * 600 + ["b"] * 400)
print(estimate.interval(), estimate.to_json()["counts"], estimate.columns()["category"])
"""
    assert "['a', 'b']" in run(code).stdout


def test_the_base_installation_is_sound():
    examined = command("doctor", "--json")
    assert examined.returncode == 0, examined.stdout
    missing = {each["name"]: each["missing"] for each in json.loads(examined.stdout)["extras"]}
    assert missing["files"] == ["pyarrow"]
    assert all(missing.values())


def test_a_virtual_environment_with_the_base_packages_alone(tmp_path):
    """Nothing is blocked here: its site-packages has links to the base packages and nothing else."""
    venv.create(tmp_path / "base", with_pip=False)
    (packages,) = (tmp_path / "base" / "lib").glob("python3*/site-packages")
    for name in requirements(PROJECT["dependencies"]):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(distribution.locate_file(top))
    (packages / "shuffledp").symlink_to(Path(sdp.__file__).parent)

    def base(*arguments):
        python = tmp_path / "base" / "bin" / "python"
        return subprocess.run([python, *arguments], capture_output=True, text=True, timeout=300)

    examined = json.loads(base("-m", "shuffledp", "doctor", "--json").stdout)
    assert all(extra["missing"] for extra in examined["extras"])
    asked = ("plan", "count", "--users", "1000", "--epsilon", "1", "--delta", "1e-6")
    lines = [(*asked, "--json"), (*asked, "--plot", "figure.svg")]
    planned, failed = results_of(base("-c", SEVERAL, json.dumps(lines)))
    assert planned[0] == 0, planned
    assert json.loads(planned[1])["plans"]
    assert failed[2] == "error: Drawing a figure needs altair: pip install 'shuffledp[plot]'.\n"


@contextmanager
def any_report_is_accepted(bodies):
    """A server that answers every report with 201, and keeps it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_base_installation_verifies_a_task_and_reports(tmp_path, real):
    """The servers have all packages, or are replaced by a simple one; the device is a base installation."""
    rehearsal = Rehearsal.prepare(tmp_path, kind=CheuCount, settings={"users": 1000}, epsilon=1.0, delta=1e-6)
    task, author = tmp_path / "tasks" / "task.json", tmp_path / "author.pub"
    bodies = []
    with rehearsal.servers() if real else any_report_is_accepted(bodies) as url:
        options = ("--task", task, "--author", author, "--server", rehearsal.shuffler_url if real else url)
        verified, reported = several(
            ("task", "verify", task, "--author", author, "--json"),
            ("report", *options, "--state", tmp_path / "state", "--value", "yes", "--json"),
        )
    assert verified[0] == 0, verified
    assert json.loads(verified[1])["id"] == SignedTask.load(task).task.id.hex()
    assert reported[0] == 0, reported
    assert json.loads(reported[1])["state"] == "delivered"
    if not real:
        assert [len(each) for each in bodies] == [ReportFormat.of(rehearsal.task.task).size]


NEEDS = {
    "a data file": (
        ["run", "count", "DATA", "--column", "c", *["--epsilon", "1", "--delta", "1e-6"]],
        "pyarrow",
        "files",
    ),
    "a figure": (
        ["plan", "count", "--users", "1000", "--epsilon", "1", "--delta", "1e-6", "--plot", "DIRECTORY/figure.svg"],
        "altair",
        "plot",
    ),
    "a server": (["serve", "shuffler"], "starlette", "collection"),
    "the demo": (
        ["demo", "--page", "DIRECTORY/page.html", "--plot", "DIRECTORY/figure.svg"],
        "starlette",
        "collection",
    ),
    "a study": (["reproduce", "theorem11", "--quick", "--out", "DIRECTORY/study"], "altair", "plot"),
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """The commands, each with a directory of its own that has a data file."""
    directories = {case: tmp_path_factory.mktemp("needs") for case in NEEDS}
    lines = []
    for case, (arguments, _, _) in NEEDS.items():
        data = directories[case] / "data.csv"
        data.write_text("c\nyes\nno\n")
        lines.append([each.replace("DATA", str(data)).replace("DIRECTORY", str(data.parent)) for each in arguments])
    return {case: (directories[case], *result) for case, result in zip(NEEDS, several(*lines), strict=True)}


@pytest.mark.parametrize("case", NEEDS)
def test_what_needs_an_extra_says_so_in_one_line(failed, case):
    _, package, extra = NEEDS[case]
    directory, status, out, err = failed[case]
    assert (status, out) == (1, "")
    assert re.fullmatch(rf"error: [^\n]+ needs {package}: pip install 'shuffledp\[{extra}\]'\.\n", err)
    assert list(directory.iterdir()) == [directory / "data.csv"]


CALLS = {
    "estimate.to_table()": ("pyarrow", "files"),
    "estimate.to_frame()": ("pandas", "pandas"),
    "estimate.plot('figure.svg')": ("altair", "plot"),
    "estimate.figure('.png')": ("altair", "plot"),
    "estimate.plot()": ("altair", "plot"),
    "plans.plot()": ("altair", "plot"),
    "plans.to_frame()": ("pandas", "pandas"),
    "plans[0].to_frame()": ("pandas", "pandas"),
    "estimate.guarantee.to_frame()": ("pandas", "pandas"),
    "from shuffledp.engines.local import Column": ("pyarrow", "files"),
    "from shuffledp.collection.shuffler.store import open_store; open_store('postgresql://host')": (
        "psycopg",
        "postgres",
    ),
    "sdp.find('sum', 'laplace').calibrate(users=9, epsilon=1, delta=1e-6, domain=sdp.Interval(0, 1))": (
        "OpenDP",
        "opendp",
    ),
}


def test_calls_that_need_an_extra():
    script = """
import shuffledp as sdp
estimate = sdp.BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6).run([1, 0] * 500)
plans = sdp.plan(sdp.Count(users=1000), epsilon=1, delta=1e-6)
for call in sys.argv[1:]:
    try:
        exec(call)
        print("no error")
    except sdp.ShuffledpError as error:
        print(f"{type(error).__name__}: {error}")
"""
    done = run(script, *CALLS)
    assert done.returncode == 0, done.stderr
    for line, (package, extra) in zip(done.stdout.splitlines(), CALLS.values(), strict=True):
        assert re.fullmatch(rf"MissingPackageError: .+ needs {package}: pip install 'shuffledp\[{extra}\]'.*", line)


def test_notebooks_need_no_extra():
    script = """
import pickle
import shuffledp as sdp
plans = sdp.plan(sdp.Count(users=1000), epsilon=1, delta=1e-6)
estimate = plans.best.run([1, 0] * 500)
for shown in (plans, plans[0], estimate, estimate.guarantee, sdp.EstimatedNumber(1.0, 0.5, 1.5, 0.95)):
    assert shown._repr_html_().startswith("<div ") and repr(shown)
    assert repr(pickle.loads(pickle.dumps(shown))) == repr(shown)
"""
    done = run(script)
    assert done.returncode == 0, done.stderr


def test_servers_load_neither_plots_nor_arrow():
    """With the packages that the extra collection names itself."""
    servers = "import shuffledp.collection.shuffler.server, shuffledp.collection.analyzer.server"
    done = run(servers, extras=("collection",))
    assert done.returncode == 0, done.stderr


def test_an_analyzer_publishes_without_plots_and_arrow(tmp_path):
    """With the packages of the extra collection alone, all forms of a release are written."""
    rehearsal = Rehearsal.prepare(tmp_path, kind=CheuCount, settings={"users": 100}, epsilon=1.0, delta=1e-6)
    code = """
import sys
from pathlib import Path
import numpy as np
from shuffledp.collection.analyzer.estimating import estimate_round
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.collection.analyzer.publishing import Releases
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.analyzer.counting import Counted
from shuffledp.collection.task.task import SignedTask
from shuffledp.messages import Messages
directory = Path(sys.argv[1])
task = SignedTask.load(directory / "tasks" / "task.json").task
messages = task.protocol.randomize_all(np.array([1, 0] * 50))
counted = Counted(task.protocol.tally(Messages(messages.values, 0)), len(messages.values), 0)
result = estimate_round(task, counted, 100)
Releases(directory / "releases").publish(result, Entry(True, PopulationBudget(1.0, 1e-6), 1, 1.0), 0.95)
"""
    done = run(code, tmp_path, extras=("collection",))
    assert done.returncode == 0, done.stderr
    contents = {file.suffix: file.read_text() for file in (tmp_path / "releases").iterdir()}
    assert set(contents) == {".json", ".csv", ".html"}
    assert contents[".csv"].startswith('"value","standard_error","lower","upper"')
    assert "<svg " in contents[".html"]
    assert rehearsal.task.task.id.hex() in contents[".json"]


def test_doctor_knows_the_extras_and_the_base():
    named = {extra: set(map(canonicalize_name, packages)) for extra, packages in doctor._EXTRAS.items()}
    wanted = {
        extra: {canonicalize_name(Requirement(line).name) for line in lines} - {"shuffledp"}
        for extra, lines in EXTRAS.items()
        if extra not in ("all", "dev")
    }
    wanted["postgres"].add("psycopg-pool")
    assert named == wanted
    assert set(doctor._PACKAGES) == {Requirement(line).name for line in PROJECT["dependencies"]}


def test_all_is_all_of_them():
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.name == "shuffledp"
    assert everything.extras == set(EXTRAS) - {"all", "dev", "spark"}  # spark is large, and needs an older pandas
    assert sdp.__version__
