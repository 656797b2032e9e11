import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { BatchError, Client, ServiceError } from "../src/index.js";
import { URL_OF_SERVICE } from "./service.js";

const ARMS = { red: [1, 0], blue: [0, 1] };
const client = new Client(URL_OF_SERVICE, { attempts: 20 });

test("a decision names an arm, and its reward is learnt once", async () => {
  const decided = await client.decide("ts-ana", ARMS, { rank: true });
  assert.equal(decided.status, "decided");
  assert.deepEqual([...decided.rank!].sort(), ["blue", "red"]);
  const before = (await client.policy()).version;
  const first = await client.reward(decided.decision_id, 1);
  const again = await client.reward(decided.decision_id, 1);
  assert.deepEqual([first.repeated, again.repeated], [false, true]);
  assert.equal((await client.policy()).version, before + 1);
  assert.equal((await client.user("ts-ana")).user, "ts-ana");
});

test("a decision that is asked for again has the same answer", async () => {
  const decided = await client.decide("ts-bea", ARMS, { decision_id: "ts-same" });
  assert.deepEqual(await client.decide("ts-bea", ARMS, { decision_id: "ts-same" }), decided);
});

test("ids are escaped in paths: a question about ana?x is not about ana", async () => {
  const decided = await client.decide("ts-a+b@c:d", ARMS, { decision_id: "ts-d+1" });
  await client.reward(decided.decision_id, 0.5);
  assert.equal((await client.user("ts-a+b@c:d")).user, "ts-a+b@c:d");
  await assert.rejects(client.user("ts-a+b@c:d?x"), ServiceError);
  await assert.rejects(client.reward("ts-d+1/reward#", 1), ServiceError);
});

test("batches are answered item by item, in their order", async () => {
  const rows = ["ts-u1", "ts-u2", "ts-u3"].map((user) => ({ user, arms: ARMS }));
  const decided = await client.decideMany(rows);
  assert.equal(decided.length, 3);
  const ids = decided.map((one) => (one.status === "decided" ? one.decision_id : "refused"));
  const results = await client.rewardMany([
    { decision_id: ids[0]!, value: 1 },
    { decision_id: "ts-never-made", value: 1 },
    { decision_id: ids[2]!, value: 0 },
  ]);
  assert.deepEqual(results.map((one) => one.status), ["rewarded", "refused", "rewarded"]);
});

test("more observations than one request may hold are sent in several", async () => {
  const before = (await client.policy()).version;
  const rows = Array.from({ length: 501 }, (_, i) => ({
    user: `ts-w${i % 7}`,
    features: [i % 2, 1 - (i % 2)],
    reward: i % 2,
    event_id: `ts-e${i}`,
  }));
  const results = await client.observeMany(rows);
  assert.equal(results.length, 501);
  assert.ok(results.every((one) => one.status === "observed" && !one.repeated));
  assert.ok((await client.observe(rows[500]!)).repeated);
  assert.equal((await client.policy()).version, before + 501);
});

test("arms of a Map are sent in its order", async () => {
  const arms = new Map([["10", [1, 0]], ["2", [1, 0]]]);
  const decided = await client.decide("ts-map", arms, { rank: true });
  assert.equal(decided.arm, "10"); // equal arms: the first one
});

test("slots have rewards of their own", async () => {
  const decided = await client.decide("ts-cleo", ARMS, { slots: 2 });
  assert.equal(decided.slots?.length, 2);
  const rewarded = await client.rewardSlots(decided.decision_id, { 1: 1, 2: 0 });
  assert.deepEqual(rewarded.values, { 1: 1, 2: 0 });
});

test("a refusal is an error with status, code and field", async () => {
  await assert.rejects(client.decide("ts-dan", { red: [1, 0, 0] }), (error) => {
    assert.ok(error instanceof ServiceError);
    assert.equal(error.status, 422);
    assert.ok(error.code);
    assert.match(error.field ?? "", /arms/);
    return true;
  });
});

test("a user can be erased, and is then unknown", async () => {
  await client.observe({ user: "ts-gone", features: [1, 0], reward: 1 });
  assert.equal((await client.erase("ts-gone")).user, "ts-gone");
  await assert.rejects(client.user("ts-gone"), { status: 404 });
});

test("a service that is not there is an error that names its address", async () => {
  const lost = new Client("http://127.0.0.1:1", { attempts: 2 });
  await assert.rejects(lost.policy(), /127\.0\.0\.1:1 does not answer/);
});

test("options outside their range are refused", () => {
  assert.throws(() => new Client(URL_OF_SERVICE, { attempts: 0 }), /attempts is 0/);
  assert.throws(() => new Client(URL_OF_SERVICE, { timeout: 0 }), /timeout is 0/);
});

