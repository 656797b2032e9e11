/** The calls of the decision service. Types of requests and answers are those of its OpenAPI
 * document (`schema.ts`, generated). */

import { randomUUID } from "node:crypto";

import { BatchError, refusal, ServiceError } from "./errors.js";
import type { components, paths } from "./schema.js";
import { type Options, type Request, Sender } from "./sending.js";

type Schemas = components["schemas"];

export type Decided = Schemas["Decided"];
export type Rewarded = Schemas["Rewarded"];
export type Activated = Schemas["Activated"];
export type Observed = Schemas["Observed"];
export type Failed = Schemas["Failed"];
export type Reward = Schemas["NamedReward"];
export type Observation = Schemas["Observation"] | Schemas["NamedObservation"];

/** Values by declared columns. */
export type Columns = Record<string, unknown>;
/** An arm: a vector, or values by declared columns. */
export type Arm = readonly number[] | Columns;

/** Arms by id. An object sends ids such as "10" and "2" in ascending order; a Map keeps its order. */
export type Arms = Readonly<Record<string, Arm>> | ReadonlyMap<string, Arm>;

/** What a decision may be asked with; see POST /v1/decisions. */
export type DecideOptions = Partial<Omit<Schemas["DecisionRequest"], "user" | "arms">> & {
  context?: Columns;
};
/** One of several decisions that are asked for in one call. */
export type DecideRow = DecideOptions & { user: string; arms: Arms };
/** What a reward may say beside its value: a slot, and an id of its own. */
export type RewardOptions = Omit<Schemas["RewardRequest"], "value">;

/** Items of one request; more are sent as several requests. */
const BATCH = 500;

export class Client {
  readonly #sender: Sender;

  constructor(url: string, options: Options = {}) {
    this.#sender = new Sender(url, options);
  }

  /** Choose one of the arms, by id: vectors, or objects of declared columns. */
  decide(user: string, arms: Arms, options: DecideOptions = {}): Promise<Decided> {
    const body = decisionBody({ user, arms, ...options });
    return this.#ask<Decided>({ method: "POST", path: "/v1/decisions", body });
  }

  /** Ask for several decisions. Each is answered separately: `status` is decided or refused. They
   * are sent in batches; if one is refused as a whole or gets no answer, nothing after it is sent,
   * and `BatchError` has the results of those before and the rows with their ids. */
  decideMany(rows: Iterable<DecideRow>): Promise<(Decided | Failed)[]> {
    const named = Array.from(rows, withDecisionId);
    return this.#batches("/v1/decisions:batch", "decisions", named, decisionBody);
  }

  /** Send the reward of a decision, or of one of its slots. It is counted once. */
  reward(decisionId: string, value: number, options: RewardOptions = {}): Promise<Rewarded> {
    const body = { value, ...options, reward_id: options.reward_id ?? newId() };
    return this.#ask<Rewarded>({ method: "POST", path: rewardPath(decisionId), body });
  }

  /** Send the rewards of several slots of a decision, by slot. */
  rewardSlots(
    decisionId: string,
    values: Record<number, number>,
    options: { reward_id?: string } = {},
  ): Promise<Rewarded> {
    const body = { values, ...options, reward_id: options.reward_id ?? newId() };
    return this.#ask<Rewarded>({ method: "POST", path: rewardPath(decisionId), body });
  }

  /** Send several rewards. Each is answered separately: `status` is rewarded or refused. If a batch
   * fails, `BatchError` is as for `decideMany`. */
  rewardMany(rewards: Iterable<Reward>): Promise<(Rewarded | Failed)[]> {
    const named = Array.from(rewards, (one) => ({ ...one, reward_id: one.reward_id ?? newId() }));
    return this.#batches("/v1/rewards:batch", "rewards", named);
  }

  /** Activate a decision that was asked for with `active: false`. */
  activate(decisionId: string): Promise<Activated> {
    const path = `/v1/decisions/${encodeURIComponent(decisionId)}/activate`;
    return this.#ask<Activated>({ method: "POST", path });
  }

  /** Send an observation that did not come from a decision of the service. */
  async observe(row: Observation): Promise<Observed> {
    const [result] = await this.observeMany([row]);
    if (result === undefined) throw new TypeError("the service gave no result");
    if (result.status === "refused") throw refusal(result.http, result.error);
    return result;
  }

