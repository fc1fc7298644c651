/** Runs a script in a stock Firefox by WebDriver BiDi: node firefox.mjs FIREFOX PROFILE ADDRESS SCRIPT prints the result as JSON. */
import { spawn } from "node:child_process";

const [firefox, profile, address, script] = process.argv.slice(2);
const browser = spawn(firefox, ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"], { stdio: ["ignore", "ignore", "pipe"] });
try {
  const url = await new Promise((resolve, reject) => {
    browser.on("exit", () => reject(new Error("Firefox has ended")));
    browser.stderr.setEncoding("utf8").on("data", (text) => {
      const match = /WebDriver BiDi listening on (ws:\S+)/.exec(text);
      if (match) resolve(match[1]);
    });
  });
  const socket = new WebSocket(`${url}/session`), waiting = new Map();
  await new Promise((resolve, reject) => Object.assign(socket, { onopen: resolve, onerror: reject }));
  socket.onmessage = ({ data }) => {
    const { id, type, result, message } = JSON.parse(data);
    if (waiting.has(id)) waiting.get(id)[type === "error" ? 1 : 0](type === "error" ? new Error(message) : result);
  };
  const call = (method, params) =>
    new Promise((resolve, reject) => {
      const id = waiting.size + 1;
      waiting.set(id, [resolve, reject]);
      socket.send(JSON.stringify({ id, method, params }));
    });
  await call("session.new", { capabilities: {} });
  const { context } = await call("browsingContext.create", { type: "tab" });
  await call("browsingContext.navigate", { context, url: address, wait: "complete" });
  const { result, exceptionDetails } = await call("script.evaluate", { expression: script, target: { context }, awaitPromise: true });
  if (exceptionDetails) throw new Error(exceptionDetails.text);
  console.log(result.value);
  socket.close();
} finally {
  browser.kill();
}
