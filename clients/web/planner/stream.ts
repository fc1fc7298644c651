/** Server-sent events by fetch, which can be aborted and does not reconnect by itself. */

export interface PlanEvent { name: string; data: any }

/** The events of a response until it ends; an error of one line if the server refuses the request. */
export async function* events(path: string, signal: AbortSignal): AsyncGenerator<PlanEvent> {
  const response = await fetch(path, { signal });
  if (!response.ok || response.body === null) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.error ?? `The server answered ${response.status}.`);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const block = text.slice(0, end);
      text = text.slice(end + 2);
      const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)] as const));
      yield { name: fields.get("event") ?? "message", data: JSON.parse(fields.get("data") ?? "null") };
    }
  }
}
