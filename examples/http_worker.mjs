// A worker over HTTP in Node 18 or newer, without packages.
// node http_worker.mjs http://127.0.0.1:8400 [TOKEN]

const [base, token] = process.argv.slice(2);
const name = "plain-node";
const lease = 30;

async function ask(act, body) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(`${base}/api/v1/worker/${act}`, { method: "POST", headers, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(`${told.code}: ${told.detail}`);
  return told;
}

const handlers = {
  "greet.node": async (payload) => ({ greeting: `Hello, ${payload.name}!` }),
};

async function work(job) {
  const held = { [job.id]: job.token };
  const beat = setInterval(
    () => ask("heartbeat", { worker: name, held, lease_seconds: lease }).catch(console.error),
    (lease * 1000) / 3,
  );
  let end;
  try {
    end = { outcome: "succeed", result: await handlers[job.job_type](job.payload) };
  } catch (error) {
    end = { outcome: "fail", code: error.name, message: error.message };
  } finally {
    clearInterval(beat);
  }
  const told = await ask("settle", { job_id: job.id, token: job.token, ...end });
  console.log(job.id, told.status);
}

for (;;) {
  const claim = { worker: name, job_types: Object.keys(handlers), lease_seconds: lease, wait_seconds: 20 };
  for (const job of (await ask("claim", claim)).jobs) await work(job);
}
