/** Planted faults: modules of a copy of the sources, in which one line differs. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Refusal } from "../src/refusal.ts";

const WEB = join(import.meta.dirname, "..");

/** `run` with the functions of a module, such as "report.ts", if `file` has `faulty` in place of `right`. */
export async function withFault<Module, Result>({ file, right, faulty }: { file: string; right: string; faulty: string }, module: string, run: (functions: Module) => Promise<Result>): Promise<Result> {
  const copy = mkdtempSync(join(tmpdir(), "shuffledp-fault-")), path = join(copy, "src", file);
  try {
    for (const part of ["package.json", "src", "texts"]) cpSync(join(WEB, part), join(copy, part), { recursive: true });
    const source = readFileSync(path, "utf8");
    if (source.split(right).length !== 2) throw new Error(`${file} does not have, just once: ${right}`);
    writeFileSync(path, source.replace(right, () => faulty));
    return await run((await import(pathToFileURL(join(copy, "src", module)).href)) as Module);
  } finally {
    rmSync(copy, { recursive: true });
  }
}

/** The same function with refusals of this module's class: a copy of the sources has a class of its own. */
export const refusing = <Arguments extends unknown[], Result>(action: (...given: Arguments) => Promise<Result>) => async (...given: Arguments): Promise<Result> => {
  try {
    return await action(...given);
  } catch (error) {
    const { reason, message } = error as Refusal;
    throw reason ? new Refusal(reason, message) : error;
  }
};
