"""Every state of the survey page: accessibility (axe-core, WCAG 2.2 AA), width, focus, announcements."""

import pytest
from page_checks import faults
from survey_rounds import Round
from survey_states import CASES, NUMBERS, SERIES, bring_about, scripted_worker


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    round_ = Round.prepare(tmp_path_factory.mktemp("round"))
    yield round_
    round_.stop()


@pytest.fixture(scope="module")
def origins(prepared, tmp_path_factory):
    """The page of a task, by language and options; only one is served at a time."""
    directory = tmp_path_factory.mktemp("sites")

    series = prepared.series(rounds=52, per_device=4, served=False)

    def build(language, options):
        target, asked = directory / str(len(list(directory.iterdir()))), prepared.rehearsal.task
        if options == SERIES:
            asked, options = series, {}
        if options == NUMBERS:
            asked, options = prepared.task("sum/duchi"), {}
        return prepared.served(asked, target, language=language, **options)

    return build


MAIN_STATES = (
    *("question", "error", "waiting", "delivered", "refused-token", "untrusted"),
    *("series-question", "series-skipped"),
)


@pytest.mark.parametrize(
    ("language", "scheme", "width", "names"),
    [
        ("de", "dark", 320, list(CASES)),
        pytest.param("en", "light", 1280, MAIN_STATES, marks=pytest.mark.slow),
        pytest.param("en", "light", 320, list(CASES), marks=pytest.mark.slow),
    ],
)
def test_all_states(origins, web, browser, language, scheme, width, names):
    found = {}
    for options in ({}, {"tokens": True}, {"kiosk": True}, SERIES, NUMBERS):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}, locale=language)
        context.set_default_timeout(120_000)
        page = context.new_page()
        with origins(language, options) as (origin, _):
            for name, case in ((name, CASES[name]) for name in names if CASES[name].options == options):
                page.unroute_all()
                page.route("**/survey*worker.js", fulfilled(scripted_worker(case)))
                bring_about(page, origin, case)
                found[name] = faults(page, web)
        context.close()
    assert set(found) == set(names)
    assert {name: violations for name, violations in found.items() if violations} == {}


def fulfilled(script):
    return lambda route: route.fulfill(body=script, content_type="text/javascript")


def test_the_checks_find_planted_faults(origins, web, browser):
    context = browser.new_context(viewport={"width": 320, "height": 800})
    page = context.new_page()
    page.route("**/survey-worker.js", fulfilled(scripted_worker(CASES["question"])))
    with origins("en", {}) as (origin, _):
        bring_about(page, origin, CASES["question"])
        page.evaluate("() => { document.body.append(document.createElement('input')); }")
        page.evaluate("() => { document.querySelector('main p').style.color = '#aaa'; }")
        page.evaluate("() => { document.querySelector('form').style.width = '900px'; }")
        found = {fault.partition(":")[0] for fault in faults(page, web)}
        assert found >= {"label", "color-contrast", "wider than the window"}
    context.close()


def test_focus_and_announcements(origins, context):
    page = context.new_page()
    page.route("**/survey-worker.js", fulfilled(scripted_worker(CASES["waiting"])))
    with origins("en", {}) as (origin, _):
        page.goto(origin)
        page.wait_for_selector("form")
        assert page.evaluate("document.activeElement === document.body")  # nothing takes the focus by itself
        assert page.get_by_role("status").text_content() == "How people get to work"
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.body.dataset.state === 'waiting'")
        assert page.evaluate("document.activeElement.textContent") == "Your answer is sealed and waits to be sent"


@pytest.mark.parametrize("language", ["en", "de"])
def test_without_javascript(origins, browser, language):
    """The page says that it needs JavaScript. The planted fault is a page that says so in a script only."""
    sentence = {"en": "Without JavaScript nothing can be sent", "de": "Ohne JavaScript kann nichts gesendet werden"}
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()

    def faulty(route):
        body = route.fetch().text()
        route.fulfill(body=body.replace("<noscript>", "<template>").replace("</noscript>", "</template>"))

    with origins(language, {}) as (origin, _):
        page.goto(origin)
        assert sentence[language] in page.inner_text("main")
        assert page.locator("form, input, button").count() == 0
        page.route(f"{origin}/", faulty)
        page.goto(origin)
        assert sentence[language] not in page.inner_text("main")
    context.close()
