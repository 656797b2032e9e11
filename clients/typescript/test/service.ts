/** A service that the tests start, kill and start again. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** The running service that all tests share. */
export const URL_OF_SERVICE = needed("DYCLU_URL");

function needed(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set; tests/clients sets it`);
  return value;
}

/** Start a service of its own, which listens at `url`; resolve once it listens. */
export async function serve(): Promise<{ url: string; process: ChildProcess }> {
  const [program, ...words] = JSON.parse(needed("DYCLU_SERVE")) as [string, ...string[]];
  const child = spawn(program, words, { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: child.stdout! })) {
    if (line.startsWith("listening on ")) return { url: line.split(" ").at(-1)!, process: child };
  }
  throw new Error("the service did not start");
}

/** Kill a process with SIGKILL, and wait for its end. */
export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
