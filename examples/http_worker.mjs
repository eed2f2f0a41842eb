// A worker over HTTP in Node 18 or newer, without packages: steps, a wait, children, progress, logs, drain, cancel.
// node http_worker.mjs http://127.0.0.1:8400 [TOKEN]

import { createHash } from "node:crypto";
import { hostname } from "node:os";

const [base, token] = process.argv.slice(2);
const name = "plain-node";
const lease = Number(process.env.LEASE_SECONDS ?? 30);
const slots = 4;

async function post(action, body) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const text = JSON.stringify(body);
  for (let pause = 500;; pause = Math.min(pause * 2, 15_000)) {
    let answer;
    try {
      const request = { method: "POST", headers, body: text, signal: AbortSignal.timeout(60_000) };
      const response = await fetch(`${base}/api/v1/worker/${action}`, request);
      answer = await response.json();
      if (response.ok) return answer;
    } catch (error) {
      answer = { code: "UNREACHABLE", detail: error.message, retryable: true };
    }
    if (!answer.retryable) throw Object.assign(new Error(answer.detail), { code: answer.code, retryable: false });
    await new Promise((done) => setTimeout(done, pause)); // every call may be repeated
  }
}

class Suspend extends Error {
  constructor(wait) {
    super(`waiting for ${wait.name}`);
    this.wait = wait;
  }
}
class CancelRequested extends Error {}

/** What a handler can do with its job. After a wait, a retry or a crash the handler starts again from its first line. */
class Context {
  constructor(job, execution) {
    this.job = job;
    this.execution = execution; // shared with the heartbeats: whether to go on
    this.lease = { job_id: job.id, token: job.token };
  }

  check() {
    if (this.execution.lost) throw new Error("the lease is lost");
    if (this.execution.cancel !== undefined) throw new CancelRequested(this.execution.cancel ?? "cancelled");
  }

  /** Calls fn once and records its result; later executions get the recorded result. */
  async step(stepName, fn, ...args) {
    this.check();
    this.recorded ??= new Map((await post("steps", this.lease)).items.map((step) => [step.name, step]));
    const digest = createHash("sha256").update(JSON.stringify(args)).digest("hex");
    const known = this.recorded.get(stepName);
    if (known && known.digest !== digest) throw new Error(`step ${stepName} was recorded with other arguments`);
    if (known) return known.result;
    const start = performance.now();
    const result = await fn(...args);
    const duration_seconds = (performance.now() - start) / 1000;
    return (await post("steps/record", { ...this.lease, name: stepName, digest, result, duration_seconds })).result;
  }

  /** The data of a signal, or null after the timeout. The job leaves the worker until then. */
  async waitFor(signalName, timeout_seconds = null) {
    this.check();
    const signal = (await post("signals", this.lease)).items.find((each) => each.name === signalName);
    if (!signal) throw new Suspend({ name: signalName, timeout_seconds });
    return signal.timed_out ? null : signal.data;
  }

  /** The results of children, in order. The job leaves the worker until all have ended or one has failed. */
  async gather(children) {
    this.check();
    const states = (await post("children", { ...this.lease, children })).items;
    const failed = states.find((child) => child.ended && !child.succeeded);
    if (failed) throw new Error(`child ${failed.name} ended as ${failed.status}: ${failed.error_message}`);
    const unfinished = states.filter((child) => !child.ended).map((child) => child.id);
    if (unfinished.length) throw new Suspend({ name: "gather", children: unfinished });
    return states.map((child) => child.result);
  }

  progress(share, message = "") {
    this.check();
    return post("progress", { ...this.lease, share, message });
  }

  log(message, level = "INFO") {
    return post("logs", { ...this.lease, lines: [{ level, message }] });
  }
}

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const handlers = {
  "greet.node": async (_, payload) => ({ greeting: `Hello, ${payload.name}!` }),

  // Packs an order: reserves it in a step, waits for its payment, packs each item in a child, reports progress.
  "order.node": async (ctx, { order, items }) => {
    const reserved = await ctx.step("reserve", async (id) => ({ id, shelf: Math.ceil(Math.random() * 100) }), order);
    await ctx.log(`order ${order} is reserved on shelf ${reserved.shelf}`);
    const payment = await ctx.waitFor("paid", 3600);
    if (payment === null) throw Object.assign(new Error("not paid in time"), { code: "NOT_PAID", retryable: false });
    await ctx.progress(0.5, "paid");
    const packed = await ctx.gather(
      items.map((item) => ({ name: `pack ${item}`, job_type: "pack.node", payload: { item } })),
    );
    await ctx.progress(1, "packed");
    return { shelf: reserved.shelf, amount: payment.amount, packed };
  },

  "pack.node": async (_, { item }) => `${item} in a box`,

  // A long handler looks at ctx.check() often: it throws when somebody has cancelled the job.
  "count.node": async (ctx, { to }) => {
    for (let number = 0; number < to; number += 1) {
      await sleep(0.1);
      await ctx.progress(number / to, `${number} of ${to}`);
    }
    return to;
  },
};

const held = new Map(); // job id -> {token, execution}
let leaving = false;

const failed = ({ name, code = name, message = "", retryable = null }) => ({
  outcome: "fail",
  code,
  message: message.slice(0, 2000),
  retryable,
});

async function work(job) {
  const execution = { lost: false, cancel: undefined };
  held.set(job.id, { token: job.token, execution });
  let outcome;
  try {
    outcome = { outcome: "succeed", result: await handlers[job.job_type](new Context(job, execution), job.payload) };
  } catch (error) {
    if (error instanceof Suspend) outcome = { outcome: "wait", wait: error.wait };
    else if (error instanceof CancelRequested) outcome = { outcome: "cancel", reason: error.message };
    else outcome = failed(error);
  }
  const settle = (end) => post("settle", { job_id: job.id, token: job.token, ...end });
  try {
    const settled = await settle(outcome).catch((error) => settle(failed(error))); // the result may be too large
    console.log(job.id, settled.status);
  } catch (error) {
    console.error(job.id, `${error.code}: ${error.message}`); // the lease is lost: another worker has the job
  } finally {
    held.delete(job.id);
  }
}

async function heartbeats() {
  for (;;) {
    await sleep(lease / 3);
    const tokens = Object.fromEntries([...held].map(([id, { token }]) => [id, token]));
    const answer = await post("heartbeat", { worker: name, held: tokens, lease_seconds: lease });
    for (const id of answer.lost) if (held.has(id)) held.get(id).execution.lost = true;
    for (const [id, reason] of Object.entries(answer.cancels)) {
      if (held.has(id)) held.get(id).execution.cancel = reason;
    }
    leaving ||= answer.command !== null;
  }
}

process.on("SIGTERM", () => (leaving = true));
heartbeats().catch((error) => {
  console.error(error);
  process.exit(1); // without heartbeats the leases end, and the jobs are claimed again
});
const who = { worker: name, host: hostname(), pid: process.pid, slots, lease_seconds: lease };
while (!leaving) {
  if (held.size >= slots) {
    await sleep(0.05);
    continue;
  }
  const limits = { limit: slots - held.size, wait_seconds: held.size ? 1 : 10 };
  const claimed = await post("claim", { ...who, ...limits, job_types: Object.keys(handlers) });
  for (const job of claimed.jobs) work(job);
  leaving ||= claimed.command !== null;
}
while (held.size) await sleep(0.05); // drain: finish what it holds
await post("deregister", { worker: name });
console.log("drained");
process.exit(0);
