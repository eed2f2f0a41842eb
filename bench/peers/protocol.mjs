// The Node side of the conversation with the harness (see protocol.py): JSON lines, and the handlers' counts in files.
// It is copied into a peer's home before it runs, because Node looks for packages beside the script.
import fs from 'node:fs';
import readline from 'node:readline';

export const URL = process.env.BENCH_URL;
export const PART = process.env.BENCH_PART ?? 'drain';
export const VARIANT = process.env.BENCH_VARIANT ?? '';
const RUN = process.env.BENCH_RUN;
const BATCH = 1000;
const FLUSH_MS = 10;

// CLOCK_MONOTONIC in seconds, the same in every process of the machine.
export const now = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (seconds) => new Promise((wake) => setTimeout(wake, Math.max(0, seconds * 1000)));

let calls = 0;
let first = 0;
let last = 0;
let flushed = 0;
let delays = [];

export function handled() {
  last = now();
  if (calls++ === 0) first = last;
}

export function pickedUp(sent) {
  delays.push(`${sent} ${now() - sent}\n`);
}

function flush() {
  if (calls !== flushed) {
    flushed = calls;
    const bytes = Buffer.alloc(24);
    bytes.writeBigInt64LE(BigInt(calls), 0);
    bytes.writeDoubleLE(first, 8);
    bytes.writeDoubleLE(last, 16);
    fs.writeFileSync(`${RUN}/.count.${process.pid}`, bytes);
    fs.renameSync(`${RUN}/.count.${process.pid}`, `${RUN}/count.${process.pid}`);
  }
  if (delays.length) {
    fs.appendFileSync(`${RUN}/delays.${process.pid}`, delays.join(''));
    delays = [];
  }
}

async function enqueue(peer, { seconds, at_most, callers }) {
  await peer.one(0);
  const started = now();
  const share = Math.max(1, Math.floor(at_most / callers));
  const caller = async (number) => {
    let count = 0;
    while (count < share && now() - started < seconds) {
      await peer.one(number);
      count++;
    }
    return count;
  };
  const counts = await Promise.all(Array.from({ length: callers }, (_, number) => caller(number)));
  return { jobs: counts.reduce((sum, count) => sum + count, 0), seconds: now() - started };
}

async function fill(peer, { jobs }) {
  const started = now();
  for (let done = 0; done < jobs; done += BATCH) await peer.many(Math.min(BATCH, jobs - done));
  return { jobs, seconds: now() - started, bulk: true };
}

async function stamp(peer, { jobs, pause }) {
  const since = now();
  let due = since;
  for (let sent = 0; sent < jobs; sent++) {
    due += pause;
    await sleep(due - now());
    await peer.stamp(now());
  }
  return { since };
}

const ACTS = {
  reset: async (peer) => { await peer.reset(); return {}; },
  enqueue,
  fill,
  'fill stepped': async () => ({ jobs: 0 }), // none of them records steps
  pickup: stamp,
  left: async (peer) => ({ left: await peer.left() }),
};

export async function main(peer) {
  if (process.argv[2] === 'work') {
    setInterval(flush, FLUSH_MS);
    await peer.work();
    return;
  }
  const say = (answer) => fs.writeSync(1, JSON.stringify(answer) + '\n');
  await peer.open();
  say({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const ask = JSON.parse(line);
    try {
      say(ACTS[ask.do] ? await ACTS[ask.do](peer, ask) : { error: `cannot ${ask.do}` });
    } catch (error) {
      say({ error: String(error) });
    }
  }
  process.exit(0);
}