  /** Send observations, in batches. Of a batch with an invalid row nothing is learnt; `BatchError`
   * is as for `decideMany`. */
  observeMany(rows: Iterable<Observation>): Promise<(Observed | Failed)[]> {
    const named = Array.from(rows, (one) => ({ ...one, event_id: one.event_id ?? newId() }));
    return this.#batches("/v1/observations", "observations", named);
  }

  /** What the service knows about a user. */
  user(user: string): Promise<Schemas["UserView"]> {
    return this.#ask({ method: "GET", path: `/v1/users/${encodeURIComponent(user)}` });
  }

  /** Erase a user; values of the answer are null if the first answer was lost. */
  erase(user: string): Promise<{ [Name in keyof Schemas["Erased"]]: Schemas["Erased"][Name] | null }> {
    const path = `/v1/users/${encodeURIComponent(user)}`;
    const ifGone = { user, erased_records: null, rebuilding: null, exact: null };
    return this.#ask({ method: "DELETE", path, ifGone });
  }

  /** The models, one per taste. */
  models(): Promise<Schemas["Models"]> {
    return this.#ask({ method: "GET", path: "/v1/models" });
  }

  /** The first changes after number `since`; pass `next` and `epoch` of the answer next time. */
  changes(since = 0, epoch?: number): Promise<Schemas["Changes"]> {
    const held = epoch === undefined ? "" : `&epoch=${epoch}`;
    return this.#ask({ method: "GET", path: `/v1/changes?since=${since}${held}` });
  }

  /** The policy that serves, its settings, its counters and its warnings. */
  policy(): Promise<Schemas["PolicyView"]> {
    return this.#ask({ method: "GET", path: "/v1/policy" });
  }

  /** The features that the service declares. */
  features(): Promise<Schemas["FeaturesView"]> {
    return this.#ask({ method: "GET", path: "/v1/features" });
  }

  /** How the policy compares with the control group, per day and in all. */
  lift(): Promise<Schemas["LiftView"]> {
    return this.#ask({ method: "GET", path: "/v1/lift" });
  }

  async #ask<Answer>(request: Request): Promise<Answer> {
    return (await this.#sender.ask(request)) as Answer;
  }

  async #batches<Row, Result>(
    path: keyof paths,
    name: string,
    rows: Row[],
    body: (row: Row) => unknown = (row) => row,
  ): Promise<Result[]> {
    const results: Result[] = [];
    // Before anything is sent: a row that cannot be read stops the call with nothing done.
    const bodies = rows.map(body);
    for (let start = 0; start < rows.length; start += BATCH) {
      const part = { [name]: bodies.slice(start, start + BATCH) };
      const request: Request = { method: "POST", path, body: part, batch: true };
      try {
        results.push(...(await this.#ask<{ results: Result[] }>(request)).results);
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        throw failedBatch(error, start, results, rows);
      }
    }
    return results;
  }
}

/** The error of a call whose request from row `start` on failed; it names the row among all. */
function failedBatch<Row, Result>(error: ServiceError, start: number, before: Result[], rows: Row[]) {
  const results = rows.map((_, place) => before[place]);
  const found = /^(\w+)\[(\d+)\](.*)$/s.exec(error.field ?? "");
  if (found === null) return new BatchError(error.message, error, results, rows);
  const place = start + Number(found[2]);
  const { status, code } = error;
  const named = new ServiceError(error.message, {
    field: `${found[1]}[${place}]${found[3]}`,
    ...(status === undefined ? {} : { status }),
    ...(code === undefined ? {} : { code }),
  });
  return new BatchError(`row ${place}: ${error.message}`, named, results, rows);
}

function newId(): string {
  return randomUUID().replaceAll("-", "");
}

function rewardPath(decisionId: string): string {
  return `/v1/decisions/${encodeURIComponent(decisionId)}/reward`;
}

function withDecisionId(row: DecideRow): DecideRow {
  return { ...row, decision_id: row.decision_id ?? newId() };
}

function decisionBody({ user, arms, ...options }: DecideRow): unknown {
  const entries = arms instanceof Map ? [...arms] : Object.entries(arms as Record<string, Arm>);
  const rows = entries.map(([id, arm]: [string, Arm]) =>
    isVector(arm) ? { id, features: arm } : { ...arm, id },
  );
  return { user, arms: rows, ...options, decision_id: options.decision_id ?? newId() };
}

function isVector(arm: Arm): arm is readonly number[] {
  return Array.isArray(arm);
}
