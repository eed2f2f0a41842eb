// A worker over HTTP in Node 18 or newer, without packages.
// node http_worker.mjs http://127.0.0.1:8400 [TOKEN]

const [base, token] = process.argv.slice(2);
const name = "plain-node";
const lease = 30;

async function post(action, body) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const url = `${base}/api/v1/worker/${action}`;
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  const data = await response.json();
  if (!response.ok) throw new Error(`${data.code}: ${data.detail}`);
  return data;
}

const handlers = {
  "greet.node": async (payload) => ({ greeting: `Hello, ${payload.name}!` }),
};

async function work(job) {
  const held = { [job.id]: job.token };
  const heartbeat = setInterval(
    () => post("heartbeat", { worker: name, held, lease_seconds: lease }).catch(console.error),
    (lease * 1000) / 3,
  );
  let outcome;
  try {
    outcome = { outcome: "succeed", result: await handlers[job.job_type](job.payload) };
  } catch (error) {
    outcome = { outcome: "fail", code: error.name, message: error.message };
  } finally {
    clearInterval(heartbeat);
  }
  const settled = await post("settle", { job_id: job.id, token: job.token, ...outcome });
  console.log(job.id, settled.status);
}

for (;;) {
  const claim = { worker: name, job_types: Object.keys(handlers), lease_seconds: lease, wait_seconds: 20 };
  for (const job of (await post("claim", claim)).jobs) await work(job);
}
