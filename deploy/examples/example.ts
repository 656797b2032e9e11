// A decision and its reward, with the TypeScript client of clients/typescript.

import { Client } from "dyclu-client";

const client = new Client(process.env["DYCLU_URL"] ?? "http://127.0.0.1:8321");
const user = process.env["DYCLU_USER"] ?? "ana";

const decided = await client.decide(user, { red: [1, 0], blue: [0, 1] });
console.log("show", decided.arm);

const reward_id = `${decided.decision_id}-click`;
for (const _ of ["first", "again"]) {
  // The second one is recognised by its id.
  const rewarded = await client.reward(decided.decision_id, 1, { reward_id });
  console.log(rewarded.repeated ? "learnt before" : "learnt");
}
