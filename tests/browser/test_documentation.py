"""The JavaScript of the documentation runs, in Node, and the page lists what the client has."""

import json
import re
from pathlib import Path

from signed_series import make_series
from test_reporting import AUTHOR, signed_task

from shuffledp.collection.wire.keys import to_base64

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "collection" / "javascript.md").read_text(encoding="utf-8")


def test_the_examples_run(web, tmp_path):
    _, content = signed_task()
    code = "\n".join(re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL))
    entries = {"node": "node.ts", "budget": "budget/index.ts", "series": "series/index.ts"}
    for entry, source in entries.items():
        code = code.replace(f'"@shuffledp/client/{entry}"', json.dumps((web.WEB / "src" / source).as_uri()))
    series = make_series(rounds=2, per_device=2).signed(AUTHOR).decode()
    given = {"task": content, "series": series, "author": to_base64(AUTHOR.public.raw)}
    prelude = f"const given = {json.dumps(given)}, signedTask = new TextEncoder().encode(given.task);"
    prelude += "const authorKey = given.author, signedSeries = new TextEncoder().encode(given.series);"
    (tmp_path / "page.mjs").write_text(f"{prelude}\n{code}")
    done = web.run_node(tmp_path / "page.mjs", cwd=tmp_path, capture_output=True)
    assert done.stdout.split() == [
        *("Commuting", "histogram", "[", "'bus',", "'bike',", "'car'", "]"),
        *("1", "1000", "recomputed", "pending", "unreachable", "false", "budget", "null"),
        *("2", "2", "2", "open", "true", "pending"),
    ]


def test_the_page_names_every_protocol(web):
    script = (
        "const { PROTOCOLS } = await import('./src/protocols/registry.ts'); console.log(JSON.stringify(PROTOCOLS));"
    )
    protocols = json.loads(web.run_node("--input-type=module", "--eval", script, capture_output=True).stdout)
    section = PAGE.split("## What is recomputed")[1].split("## ")[0]
    listed = {
        f"{question}/{name}"
        for question, names in re.findall(
            r"^\| (count|histogram|sum|quantiles|strings) \| (.*) \|$", section, re.MULTILINE
        )
        for name in re.findall(r"`([a-z-]+)`", names)
    } | set(re.findall(r"`((?:count|histogram|sum)/[a-z-]+)`", section)) - {"sum/almost-central"}
    assert listed == set(protocols)
    assert len(protocols) == 32