/** Run a server that answers as told, because a real service has no fault to order. */
async function faulty(listener: RequestListener, run: (url: string) => Promise<void>) {
  const server = createServer(listener).listen(0, "127.0.0.1");
  try {
    await new Promise((resolve) => server.once("listening", resolve));
    await run(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("a temporary refusal is repeated with the same id", async () => {
  const bodies: string[] = [];
  await faulty(
    (request, response) => {
      let body = "";
      request.on("data", (part) => (body += part));
      request.on("end", () => {
        bodies.push(body);
        response.writeHead(bodies.length < 3 ? 503 : 200, { "Content-Type": "application/json" });
        response.end(JSON.stringify({ status: "decided", arm: "red" }));
      });
    },
    async (url) => {
      assert.equal((await new Client(url).decide("ana", ARMS)).arm, "red");
    },
  );
  assert.equal(bodies.length, 3);
  assert.equal(new Set(bodies).size, 1);
});

test("a service that accepts and never answers is given up after the timeout", async () => {
  let asked = 0;
  await faulty(
    () => void asked++,
    async (url) => {
      const hasty = new Client(url, { timeout: 50, attempts: 2 });
      await assert.rejects(hasty.policy(), /does not answer/);
    },
  );
  assert.equal(asked, 2);
});

test("the pauses outlast the lease of a process that was killed, and the take-over", async (context) => {
  const pauses: number[] = [];
  context.mock.method(Math, "random", () => 0); // the shortest ones
  const timeout = globalThis.setTimeout;
  context.mock.method(globalThis, "setTimeout", ((run: () => void, wait = 0) => {
    pauses.push(wait);
    return timeout(run, 0);
  }) as typeof setTimeout);
  await assert.rejects(new Client("http://127.0.0.1:1").policy(), /does not answer/);
  const sum = pauses.reduce((all, one) => all + one, 0);
  // The default lease, the two seconds of a take-over, and two more.
  assert.ok(sum > 14_000, `${sum}`);
});

test("an erasure whose first answer was lost is answered, with null for what is unknown", async () => {
  let asked = 0;
  await faulty(
    (request, response) => {
      if (++asked === 1) return void request.socket.destroy();
      response.writeHead(404, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ error: { code: "unknown", message: "no such user" } }));
    },
    async (url) => {
      const erased = await new Client(url).erase("ana");
      assert.deepEqual(erased, { user: "ana", erased_records: null, rebuilding: null, exact: null });
    },
  );
  assert.equal(asked, 2);
});

test("a proxy's answer that is not JSON becomes an error with its text", async () => {
  await faulty(
    (_, response) => void response.writeHead(404).end("<h1>no such host</h1>"),
    async (url) => {
      await assert.rejects(new Client(url).policy(), { status: 404, message: /no such host/ });
    },
  );
});

test("an id that is given as undefined or null is made, so that requests can be repeated", async () => {
  const bodies: Record<string, unknown>[] = [];
  await faulty(
    (request, response) => {
      let body = "";
      request.on("data", (part) => (body += part));
      request.on("end", () => {
        const { decisions, rewards, observations, ...one } = JSON.parse(body);
        bodies.push(...(decisions ?? rewards ?? observations ?? [one]));
        response.writeHead(200, { "Content-Type": "application/json" });
        response.end(JSON.stringify({ results: [] }));
      });
    },
    async (url) => {
      const own = new Client(url);
      const none = undefined as unknown as string; // as plain JavaScript passes it
      await own.decide("ana", ARMS, { decision_id: none });
      await own.decideMany([{ user: "ana", arms: ARMS, decision_id: none }]);
      await own.reward("d", 1, { reward_id: none });
      await own.rewardSlots("d", { 1: 1 }, { reward_id: none });
      await own.rewardMany([{ decision_id: "d", value: 1, reward_id: null as unknown as string }]);
      await own.observeMany([{ user: "ana", features: [1, 0], reward: 1, event_id: none }]);
      await own.reward("d", 1, { reward_id: "mine" });
    },
  );
  const ids = bodies.map((one) => one.event_id ?? one.reward_id ?? one.decision_id);
  assert.equal(new Set(ids).size, 7);
  assert.equal(bodies[4]!.decision_id, "d");
  assert.ok(ids.slice(0, 6).every((id) => /^[0-9a-f]{32}$/.test(String(id))));
  assert.equal(ids[6], "mine");
});

test("rows of a call that failed in part are counted once if they are sent again", async () => {
  const learnt = new Map<string, number>();
  let asked = 0;
  await faulty(
    (request, response) => {
      let body = "";
      request.on("data", (part) => (body += part));
      request.on("end", () => {
        const { rewards } = JSON.parse(body) as { rewards: { reward_id: string; value: number }[] };
        response.writeHead(++asked === 2 ? 422 : 200, { "Content-Type": "application/json" });
        if (asked === 2) {
          const problem = { message: "no number", code: "invalid", field: "rewards[1].value" };
          return void response.end(JSON.stringify({ error: problem }));
        }
        const results = rewards.map(({ reward_id, value }) => {
          const repeated = learnt.has(reward_id);
          learnt.set(reward_id, value);
          return { status: "rewarded", repeated };
        });
        response.end(JSON.stringify({ results }));
      });
    },
    async (url) => {
      const own = new Client(url);
      const rows = Array.from({ length: 502 }, (_, i) => ({ decision_id: `d${i}`, value: i }));
      const error = await own.rewardMany(rows).then(
        () => assert.fail("it was not refused"),
        (error: unknown) => error as BatchError<(typeof rows)[number]>,
      );
      assert.ok(error instanceof BatchError && error instanceof ServiceError);
      assert.deepEqual([error.status, error.field], [422, "rewards[501].value"]);
      assert.match(error.message, /^row 501: /);
      assert.equal(error.results.length, 502);
      assert.deepEqual(error.results.slice(500), [undefined, undefined]);
      assert.deepEqual(error.results[499], { status: "rewarded", repeated: false });
      const again = await own.rewardMany(error.rows);
      assert.equal(again.filter((one) => "repeated" in one && one.repeated).length, 500);
      assert.equal(learnt.size, 502);
    },
  );
});

test("a 200 that is not JSON, or no results of a batch, is an error of the service", async () => {
  for (const text of ["<h1>please log in</h1>", "null", "{}", '{"results": [null]}']) {
    await faulty(
      (_, response) => void response.writeHead(200).end(text),
      async (url) => {
        const rows = [{ decision_id: "d", value: 1 }];
        await assert.rejects(new Client(url).rewardMany(rows), (error) => {
          assert.ok(error instanceof ServiceError, String(error));
          assert.equal(error.status, 200);
          return true;
        });
      },
    );
  }
});
