"""The client for browsers: types, unit tests in Node, test vectors in Chromium, the committed bundle and its size."""

import gzip
import json
import re
import secrets
from pathlib import Path

from shuffledp.collection.survey.site import CLIENT_FILES, LANGUAGES

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "vectors" / "v1"
NAMES = ("task", "randomizers", "clusters", "report", "sealing")


def test_types(web):
    web.check()


def test_unit_tests_in_node(web):
    options = ("--test", "--test-isolation=none", "--test-reporter=tap")  # one process for all files
    done = web.run_node(*options, "test/*.test.ts", check=False, capture_output=True)
    print("\n".join(line for line in done.stdout.splitlines() if re.match(r"\s*(# |not ok|ok)", line)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"^# pass (\d+)", done.stdout, re.MULTILINE)[1]) >= 17


def test_committed_assets_are_what_the_sources_give(web, tmp_path):
    web.build(tmp_path)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in web.STATIC.iterdir()}
    assert built.keys() == committed.keys(), "assets are missing or left over: run make web and commit"
    for name, content in built.items():
        assert committed[name] == content, f"{name} is outdated: run make web and commit"


def test_the_npm_package_has_code_and_types(web, tmp_path):
    web.run_node("build.mjs", "--package", "--out", tmp_path)
    web.run_node("node_modules/typescript/bin/tsc", "--project", "tsconfig.package.json", "--outDir", tmp_path)
    exports = json.loads((web.WEB / "package.json").read_text())["exports"]
    for entry in exports.values():
        for path in entry.values():
            assert (tmp_path / path.removeprefix("./dist/")).exists(), path
    script = "import { FileOutbox, PROTOCOLS } from './node.js'; console.log(PROTOCOLS.length, typeof FileOutbox.open);"
    done = web.run_node("--input-type=module", "--eval", script, cwd=tmp_path, capture_output=True)
    assert done.stdout.split() == ["32", "function"]


MAX_CLIENT_BYTES, MAX_SERIES_BYTES = 16_000, 4_000


def client_bytes(assets):
    """By gzip, the client with the protocols of one file and one language, for the largest of each; and the file."""
    sizes = {name: len(gzip.compress(content, 9, mtime=0)) for name, content in assets.items()}
    languages = max(sizes[f"client-{language}.js"] for language in LANGUAGES)
    largest = max(CLIENT_FILES, key=sizes.get)
    return sizes["client.js"] + sizes[largest] + languages, largest


def test_the_client_is_small_for_every_task(web):
    assets = {path.name: path.read_bytes() for path in web.STATIC.glob("client*.js")}
    series = assets.pop("client-series.js")
    print(f"client-series.js, for series alone: {len(gzip.compress(series, 9, mtime=0)):,} bytes")
    assert len(gzip.compress(series, 9, mtime=0)) <= MAX_SERIES_BYTES
    assert assets.keys() == {"client.js", *CLIENT_FILES, *(f"client-{language}.js" for language in LANGUAGES)}
    size, largest = client_bytes(assets)
    print(f"at most {size:,} bytes by gzip: client.js, {largest} and a language")
    assert size <= MAX_CLIENT_BYTES
    assets["client-pure-sum.js"] += secrets.token_hex(8000).encode()  # the fault
    assert client_bytes(assets)[0] > MAX_CLIENT_BYTES


FILES = {name: json.loads((VECTORS / f"{name}.json").read_text()) for name in NAMES}
FILES["v2"] = {
    name: json.loads((VECTORS.with_name("v2") / f"{name}.json").read_text())
    for name in ("task", "report", "token", "carriers", "augmented", "series", "hybrid")
}


class TestVectorsInChromium:
    def run(self, page, site, bundle, files):
        directory, address = site
        (directory / "test.js").write_text(bundle("test/in_browser.ts"), encoding="utf-8")
        page.goto(address)
        page.add_script_tag(url="test.js", type="module")
        page.wait_for_function("() => 'checkVectors' in globalThis")
        return page.evaluate("(files) => checkVectors(files)", files)

    def test_all_pass(self, page, site, bundle):
        outcome = self.run(page, site, bundle, FILES)
        print(f"{outcome['passed']} checks passed in Chromium {page.context.browser.version}")
        assert outcome["failures"] == []
        assert outcome["passed"] > 1400

    def test_an_altered_vector_is_found(self, page, site, bundle):
        files = json.loads(json.dumps(FILES | {"clusters": {"randomizers": []}}))
        files["randomizers"]["randomizers"] = []
        files["sealing"]["good"][0]["sealed"] = files["sealing"]["good"][0]["sealed"][:-2] + "00"
        outcome = self.run(page, site, bundle, files)
        assert len(outcome["failures"]) == 1


def test_chromium_keeps_origins_apart(page, site, other_site):
    """The default arguments of the npm package switch that off: tests of origins would prove nothing."""
    page.goto(site[1])
    ask = "(url) => fetch(url).then((answer) => answer.status, (error) => error.name)"
    assert page.evaluate(ask, site[1]) == 200
    assert page.evaluate(ask, other_site[1]) == "TypeError"
