// Submits a job with a payload, lists it, claims and settles it, with a client that openapi-typescript generated.
import createClient from "openapi-fetch";
import type { paths } from "./api.d.ts";

const [baseUrl, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function need<Value>(value: Value | undefined, error: unknown): Value {
  if (value === undefined) throw new Error(JSON.stringify(error));
  return value;
}

const body = { job_type: "charge", queue: "ts", payload: { order: { id: 7 }, tags: ["a"] } };
const submitted = await client.POST("/api/v1/jobs", {
  body,
  params: { header: { "Idempotency-Key": "ts-1" } },
});
const { job } = need(submitted.data, submitted.error);

const listed = await client.GET("/api/v1/jobs", { params: { query: { queue: "ts", fields: ["id", "status"] } } });
const ids = need(listed.data, listed.error).items.map((item) => item.id);

const claimed = await client.POST("/api/v1/worker/claim", {
  body: { worker: "ts", job_types: ["charge"], limit: 1, lease_seconds: 30, wait_seconds: 0 },
});
const [held] = need(claimed.data, claimed.error).jobs;
const settled = await client.POST("/api/v1/worker/settle", {
  body: { job_id: held.id, token: held.token, outcome: "succeed", result: { echoed: held.payload } },
});
need(settled.data, settled.error);

const finished = await client.GET("/api/v1/jobs/{job_id}", {
  params: { path: { job_id: job.id }, query: { wait: 5 } },
});
const { status, result, created_at } = need(finished.data, finished.error);
const created: string = created_at;
console.log(JSON.stringify({ ids, id: job.id, status, result, created }));
