"use strict";
// Asks the service once a second and draws what it says. No library, no state but this.

const EVERY = 1000, MAP_EVERY = 3000, HEALTH_EVERY = 5000, MINUTE = 60_000, ROWS = 50;
const WIDTH = 600, HEIGHT = 180, LEFT = 64, BOTTOM = 22, TOP = 10;
const $ = (id) => document.getElementById(id);
const view = { span: "seconds", since: null, epoch: null, changes: [], user: null, activity: null, mapped: 0, version: 0, segment: "segment", measured: 0, figures: [], models: new Map(), named: false, clustered: null, partitions: null, partition: 0 };

// --- asking -----------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

function send(path) {
  const key = sessionStorage.getItem("dyclu-key");
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  return fetch(path, { headers, cache: "no-store" });
}

async function ask(path) {
  const response = await send(path);
  const answer = await response.json();
  if (!response.ok) throw new Refused(response.status, answer.error.message);
  return answer;
}

async function look() {
  if (!document.hidden) {
    try {
      await refresh();
    } catch (error) {
      await trouble(error).catch(() => {});
    }
    if (view.clustered) await lookAtCluster().catch(() => {});
  }
  setTimeout(look, EVERY);
}

// The path of a view of one partition: the one that was chosen, if there are several.
const ofPartition = (path) => (view.partitions > 1 ? `${path}${path.includes("?") ? "&" : "?"}partition=${view.partition}` : path);

// Policy and activity of the tenant; of the chosen partition, if another one cannot be asked.
async function askWhole() {
  const both = (path) => Promise.all([ask(path("v1/policy")), ask(path("v1/activity"))]);
  try {
    return [...await both((path) => path), ""];
  } catch (error) {
    if (!(error instanceof Refused && error.status === 503 && view.partitions > 1)) throw error;
    return [...await both(ofPartition), `All figures are of partition ${view.partition} only: ${error.message}`];
  }
}

async function refresh() {
  const [policy, activity, partial] = await askWhole();
  view.clustered = policy.partitions !== null;
  offerPartitions(policy.partitions);
  const own = view.partitions > 1 ? await ask(ofPartition("v1/policy")) : policy;
  const chosen = view.partition;
  const changes = await ask(ofPartition(`v1/changes?since=${view.since ?? Math.max(0, own.changes - ROWS)}`));
  // Another partition was chosen meanwhile.
  if (chosen !== view.partition) return;
  $("login").hidden = true;
  $("main").hidden = false;
  view.activity = activity;
  view.version = own.version;
  showPolicy(partial ? { ...policy, warnings: [partial, ...policy.warnings] } : policy);
  if (!policy.healthy) await showReadiness();
  showActivity();
  showChanges(changes);
  if (Date.now() - view.mapped > MAP_EVERY) {
    view.mapped = Date.now();
    showMap(await ask(ofPartition("v1/models")), own);
  }
  if (Date.now() - view.measured > HEALTH_EVERY) {
    view.measured = Date.now();
    showHealth(await (await send("metrics")).text());
    await lookAtLift();
  }
  if (view.user !== null) await showUser(view.user);
}

function offerPartitions(count) {
  if (view.partitions === count) return;
  view.partitions = count;
  $("partition-choice").hidden = !(count > 1);
  $("partition").replaceChildren(...Array.from({ length: count ?? 0 }, (_, number) => new Option(number, number)));
}

function choosePartition(number) {
  Object.assign(view, { partition: number, since: null, epoch: null, changes: [], mapped: 0, models: new Map() });
  drawChanges(0);
  refresh().catch(trouble);
}

async function trouble(error) {
  const locked = error instanceof Refused && error.status === 401;
  $("login").hidden = !locked;
  $("main").hidden = locked;
  $("dot").className = "dot bad";
  $("state").textContent = locked ? "needs a key" : error instanceof Refused ? error.message : "does not answer";
  if (error instanceof Refused && error.status === 503) {
    if (view.clustered === null) await findCluster();
    await showReadiness();
  }
}

