/** Send a request as often as needed. That is safe: every request that writes has an id. */

import { refusal, ServiceError } from "./errors.js";

/** A request that may be sent any number of times. */
export interface Request {
  method: "GET" | "POST" | "DELETE";
  path: string;
  body?: unknown;
  /** A batch is sent again if any of its items is refused temporarily. */
  batch?: boolean;
  /** The answer if an earlier attempt may have succeeded and this one finds nothing left to do. */
  ifGone?: unknown;
}

export interface Options {
  /** The API key, if the service needs one. */
  key?: string;
  /** Milliseconds that one attempt may take, the answer's body included. */
  timeout?: number;
  /** How often a request is sent at most. The pauses between ten attempts (16 s or more) outlast
   * the lease of a process of a cluster that was killed (10 s by default), and the take-over. */
  attempts?: number;
}

/** Statuses after which the same request may succeed later. */
const TEMPORARY = new Set([429, 502, 503, 504]);
const NOT_FOUND = 404;
const LONGEST_PAUSE = 10_000;

/** What became of one attempt: an answer, or the reason why there is none. */
type Result = { status: number; ok: boolean; retryAfter: string; text: string } | { reason: string };

export class Sender {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeout: number;
  readonly #attempts: number;

  constructor(url: string, { key, timeout = 5000, attempts = 10 }: Options = {}) {
    if (!(attempts >= 1)) throw new RangeError(`attempts is ${attempts}, expected at least 1`);
    if (!(timeout > 0)) throw new RangeError(`timeout is ${timeout} ms, expected more than 0`);
    this.#url = url.replace(/\/+$/, "");
    this.#headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
    this.#timeout = timeout;
    this.#attempts = attempts;
  }

  /** Send the request until it is answered; return the answer, or throw a ServiceError. */
  async ask(request: Request): Promise<unknown> {
    for (let attempt = 1; ; attempt++) {
      const result = await this.#send(request);
      const last = attempt >= this.#attempts;
      if ("reason" in result) {
        if (last) {
          throw new ServiceError(`${this.#url} does not answer (${result.reason}); is it running?`);
        }
      } else if (last || !isTemporary(request, result)) {
        return answer(request, result, attempt > 1);
      }
      await new Promise((resolve) => setTimeout(resolve, pause(attempt, result)));
    }
  }

  async #send(request: Request): Promise<Result> {
    const json = request.body === undefined ? {} : { "Content-Type": "application/json" };
    try {
      const response = await fetch(this.#url + request.path, {
        method: request.method,
        headers: { ...this.#headers, ...json },
        signal: AbortSignal.timeout(this.#timeout),
        ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
      });
      const text = await response.text();
      const retryAfter = response.headers.get("retry-after") ?? "";
      return { status: response.status, ok: response.ok, retryAfter, text };
    } catch (error) {
      return { reason: reasonOf(error) };
    }
  }
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}

function isTemporary(request: Request, result: { status: number; ok: boolean; text: string }) {
  if (!(request.batch && result.ok)) return TEMPORARY.has(result.status);
  return resultsOf(result).some((one) => one.http !== undefined && TEMPORARY.has(one.http));
}

/** The results of a batch; an answer without them is not the service's. */
function resultsOf({ status, text }: { status: number; text: string }): { http?: number }[] {
  const found = parsed(status, text) as { results?: unknown } | null;
  const results = found?.results;
  if (Array.isArray(results) && results.every((one) => typeof one === "object" && one !== null)) {
    return results;
  }
  throw new ServiceError(`no results in the answer: ${text.slice(0, 200)}`, { status });
}

function answer(request: Request, result: Exclude<Result, { reason: string }>, repeated: boolean) {
  if (repeated && request.ifGone !== undefined && result.status === NOT_FOUND) return request.ifGone;
  const found = parsed(result.status, result.text);
  if (!result.ok) throw refusal(result.status, (found as { error?: unknown } | null)?.error);
  return found;
}

function parsed(status: number, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ServiceError(text.slice(0, 200) || `status ${status} without a JSON answer`, { status });
  }
}

/** Milliseconds to wait: longer each time, partly random, at least Retry-After. */
function pause(attempt: number, result: Result): number {
  const own = Math.min(LONGEST_PAUSE, 100 * 2 ** (attempt - 1)) * (0.5 + Math.random());
  const asked = "reason" in result ? "" : result.retryAfter;
  return /^\d+$/.test(asked) ? Math.max(own, Math.min(LONGEST_PAUSE, 1000 * Number(asked))) : own;
}
