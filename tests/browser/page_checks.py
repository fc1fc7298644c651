"""Checks that every page has to pass: accessibility (axe-core), width, no request elsewhere, no violated policy."""

import re

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """async (rules) => (await axe.run(document, { runOnly: rules, resultTypes: ["violations"] })).violations
  .map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" "))"""
_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error("violation", event.violatedDirective, event.blockedURI);
});
"""


def faults(page, web):
    """What is wrong with a page as it is shown: violations of WCAG 2.2 AA, or content wider than the window."""
    page.evaluate((web.WEB / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(_RUN, RULES)
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append("wider than the window")
    return found


class Watcher:
    """All requests and complaints of a browser context."""

    def __init__(self, context, allowed, *, heard="violation|Content Security Policy|Trusted|Refused to"):
        self.allowed, self.requests, self.complaints, self._heard = allowed, [], [], heard
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("console", lambda message: self._hear(message.text))
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.add_init_script(_VIOLATIONS)

    def _hear(self, text):
        if re.search(self._heard, text):
            self.complaints.append(text)

    def outside(self):
        return [url for url in self.requests if not url.startswith(self.allowed)]

    def check(self):
        assert self.outside() == []
        assert self.complaints == []