// Why the service is not ready, and how far a start is.
async function showReadiness() {
  const health = await (await send("readyz")).json();
  const left = health.seconds_left;
  if (health.status === "starting") {
    $("state").textContent = `starting: ${number(health.lines_done)} of ${many(health.lines_total, "line")}` +
      (left === null || left === undefined ? "" : `, about ${many(Math.ceil(left), "second")} left`);
  } else if (health.status !== "ok") {
    $("state").textContent = health.reason;
  }
}

// --- health -----------------------------------------------------------------------------------

// Sums and largest of the figures of a text in Prometheus' format, by name; buckets by their bounds.
function figuresOf(text) {
  const sums = {}, most = {}, buckets = {};
  for (const line of text.split("\n")) {
    const found = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const [, name, labels = "", value] = found;
    const bound = /le="([^"]+)"/.exec(labels), status = /status="5/.test(labels);
    if (name === "dyclu_request_seconds_bucket") buckets[bound[1]] = (buckets[bound[1]] ?? 0) + Number(value);
    else {
      sums[name] = (sums[name] ?? 0) + Number(value);
      most[name] = Math.max(most[name] ?? -Infinity, Number(value));
    }
    if (name === "dyclu_requests_total" && status) sums.failed = (sums.failed ?? 0) + Number(value);
  }
  return { at: Date.now(), sums, most, buckets };
}

// The least bound within which a share of the requests of the last minute was answered.
function within(share, now, before) {
  const count = (bound) => (now.buckets[bound] ?? 0) - (before.buckets[bound] ?? 0);
  const bounds = Object.keys(now.buckets);
  if (bounds.length === 0 || count("+Inf") <= 0) return "–";
  const bound = bounds.find((one) => count(one) >= share * count("+Inf"));
  return bound === "+Inf" ? "> 5 s" : Number(bound) < 1 ? `≤ ${number(1000 * bound)} ms` : `≤ ${number(Number(bound))} s`;
}

