"""Every state of the survey page: accessibility (axe-core, WCAG 2.2 AA), width, focus, announcements."""

import pytest
from survey_rounds import Round
from survey_states import CASES, bring_about, scripted_worker

AXE = """async () => (await axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"],
})).violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" "))"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    round_ = Round.prepare(tmp_path_factory.mktemp("round"))
    yield round_
    round_.proxy.stop()


@pytest.fixture(scope="module")
def origins(prepared, tmp_path_factory):
    """The page of a task, by language and options; only one is served at a time."""
    directory = tmp_path_factory.mktemp("sites")

    def build(language, options):
        target = directory / str(len(list(directory.iterdir())))
        return prepared.site(prepared.rehearsal.task, target, language=language, **options)

    return build


MAIN_STATES = ("question", "error", "waiting", "delivered", "refused-token", "untrusted")


@pytest.mark.parametrize(
    ("language", "scheme", "width", "names"),
    [
        ("de", "dark", 320, list(CASES)),
        ("en", "light", 1280, MAIN_STATES),
        pytest.param("en", "light", 320, list(CASES), marks=pytest.mark.slow),
    ],
)
def test_all_states(origins, web, browser, language, scheme, width, names):
    found = {}
    for options in ({}, {"tokens": True}, {"kiosk": True}):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}, locale=language)
        context.set_default_timeout(120_000)
        context.add_init_script(path=web.WEB / "node_modules" / "axe-core" / "axe.min.js")
        page = context.new_page()
        with origins(language, options).running() as origin:
            for name, case in ((name, CASES[name]) for name in names if CASES[name].options == options):
                page.unroute_all()
                page.route("**/survey-worker.js", fulfilled(scripted_worker(case)))
                bring_about(page, origin, case)
                found[name] = page.evaluate(AXE)
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    found[name].append("wider than the window")
        context.close()
    assert set(found) == set(names)
    assert {name: violations for name, violations in found.items() if violations} == {}


def fulfilled(script):
    return lambda route: route.fulfill(body=script, content_type="text/javascript")


def test_the_checks_find_planted_faults(origins, web, browser):
    context = browser.new_context(viewport={"width": 320, "height": 800})
    context.add_init_script(path=web.WEB / "node_modules" / "axe-core" / "axe.min.js")
    page = context.new_page()
    page.route("**/survey-worker.js", fulfilled(scripted_worker(CASES["question"])))
    with origins("en", {}).running() as origin:
        bring_about(page, origin, CASES["question"])
        page.evaluate("() => { document.body.append(document.createElement('input')); }")
        page.evaluate("() => { document.querySelector('main p').style.color = '#aaa'; }")
        page.evaluate("() => { document.querySelector('form').style.width = '900px'; }")
        violations = " ".join(page.evaluate(AXE))
        assert "label" in violations
        assert "color-contrast" in violations
        assert page.evaluate("document.documentElement.scrollWidth > innerWidth")
    context.close()


def test_focus_and_announcements(origins, context):
    page = context.new_page()
    page.route("**/survey-worker.js", fulfilled(scripted_worker(CASES["waiting"])))
    with origins("en", {}).running() as origin:
        page.goto(origin)
        page.wait_for_selector("form")
        assert page.evaluate("document.activeElement === document.body")  # nothing takes the focus by itself
        assert page.get_by_role("status").text_content() == "How people get to work"
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.body.dataset.state === 'waiting'")
        assert page.evaluate("document.activeElement.textContent") == "Your answer is sealed and waits to be sent"


def test_without_javascript(origins, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    with origins("en", {}).running() as origin:
        page.goto(origin)
        assert "Without JavaScript nothing can be sent" in page.inner_text("main")
    context.close()
