import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../src/index.js";
import { kill, serve } from "./service.js";

const ARMS = { red: [1, 0], blue: [0, 1] };

test("a reward survives kill -9 and is learnt once, however often it is sent", async () => {
  let running = await serve();
  try {
    const client = new Client(running.url, { attempts: 40 });
    const decided = await client.decide("ana", ARMS);
    await kill(running.process); // between decision and reward

    const sent = client.reward(decided.decision_id, 1, { reward_id: "r-1" }); // nobody listens yet
    running = await serve();
    assert.equal((await sent).repeated, false);
    await kill(running.process); // after the acknowledgement

    running = await serve();
    const again = await client.reward(decided.decision_id, 1, { reward_id: "r-1" });
    assert.equal(again.repeated, true);
    const policy = await client.policy();
    assert.deepEqual([policy.version, policy.rewards, policy.pending], [1, 1, 0]);
    assert.deepEqual(
      await client.decide("ana", ARMS, { decision_id: decided.decision_id }),
      decided,
    );
  } finally {
    await kill(running.process);
  }
});