const bytes = (value) => (value === undefined ? "–" : `${short(value / 1e6)} MB`);
const age = (seconds) => (seconds === undefined ? "none"
  : seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min`
    : `${Math.round(seconds / 3600)} h`);

function showHealth(text) {
  const now = figuresOf(text);
  view.figures = [...view.figures.filter((one) => one.at > now.at - MINUTE - HEALTH_EVERY), now];
  const before = view.figures[0], { sums } = now;
  $("latency").textContent = within(0.99, now, before);
  $("failed").textContent = number((sums.failed ?? 0) - (before.sums.failed ?? 0));
  $("queue").textContent = number(sums.dyclu_queue_lines);
  $("journal").textContent = bytes(sums.dyclu_journal_bytes);
  // That of the oldest, where there are several tenants or partitions.
  $("snapshot").textContent = age(now.most.dyclu_snapshot_age_seconds);
  $("memory").textContent = bytes(sums.process_resident_memory_bytes);
}

// --- cluster ----------------------------------------------------------------------------------

// Seconds: from when a renewal is slow, and for how long a process that ended is shown.
const SLOW = 0.25, ENDED = 600;

async function lookAtCluster() {
  showCluster(await ask("v1/cluster"));
}

// Whether this is a cluster, and how many partitions a tenant has, if its policy cannot tell.
async function findCluster() {
  const answer = await send("v1/cluster");
  view.clustered = answer.ok;
  if (!answer.ok) return;
  const { partitions } = await answer.json();
  offerPartitions(partitions.filter((one) => one.tenant === partitions[0].tenant).length);
}

// Numbers in a few words: 0–3, 7.
function ranges(numbers) {
  const parts = [];
  for (const one of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === one - 1) last[1] = one;
    else parts.push([one, one]);
  }
  return parts.map(([low, high]) => (low === high ? `${low}` : high === low + 1 ? `${low}, ${high}` : `${low}–${high}`)).join(", ");
}

// Partitions by tenant: "shop: 0–3, 7".
function toldPartitions(partitions) {
  const by = Map.groupBy ? Map.groupBy(partitions, (one) => one.tenant) : partitions.reduce(
    (found, one) => found.set(one.tenant, [...(found.get(one.tenant) ?? []), one]), new Map());
  return [...by].map(([tenant, some]) => `${tenant}: ${ranges(some.map((one) => one.partition))}`).join("; ");
}

function showCluster(cluster) {
  const { processes, partitions } = cluster;
  const orphans = partitions.filter((one) => one.owner === null);
  // What was left of a lease, less the time since.
  const left = (one) => one.lease - cluster.age;
  const owned = (one) => partitions.filter((two) => two.owner === one.name);
  const alive = processes.filter((one) => one.lease > 0).length;
  const troubles = clusterTroubles(cluster, orphans);
  $("cluster").hidden = false;
  $("cluster-dot").className = troubles.length ? "dot bad" : "dot ok";
  const known = `${alive} process${alive === 1 ? "" : "es"}, ${many(partitions.length, "partition")}`;
  $("cluster-state").textContent = (cluster.trouble ? `As of ${age(cluster.age)} ago: ${known}. `
    : `${known}${orphans.length ? "" : ", all with an owner"}. `) + (cluster.starting ? `${many(cluster.starting, "partition")} being taken over by ${cluster.asked}. ` : "") + `Asked: ${cluster.asked}. ${toldShared(cluster.shared)}`;
  fill($("cluster-troubles"), troubles.map((one) => {
    const item = document.createElement("li");
    item.textContent = one;
    return item;
  }));
  // Processes that ended are not told for ever.
  const rows = processes.filter((one) => left(one) > -ENDED || owned(one).length).map((one) => processRow(one, left(one), owned(one)));
  if (orphans.length) rows.push(clusterRow("nobody", "", toldPartitions(orphans), true));
  fill($("processes"), rows);
}

// What partitions have learnt from each other, and how old that is.
function toldShared(shared) {
  return shared.contributions ? `${many(shared.contributions, "contribution")} of partitions to each other, read ${age(shared.age)} ago. ` : "";
}

function clusterTroubles(cluster, orphans) {
  const found = [];
  if (cluster.trouble) found.push(`${cluster.trouble}: requests are refused when the lease is over; what is shown may be old`);
  else if (cluster.database > SLOW) found.push(`the database is slow: ${number(cluster.database)} s to renew the lease`);
  if (orphans.length) found.push(`${many(orphans.length, "partition")} without an owner: ${toldPartitions(orphans)}`);
  if (cluster.shared.trouble) found.push(`what partitions have learnt was read ${age(cluster.shared.age)} ago (${cluster.shared.trouble}): each goes on with what it knows`);
  const said = [...new Set(cluster.partitions.map((one) => one.trouble).filter(Boolean))];
  for (const why of said) {
    found.push(`${toldPartitions(cluster.partitions.filter((one) => one.trouble === why))}: ${why}`);
  }
  for (const one of cluster.processes) {
    if (one.refused && one.name !== cluster.asked) found.push(`${one.name} cannot open ${many(one.refused, "partition")}; ask it for the reason: ${one.url}`);
  }
  return found;
}

function processRow(one, left, owned) {
  const lease = one.leaving ? "leaving" : left > 0 ? `${left.toFixed(1)} s left` : `over for ${age(-left)}`;
  return clusterRow(`${one.name}`, lease, owned.length ? `${owned.length} (${toldPartitions(owned)})` : "none", left <= 0 && owned.length > 0, one.url);
}

function clusterRow(name, lease, owned, bad, url) {
  const row = document.createElement("tr");
  if (bad) row.className = "bad";
  const first = cell(row, name);
  if (url) {
    const small = document.createElement("small");
    small.textContent = url;
    first.append(small);
  }
  cell(row, lease).className = "lease";
  cell(row, owned).className = "owned";
  return row;
}

// Draw only what differs, so that a selection of the text stays.
function fill(parent, nodes) {
  const said = nodes.map((one) => one.textContent).join("\n");
  if (parent.dataset.said === said) return;
  parent.dataset.said = said;
  parent.replaceChildren(...nodes);
}

// --- numbers ----------------------------------------------------------------------------------

const number = (value, digits = 3) =>
  value === null || value === undefined || Number.isNaN(value) ? "–"
    : Number.isInteger(value) ? value.toLocaleString("en")
    : value.toLocaleString("en", { maximumSignificantDigits: digits });
const short = (value) => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
// Never rounded up, so that 99.99 % is not shown as 100 %.
const percent = (share) => (share > 0.999 ? "> 99.9 %" : `${number(100 * share)} %`);
const many = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
const DAY = 86400;
// The time of day; of what is older than a day, the date.
const clock = (seconds) => {
  const at = new Date(seconds * 1000);
  return Date.now() / 1000 - seconds < DAY
    ? at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" })
    : at.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
};

const moment = (seconds) => new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

function showPolicy(policy) {
  view.segment = policy.policy.startsWith("Atlas") ? "model" : "segment";
  view.tenant = policy.tenant;
  $("tenant").textContent = policy.tenant === "default" ? "" : policy.tenant;
  $("policy").textContent = `${policy.policy}${policy.mode === "shadow" ? ", shadow mode" : ""}` +
    `${policy.epsilon ? `, ${number(100 * policy.epsilon)} % at random` : ""}`;
  $("dot").className = policy.healthy ? "dot ok" : "dot bad";
  $("state").textContent = policy.rebuilding ? "rebuilding without an erased user"
    : policy.healthy ? "well" : "cannot write";
  $("users").textContent = number(policy.users);
  $("pending").textContent = number(policy.pending);
  $("changes-total").textContent = number(policy.changes);
  $("agreement-tile").hidden = policy.agreement === null;
  $("agreement").textContent = policy.agreement === null ? "" : `${number(100 * policy.agreement)} %`;
  showWarnings(policy.warnings);
}

function showWarnings(warnings) {
  $("warnings").hidden = warnings.length === 0;
  const said = warnings.join("\n");
  // Drawn only if they differ, so that a selection of the text stays.
  if ($("warnings").dataset.said === said) return;
  $("warnings").dataset.said = said;
  $("warning-list").replaceChildren(...warnings.map((one) => {
    const item = document.createElement("li");
    item.textContent = one;
    return item;
  }));
}

// --- charts -----------------------------------------------------------------------------------

function draw(parent, name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// Periods of equal length over the whole span, empty ones too; each joins several buckets.
function periods() {
  const { now, seconds, minutes } = view.activity;
  const [found, unit, length, join] = view.span === "seconds"
    ? [seconds, 1, 600, 5] : [minutes, 60, 1440, 10];
  const first = Math.floor(now / unit) - length + 1;
  const rows = Array.from({ length: length / join }, (_, i) => ({
    at: (first + i * join) * unit, decisions: 0, rewards: 0, reward_sum: 0, changes: 0,
  }));
  for (const bucket of found) {
    const row = rows[Math.floor((Math.round(bucket.at / unit) - first) / join)];
    if (!row) continue;
    for (const name of ["decisions", "rewards", "reward_sum", "changes"]) row[name] += bucket[name];
  }
  return { rows, seconds: unit * join };
}

function showActivity() {
  const { rows, seconds } = periods();
  const recent = view.activity.seconds.filter((one) => one.at > view.activity.now - 12 && one.at <= view.activity.now - 1);
  const rate = (name) => recent.reduce((sum, one) => sum + one[name], 0) / 10;
  $("decisions-rate").textContent = number(rate("decisions"));
  $("rewards-rate").textContent = number(rate("rewards"));
  const minute = view.activity.seconds.filter((one) => one.at > view.activity.now - 60);
  const rewards = minute.reduce((sum, one) => sum + one.rewards, 0);
  $("mean-reward").textContent = rewards
    ? number(minute.reduce((sum, one) => sum + one.reward_sum, 0) / rewards) : "–";

  const past = rows.slice(0, -1);
  const mean = (row) => (row.rewards ? row.reward_sum / row.rewards : null);
  chart("traffic", past, [
    { name: "decisions", kind: "decisions", value: (row) => row.decisions / seconds },
    { name: "rewards", kind: "rewards", value: (row) => row.rewards / seconds },
  ], { zero: true });
  chart("reward", past, [{ name: "mean reward", kind: "decisions", value: mean }], {});
  chart("alarms", rows, [{ name: "changes", kind: "bar", value: (row) => row.changes }], { zero: true, whole: true });
}

// The least of 1, 2, 5 times a power of ten that cuts a range into at most four.
function step(range) {
  const power = 10 ** Math.floor(Math.log10(range / 4));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => range / one <= 4);
}

function chart(id, rows, curves, { zero, whole }) {
  const svg = $(id);
  svg.replaceChildren();
  const all = curves.flatMap((curve) => rows.map(curve.value)).filter((value) => value !== null);
  let low = Math.min(...all, zero ? 0 : Infinity), high = Math.max(...all, zero ? 1 : -Infinity);
  if (all.length === 0 && !zero) [low, high] = [0, 1];
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  // There is no half of a change.
  const tick = Math.max(step(high - low), whole ? 1 : 0);
  low = Math.floor(low / tick + 1e-9) * tick;
  high = Math.ceil(high / tick - 1e-9) * tick;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  const x = (i) => LEFT + (WIDTH - LEFT - 8) * (i + 0.5) / rows.length;
  for (let value = low; value <= high + tick / 2; value += tick) {
    draw(svg, "line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(value), y2: y(value) });
    draw(svg, "text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(Math.abs(value) < tick / 2 ? 0 : value));
  }
  for (const part of [0, 0.5, 1]) {
    const i = Math.round(part * (rows.length - 1));
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    const time = new Date(rows[i].at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    draw(svg, "text", { x: part === 1 ? WIDTH - 8 : part === 0 ? LEFT : x(i), y: HEIGHT - 5, "text-anchor": anchor }, time);
  }
  for (const curve of curves) {
    if (curve.kind === "bar") bars(svg, rows, curve, x, y);
    else line(svg, rows, curve, x, y);
  }
  readable(svg, $(`${id}-read`), rows, curves);
}

function line(svg, rows, curve, x, y) {
  let path = "", pen = "M";
  rows.forEach((row, i) => {
    const value = curve.value(row);
    if (value === null) { pen = "M"; return; }
    path += `${pen}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    // A lone value between gaps would draw nothing.
    if (pen === "M") path += "h0.01";
    pen = "L";
  });
  draw(svg, "path", { class: `curve ${curve.kind}`, d: path });
}

