/** Fetching a page of this origin and putting parts of it in place, without parsing strings: trusted types stay on. */

/** The document at a path; XMLHttpRequest parses it, runs none of its scripts, and revalidates what it has cached. */
export function fetchDocument(path: string, signal: AbortSignal): Promise<{ document: Document; tag: string | null }> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", path);
    request.responseType = "document";
    request.onload = () => {
      if (request.responseXML === null) reject(new Error(`status ${request.status}`));
      else resolve({ document: request.responseXML, tag: request.getResponseHeader("etag") });
    };
    request.onerror = () => reject(new Error("no answer"));
    request.onabort = () => reject(signal.reason);
    signal.addEventListener("abort", () => request.abort(), { once: true });
    if (signal.aborted) reject(signal.reason);
    else request.send();
  });
}

/** Replaces the content of an element by that of its namesake; focus, open details and scroll positions are kept. */
export function swap(element: Element, from: Element): void {
  const focused = document.activeElement, id = element.contains(focused) ? focused?.id : undefined;
  const open = new Map([...element.querySelectorAll("details[id]")].map((each) => [each.id, (each as HTMLDetailsElement).open]));
  const scrolled = [...element.querySelectorAll(".wide")].map((each) => each.scrollLeft);
  element.replaceChildren(...[...from.childNodes].map((node) => document.importNode(node, true)));
  for (const [name, state] of open) {
    const details = document.getElementById(name);
    if (details instanceof HTMLDetailsElement) details.open = state;
  }
  element.querySelectorAll(".wide").forEach((each, index) => (each.scrollLeft = scrolled[index] ?? 0));
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
}
