/** The operator's page: asks for changes every two seconds and shows them. */
import { fetchDocument, swap } from "../local/swap.ts";

const PERIOD = 2000;
let shown: string | null = null;

async function refresh(): Promise<void> {
  const time = document.getElementById("now");
  try {
    const { document: fresh, tag } = await fetchDocument(location.pathname + location.search, AbortSignal.timeout(30_000));
    if (tag === null || tag !== shown) {
      for (const part of ["header", "main"]) {
        const [here, there] = [document.querySelector(part), fresh.querySelector(part)];
        if (here && there) swap(here, there);
      }
    }
    shown = tag;
    document.body.classList.remove("stale");
    if (time) time.textContent = `${new Date().toISOString().slice(11, 19)} UTC`;
  } catch {
    document.body.classList.add("stale");
    if (time && !time.textContent?.includes("no answer")) time.textContent += " (no answer since)";
  }
}

/** One request at a time, and none while the page is hidden. */
function loop(): void {
  setTimeout(async () => {
    if (document.visibilityState === "visible") await refresh();
    loop();
  }, PERIOD);
}

loop();