function bars(svg, rows, curve, x, y) {
  const width = Math.max(1.5, (WIDTH - LEFT - 8) / rows.length - 1);
  rows.forEach((row, i) => {
    const value = curve.value(row);
    if (value) draw(svg, "rect", { class: "bar", x: x(i) - width / 2, y: y(value), width, height: y(0) - y(value) });
  });
}

function readable(svg, output, rows, curves) {
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - 8);
    const row = rows[Math.min(rows.length - 1, Math.max(0, Math.floor(at * rows.length)))];
    output.textContent = `${clock(row.at)}: ` + curves.map((one) => `${number(one.value(row))} ${curves.length > 1 ? one.name : ""}`.trim()).join(", ");
  };
  svg.onpointerleave = () => { output.textContent = ""; };
}

// --- models -----------------------------------------------------------------------------------

// What a model likes more and less than the average of models, in a few words.
const list = (weights) => weights.map((one) => plainly(one.feature ?? one)).join(", ");
// "price" alone does not say which prices are liked; a category, a tag or a bucket says it.
const plainly = (feature) => (view.named
  ? feature.split(" & ").map((part) => (/[=#]|\(missing\)$|^direction /.test(part) ? part : `high ${part}`)).join(" & ")
  : feature);
function words({ likes = [], dislikes = [] }) {
  const parts = [likes.length ? `likes ${list(likes)}` : "", dislikes.length ? `dislikes ${list(dislikes)}` : ""];
  return parts.filter(Boolean).join("; ");
}
// The same in the narrow columns of a table: what it likes most, or else what it dislikes most.
function shortly(id) {
  const { likes = [], dislikes = [] } = (view.named && view.models.get(id)) || {};
  return likes.length ? `likes ${list(likes.slice(0, 1))}` : dislikes.length ? `dislikes ${list(dislikes.slice(0, 1))}` : "";
}

// Users on a model for certain, and those who are likeliest on it.
const crowd = (one) => Math.max(one.users, one.likely ?? 0);
const toldUsers = (one) => number(one.users) + (crowd(one) > one.users ? ` (${number(crowd(one))} likely)` : "");

function showTastes(map) {
  view.models = new Map(map.models.map((one) => [one.id, one]));
  view.named = map.named ?? false;
  // One model alone is the average.
  const told = map.models.length > 1 ? [...map.models].sort((a, b) => crowd(b) - crowd(a)) : [];
  const common = words(map);
  $("tastes").hidden = told.length === 0 && !common;
  $("taste-table").hidden = $("taste-note").hidden = told.length === 0;
  $("taste-common").textContent = common ? `On average: ${common}.` : "";
  $("taste-note").textContent = "Beyond the average: what a model weighs more, or less, than the average of the models, as far as it is sure." +
    (view.named ? "" : " Features have no names: x0 is the first number of a vector.");
  const unclear = (one) => (one.users ? "not told apart from the average yet" : "nobody follows it for certain yet");
  const rows = told.map((one) => [one.id, toldUsers(one), one.mean_reward ?? null, list(one.likes ?? []), list(one.dislikes ?? []), words(one) ? "" : unclear(one)]);
  // Drawn only if they differ, so that a selection of the text stays.
  const said = JSON.stringify(rows);
  if ($("tastes").dataset.said === said) return;
  $("tastes").dataset.said = said;
  $("taste-rows").replaceChildren(...rows.map(([id, users, reward, likes, dislikes, doubt]) => {
    const row = document.createElement("tr");
    cell(row, id).className = "model-id";
    cell(row, users).className = "count users";
    cell(row, number(reward)).className = "count reward";
    cell(row, likes || doubt || "–").className = doubt ? "doubt" : "likes";
    cell(row, dislikes || "–").className = "dislikes";
    return row;
  }));
  // Rows of changes name the models in the same words.
  if (view.named) drawChanges(0);
}

function showMap(map, policy) {
  const svg = $("map"), models = map.models;
  showTastes(map);
  svg.replaceChildren();
  $("map-note").textContent = models.length === 0
    ? (policy.rewards === 0 ? "Nothing has been learnt yet."
      : view.segment === "model" ? "There is no model yet: one begins when several rewards of a user, or of users who are alike, are known." : "This policy keeps no groups of users.")
    : many(map.total, "model") +
      `${map.users_elsewhere ? `, and ${many(map.users_elsewhere, "user")} on none of those shown for certain` : ""}. Labels are ids; larger circles have more users, certain or likely; similar models are close together.`;
  if (models.length === 0) return;
  const most = Math.max(...models.map(crowd), 1);
  const radius = (one) => 6 + 34 * Math.sqrt(crowd(one) / most);
  // One scale for both directions: distances on the map are those of the estimates.
  const ends = (name) => [Math.min(...models.map((one) => one[name])), Math.max(...models.map((one) => one[name]))];
  const [left, right] = ends("x"), [low, high] = ends("y");
  const scale = Math.min((600 - 96) / Math.max(right - left, 1e-12), (520 - 96) / Math.max(high - low, 1e-12));
  const x = (one) => 300 + scale * (one.x - (left + right) / 2), y = (one) => 260 + scale * (one.y - (low + high) / 2);
  for (const one of models) {
    const circle = draw(svg, "circle", {
      class: one.growth > 0 ? "model growing" : "model", cx: x(one), cy: y(one), r: radius(one), tabindex: 0,
    });
    const told = `model ${one.id}: ${toldUsers(one)} ${one.users === 1 && crowd(one) === 1 ? "user" : "users"}, ${many(one.observations, "observation")}` +
      `${one.growth ? `, ${one.growth > 0 ? "+" : "−"}${Math.abs(one.growth)} within a minute` : ""}`;
    draw(circle, "title", {}, [told, words(one)].filter(Boolean).join(": "));
    circle.onpointerenter = circle.onfocus = () => { $("map-read").textContent = told; };
    circle.onpointerleave = circle.onblur = () => { $("map-read").textContent = ""; };
  }
  // The largest first: a label that would cover another one is left out.
  const taken = [];
  for (const one of [...models].sort((a, b) => crowd(b) - crowd(a))) {
    if (radius(one) < 12) continue;
    const label = draw(svg, "g", {});
    draw(label, "text", { class: "label id", x: x(one), y: y(one) + (radius(one) < 20 ? 4 : -1) }, one.id);
    if (radius(one) >= 20) draw(label, "text", { class: "label count", x: x(one), y: y(one) + 12 }, short(crowd(one)));
    const box = label.getBBox();
    if (taken.some((other) => overlap(box, other))) label.remove();
    else taken.push(box);
  }
}

const overlap = (one, other) => one.x < other.x + other.width && other.x < one.x + one.width &&
  one.y < other.y + other.height && other.y < one.y + one.height;

// --- lift -------------------------------------------------------------------------------------

const signed = (value) => (value === null ? "–" : `${value > 0 ? "+" : ""}${number(value)}`);
const between = (one, without = "too few users") => (one.low === null ? without : `${signed(one.low)} to ${signed(one.high)}`);
const perDecision = (group) => `${number(group.mean)} (${many(group.decisions, "decision")})`;
const LIFT_DAYS = 14;

function liftRow(name, one, without) {
  const row = document.createElement("tr");
  cell(row, name);
  for (const text of [perDecision(one.treated), perDecision(one.control), signed(one.lift), between(one, without)]) cell(row, text);
  return row;
}

// Of the whole tenant. While a partition cannot be asked, what was known stays, and is said to be old.
async function lookAtLift() {
  try {
    showLift(await ask("v1/lift"));
  } catch (error) {
    if (!(error instanceof Refused && error.status === 503 && view.partitions > 1)) throw error;
    $("lift-note").textContent = `Not of now: ${error.message}`;
  }
}

function showLift(found) {
  $("lift").hidden = found.share === 0 && found.days.length === 0;
  $("lift-verdict").textContent = found.verdict;
  const days = found.days.slice(-LIFT_DAYS).reverse();
  // Intervals of former days are those of partitions, which do not add up.
  const former = (i) => (i > 0 && view.partitions > 1 ? "–" : undefined);
  $("lift-days").replaceChildren(liftRow("all", found), ...days.map((one, i) => liftRow(one.day, one, former(i))));
  const since = found.since === null ? "" : ` Decisions since ${moment(found.since)} are compared.`;
  $("lift-note").textContent = `Reward per decision. ${percent(found.share)} of the users are served by the ` +
    `baseline (${found.baseline}).${since} The interval holds the truth on all days at once with 95 %, so you may look every day.`;
}

// --- people -----------------------------------------------------------------------------------

function cell(row, text) {
  const node = document.createElement("td");
  node.textContent = text;
  row.append(node);
  return node;
}

function showChanges({ epoch, next, changes }) {
  // A new epoch: the changes shown may not exist any more.
  if (view.since !== null && epoch !== view.epoch) { view.since = null; view.changes = []; return; }
  const first = view.since === null;
  view.epoch = epoch;
  view.since = next;
  if (changes.length === 0 && !first) return;
  view.changes = [...changes.reverse(), ...view.changes].slice(0, ROWS);
  drawChanges(first ? 0 : changes.length);
}

function drawChanges(fresh) {
  $("no-changes").hidden = view.changes.length > 0;
  $("changes").replaceChildren(...view.changes.map((one, i) => changeRow(one, i < fresh)));
}

function changeRow(one, fresh) {
  const row = document.createElement("tr");
  row.className = fresh ? "new" : "";
  row.dataset.user = one.user;
  cell(row, clock(one.at));
  const button = document.createElement("button");
  button.textContent = one.user;
  button.onclick = () => choose(one.user);
  cell(row, "").append(button);
  for (const id of [one.before, one.after]) {
    const told = cell(row, id ?? "–");
    if (!shortly(id)) continue;
    told.title = words(view.models.get(id));
    const small = document.createElement("small");
    small.textContent = shortly(id);
    told.append(small);
  }
  cell(row, one.certainty === null ? "–" : percent(one.certainty));
  if (fresh) setTimeout(() => { row.className = ""; }, 3000);
  return row;
}

async function choose(user) {
  view.user = user;
  $("who").value = user;
  await showUser(user);
}

async function showUser(user) {
  try {
    const found = await ask(`v1/users/${encodeURIComponent(user)}`);
    if (view.user === user) drawUser(found);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    view.user = null;
    $("user").hidden = true;
    $("user-note").hidden = false;
    $("user-note").textContent = `${user}: ${error.message}`;
  }
}

function drawUser(user) {
  $("user").hidden = false;
  $("user-note").hidden = true;
  $("user-name").textContent = user.user;
  const facts = {
    decisions: number(user.decisions), rewards: number(user.rewards), "mean reward": number(user.mean_reward),
    "last seen": user.last_seen ? clock(user.last_seen) : "–", changes: number(user.changes.length),
  };
  if (user.neighbours_total) facts.neighbours = `${number(user.neighbours_total)} segments`;
  for (const one of user.belief.slice(0, 3)) {
    facts[one.model === null ? "follows a new taste" : `follows model ${one.model}`] = percent(one.probability);
  }
  $("user-facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
    const node = document.createElement("div");
    for (const [kind, text] of [["dt", name], ["dd", value]]) {
      const part = document.createElement(kind);
      part.textContent = text;
      node.append(part);
    }
    return node;
  }));
  drawTimeline(user.segments);
}

const which = (one) => named(one) + (words(one) ? ` (${words(one)})` : "");
const named = (one) => (one.id === null ? `no ${view.segment} yet` : `${view.segment} ${one.id}`);

function drawTimeline(segments) {
  const svg = $("timeline");
  svg.replaceChildren();
  svg.toggleAttribute("hidden", segments.length === 0);
  if (segments.length === 0) { $("user-segments").replaceChildren(); return; }
  const low = segments[0].opened;
  // The user may be in another partition than the one whose rewards are known: then at least theirs.
  const last = segments.at(-1);
  const high = Math.max(low + 1, view.partitions > 1 ? last.opened + last.observations : view.version);
  const x = (at) => 10 + 580 * (at - low) / (high - low);
  segments.forEach((one) => {
    const end = one.closed ?? high;
    const bar = draw(svg, "rect", {
      class: one.closed === null ? "stretch open" : "stretch", x: x(one.opened) + 1, y: 30,
      width: Math.max(2, x(end) - x(one.opened) - 2), height: 44, rx: 4,
    });
    draw(bar, "title", {}, `${named(one)}: ${many(one.observations, "observation")}`);
    if (x(end) - x(one.opened) > 40) draw(svg, "text", { class: "label", x: (x(one.opened) + x(end)) / 2, y: 57 }, one.id ?? "–");
  });
  draw(svg, "text", { x: 10, y: 20 }, `${view.segment}s between changes, by rewards of all users`);
  draw(svg, "text", { x: 10, y: 96 }, number(low));
  draw(svg, "text", { x: 590, y: 96, "text-anchor": "end" }, "now");
  $("user-segments").replaceChildren(...segments.slice(-12).map((one) => {
    const item = document.createElement("li");
    item.textContent = `${named(one)}: ${many(one.observations, "observation")}, ` +
      (one.closed === null ? `since reward ${number(one.opened)}` : `from reward ${number(one.opened)} to ${number(one.closed)}`);
    if (view.named && words(one)) {
      const small = document.createElement("small");
      small.textContent = words(one);
      item.append(small);
    }
    return item;
  }));
  const [before, after] = segments.slice(-2);
  $("user-moved").textContent = view.named && after && (words(before) || words(after))
    ? `Moved from ${which(before)} to ${which(after)}.` : "";
}

// --- beginning --------------------------------------------------------------------------------

for (const span of ["seconds", "minutes"]) {
  $(`span-${span}`).onclick = () => {
    view.span = span;
    for (const other of ["seconds", "minutes"]) $(`span-${other}`).setAttribute("aria-pressed", String(other === span));
    if (view.activity) showActivity();
  };
}
$("partition").onchange = () => choosePartition(Number($("partition").value));
$("lookup").onsubmit = (event) => { event.preventDefault(); if ($("who").value) choose($("who").value.trim()); };
$("login").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("dyclu-key", $("key").value.trim());
  refresh().catch(trouble);
};
look();
