"""Files for maintainers agree with each other: versions, workflows, changelog, the switch for required kernels."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "shuffledp"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]


def steps(workflow):
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job.get("steps", [])]


def release_check():
    spec = importlib.util.spec_from_file_location("check_release", ROOT / "tools" / "check_release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestVersion:
    def test_is_written_once(self):
        assert "version" in PROJECT["dynamic"]
        assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "shuffledp.__version__"}
        assigned = [
            path.relative_to(SOURCE).as_posix()
            for path in SOURCE.rglob("*.py")
            if re.search(r"^__version__\s*(?::.*)?=", path.read_text(encoding="utf-8"), re.MULTILINE)
        ]
        assert assigned == ["__init__.py"]
        assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))

    def test_is_read_without_an_import(self):
        import shuffledp

        assert release_check().package_version() == shuffledp.__version__


class TestChangelog:
    TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    def test_one_heading_is_unreleased_and_comes_first(self):
        headings = re.findall(r"^## (.+)$", self.TEXT, re.MULTILINE)
        unreleased = [heading for heading in headings if "unreleased" in heading.lower()]
        assert unreleased in ([], ["Unreleased"])
        assert unreleased == headings[: len(unreleased)]
        for heading in headings[len(unreleased) :]:
            assert re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading), heading

    def test_each_release_has_each_part_once_and_privacy_first(self):
        order = ["Privacy", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
        for release in re.split(r"^## ", self.TEXT, flags=re.MULTILINE)[1:]:
            parts = re.findall(r"^### (.+)$", release, re.MULTILINE)
            assert parts == sorted(set(parts), key=order.index), release.splitlines()[0]


class TestRelease:
    @pytest.fixture
    def tree(self, tmp_path):
        (tmp_path / "src/shuffledp").mkdir(parents=True)
        (tmp_path / "src/shuffledp/__init__.py").write_text('__version__ = "1.2.3"\n')
        (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2030-01-31)\n\n## 1.2.2 (2029-01-31)\n")
        return tmp_path

    def test_passes(self, tree):
        assert release_check().problems("v1.2.3", tree) == []

    @pytest.mark.parametrize("tag", ["1.2.3", "v1.2.2", "v1.2.3rc1"])
    def test_another_tag(self, tree, tag):
        assert "expected v1.2.3" in release_check().problems(tag, tree)[0]

    @pytest.mark.parametrize(
        "heading", ["Unreleased", "1.2.3 (unreleased)", "1.2.2 (2030-01-31)", "1x2.3 (2030-01-31)"]
    )
    def test_another_heading(self, tree, heading):
        (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\n## 1.2.3 (2030-01-31)\n")
        assert len(release_check().problems("v1.2.3", tree)) == 1

    def test_nothing_is_published_before_everything_passed(self):
        jobs = WORKFLOWS["release"]["jobs"]
        assert set(jobs["publish"]["needs"]) == {"checks", "wheels"}
        assert all(jobs[name]["needs"] == "version" for name in ("checks", "wheels"))
        assert any("tools/check_release.py" in step.get("run", "") for step in jobs["version"]["steps"])
        assert jobs["publish"]["permissions"] == {"id-token": "write"}


class TestPythonVersions:
    def test_are_the_same_everywhere(self):
        assert sorted(PYTHONS, key=lambda version: int(version.partition(".")[2])) == PYTHONS
        assert WORKFLOWS["checks"]["jobs"]["test"]["strategy"]["matrix"]["python"] == PYTHONS
        wheels = PYPROJECT["tool"]["cibuildwheel"]["build"].split()
        assert wheels == [f"cp{version.replace('.', '')}-*" for version in PYTHONS]

    def test_the_oldest_is_required(self):
        oldest = PYTHONS[0]
        assert PROJECT["requires-python"] == f">={oldest}"
        assert PYPROJECT["tool"]["mypy"]["python_version"] == oldest
        assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
        assert f"sys.version_info < ({oldest.replace('.', ', ')})" in MAKEFILE
        for page in ("README.md", "CONTRIBUTING.md"):
            assert f"Python {oldest} or newer" in (ROOT / page).read_text(encoding="utf-8")

    def test_the_policy_names_them(self):
        assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")

    def test_what_is_fixed_to_one_version_takes_a_supported_one(self):
        pinned = [
            step["with"]["python-version"]
            for name in WORKFLOWS
            for step in steps(name)
            if "setup-python" in step.get("uses", "")
        ]
        pinned.append(
            yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))["build"]["tools"]["python"]
        )
        pinned += re.findall(r"^ARG PYTHON=(.+)$", (ROOT / "deploy" / "Containerfile").read_text(), re.MULTILINE)
        assert len(pinned) > 4
        assert set(pinned) <= {*PYTHONS, "${{ matrix.python }}"}


def test_the_operating_systems_are_those_that_the_imports_allow():
    systems = [name for name in PROJECT["classifiers"] if name.startswith("Operating System ::")]
    imported = {
        alias.name
        for path in SOURCE.rglob("*.py")
        if re.search(r"\b(fcntl|resource)\b", text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert systems
    assert all(name.startswith("Operating System :: POSIX") for name in systems) or not imported & {"fcntl", "resource"}


class TestWorkflows:
    def test_all_are_there(self):
        assert set(WORKFLOWS) >= {"checks", "wheels", "release"}

    @pytest.mark.parametrize("name", WORKFLOWS)
    def test_run_targets_of_the_makefile(self, name):
        targets = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))
        called = set()
        for job in WORKFLOWS[name]["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {})
            for step in job.get("steps", []):
                for target in re.findall(r"\bmake (\S+|\$\{\{.*?\}\})", step.get("run", "")):
                    called |= set(matrix["target"]) if target.startswith("${{") else {target}
        assert called <= targets
        assert called == {"checks": {"lint", "test", "docs"}, "slow": {"test-slow", "test-sanitized"}}.get(name, set())

    @pytest.mark.parametrize("name", WORKFLOWS)
    def test_may_read_only_and_pin_what_they_use(self, name):
        workflow = WORKFLOWS[name]
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            if called := job.get("uses"):
                assert (ROOT / called).is_file()
                assert "workflow_call" in yaml.safe_load((ROOT / called).read_text(encoding="utf-8"))[True]  # "on"
            else:
                assert job["timeout-minutes"] > 0
        for step in steps(name):
            if action := step.get("uses"):
                assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+(\.\d+\.\d+)?|[0-9a-f]{40})", action)
            if action and action.startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False

    def test_wheels_require_the_kernels_and_use_them(self):
        settings = PYPROJECT["tool"]["cibuildwheel"]
        assert settings["environment"] == {"SHUFFLEDP_REQUIRE_KERNELS": "1"}
        assert settings["test-environment"] == {"SHUFFLEDP_NATIVE": "on"}


def test_hooks_before_a_commit_are_those_of_make_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    commands = {hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude") for hook in hooks}
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1]
    linted = {line.removeprefix("\t@$(BIN)/").removesuffix(" .") for line in recipe.splitlines()}
    assert commands == linted


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_policies_are_linked():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in ("docs/stability.md", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md"):
        assert f"]({target})" in readme
    assert re.search(r"^stability$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)


class TestRequiredKernels:
    """A build whose compiler always fails: optional by default, an error on request."""

    @pytest.fixture
    def build(self, tmp_path):
        kernels = tmp_path / "src/shuffledp/native"
        kernels.mkdir(parents=True)
        (kernels / "_one.pyx").write_text("def one():\n    return 1\n")
        shutil.copy(ROOT / "setup.py", tmp_path)

        def run(switch):
            environment = {name: value for name, value in os.environ.items() if not name.startswith("SHUFFLEDP_")}
            environment |= {"CC": "false"} | ({} if switch is None else {"SHUFFLEDP_REQUIRE_KERNELS": switch})
            return subprocess.run(
                [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )

        run.kernels = kernels
        return run

    @pytest.mark.parametrize("switch", [None, "", "0"])
    def test_optional(self, build, switch):
        result = build(switch)
        assert result.returncode == 0, result.stderr
        assert "the compiled kernels were not built" in result.stderr
        assert (build.kernels / "_built.txt").read_text().startswith("not built: ")

    def test_required(self, build):
        result = build("1")
        assert result.returncode != 0
        assert not (build.kernels / "_built.txt").exists()

    def test_no_source(self, build):
        (build.kernels / "_one.pyx").unlink()
        result = build("1")
        assert result.returncode != 0
        assert "no kernel source" in result.stderr

    def test_another_value(self, build):
        result = build("yes")
        assert result.returncode != 0
        assert "expected 0 or 1" in result.stderr
