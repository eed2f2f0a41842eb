// The server's event stream: every change of a job's status as it is committed, and the progress of running jobs. Read with fetch instead of EventSource,
// which cannot send the session's key and hides the response status 401. Reconnects with the id of the last event; disconnected while the
// page is hidden.

/** @import { Progress, StreamEvent } from "../types.d.ts" */

import { goToSignIn } from "./api.js";
import { byId } from "./dom.js";
import { keyHeaders } from "./session.js";
import { urlFor } from "./urls.js";
import { t } from "./words.js";

const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 10_000;
// The server sends a heartbeat every 15 s. A connection that is silent for longer than this is dead.
const SILENCE_MS = 45_000;

/** @type {Set<(event: StreamEvent) => void>} */
const eventListeners = new Set();
/** @type {Set<() => void>} */
const connectListeners = new Set();
/** @type {Set<(jobId: string, progress: Progress) => void>} */
const progressListeners = new Set();
let query = "";
/** @type {string | null} */
let lastEventId = null;
/** @type {AbortController | null} */
let connection = null;

/**
 * Call `onEvent` for each event, `onProgress` when a running job reports progress, and `onConnect` after each connect.
 * The first connect counts too: events between the page's first load and the connect are not delivered.
 * @param {(event: StreamEvent) => void} onEvent
 * @param {() => void} onConnect
 * @param {Record<string, string>} [filter]
 * @param {(jobId: string, progress: Progress) => void} [onProgress]
 */
export function followEvents(onEvent, onConnect, filter = {}, onProgress) {
  eventListeners.add(onEvent);
  connectListeners.add(onConnect);
  if (onProgress) progressListeners.add(onProgress);
  query = new URLSearchParams({ ...filter, progress: String(progressListeners.size > 0) }).toString();
  if (!connection) run();
}

async function run() {
  let wait = FIRST_WAIT_MS;
  for (;;) {
    if (document.hidden) await becomesVisible();
    connection = new AbortController();
    try {
      const headers = await keyHeaders();
      if (lastEventId) headers["Last-Event-ID"] = lastEventId;
      const url = urlFor(`api/v1/events/stream?${query}`);
      const response = await fetch(url, { headers, signal: connection.signal });
      if (response.status === 401) return goToSignIn();
      if (response.status === 422) lastEventId = null; // a database with fewer events, such as a restored one
      if (!response.ok || !response.body) throw new Error(String(response.status));
      showState("live");
      for (const onConnect of connectListeners) onConnect();
      wait = FIRST_WAIT_MS;
      await read(response.body.getReader(), connection);
    } catch {
      if (document.hidden) continue;
      showState("lost");
    }
    if (document.hidden) continue;
    await timeOrOnline(wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

/**
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {AbortController} current
 */
async function read(reader, current) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => current.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const frames = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = frames.pop() ?? "";
    for (const frame of frames) dispatch(frame);
  }
}

/** @param {string} frame */
function dispatch(frame) {
  let data = null, isProgress = false;
  for (const line of frame.split("\n")) {
    if (line.startsWith("id: ")) lastEventId = line.slice(4);
    else if (line.startsWith("data: ")) data = line.slice(6);
    else if (line === "event: job.progress") isProgress = true;
  }
  if (data === null) return;
  const event = JSON.parse(data);
  if (isProgress) {
    const { job_id, share, message, execution_no, at } = event;
    for (const onProgress of progressListeners) onProgress(job_id, { share, message, execution_no, at });
    return;
  }
  for (const onEvent of eventListeners) onEvent(event);
}

/** @param {"live" | "lost"} state */
function showState(state) {
  const node = byId("connection");
  const text = node?.querySelector(".connection-text");
  if (!node || !text || node.dataset.state === state) return;
  node.dataset.state = state;
  text.textContent = t(`connection.${state}`);
  document.body.dataset.connection = state;
}

/** Wait for this time, or until the network is back. @param {number} milliseconds @returns {Promise<void>} */
const timeOrOnline = (milliseconds) =>
  new Promise((resolve) => {
    const timer = setTimeout(end, milliseconds);
    window.addEventListener("online", end);
    function end() {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      resolve();
    }
  });

/** @type {() => Promise<void>} */
const becomesVisible = () =>
  new Promise((resolve) => {
    document.addEventListener("visibilitychange", function onChange() {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", onChange);
      resolve();
    });
  });

window.addEventListener("offline", () => connection?.abort());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) connection?.abort();
});
