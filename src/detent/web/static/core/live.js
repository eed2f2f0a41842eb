// Every change of status as it is committed. Read with fetch rather than EventSource: events bear names, and an answer that
// says 401 must be seen. Comes back with the last id after a break; rests while nobody looks at the page.
import { $, here } from "./dom.js";
import { t } from "./words.js";
import { signIn } from "./api.js";

const FIRST_WAIT = 500, LONGEST_WAIT = 10_000;
const SILENCE = 45_000;  // the server sends a beat every 15 s; a connection this silent is dead, whatever it looks like
const listeners = new Set();
const returns = new Set();
let query = "";
let last = null;
let under = null;

// act(event) for each event; back() whenever the connection stands, the first time too: what happened between the page's own
// first look and this moment was told to nobody.
export function follow(act, { back, filter = {} } = {}) {
  listeners.add(act);
  if (back) returns.add(back);
  query = new URLSearchParams(filter).toString();
  if (!under) run();
}

async function run() {
  let wait = FIRST_WAIT;
  for (;;) {
    if (document.hidden) await visible();
    under = new AbortController();
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      const answer = await fetch(here(`api/v1/events/stream${query && `?${query}`}`), { headers, signal: under.signal });
      if (answer.status === 401) return signIn();
      if (!answer.ok) throw new Error(String(answer.status));
      say("live");
      for (const back of returns) back();
      wait = FIRST_WAIT;
      await read(answer.body.getReader());
    } catch {
      if (document.hidden) continue;
      say("lost");
    }
    if (document.hidden) continue;
    await Promise.race([new Promise((done) => setTimeout(done, wait)), heard("online")]);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
}

async function read(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const silent = setTimeout(() => under.abort(), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const frames = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) tell(frame);
  }
}

function tell(frame) {
  let data = null;
  for (const line of frame.split("\n")) {
    if (line.startsWith("id: ")) last = line.slice(4);
    else if (line.startsWith("data: ")) data = line.slice(6);
  }
  if (data === null) return;
  const event = JSON.parse(data);
  for (const act of listeners) act(event);
}

function say(state) {
  const pulse = $("pulse");
  if (!pulse || pulse.dataset.state === state) return;
  pulse.dataset.state = state;
  pulse.querySelector(".pulse-text").textContent = t(`live.${state}`);
  document.body.dataset.live = state;
}

const heard = (name) => new Promise((done) => window.addEventListener(name, done, { once: true }));
window.addEventListener("offline", () => under?.abort());

const visible = () => new Promise((done) => {
  document.addEventListener("visibilitychange", function look() {
    if (document.hidden) return;
    document.removeEventListener("visibilitychange", look);
    done();
  });
});

document.addEventListener("visibilitychange", () => { if (document.hidden) under?.abort(); });

// At most one run of `act` at a time and one in so many milliseconds, however often it is asked for; who asks for it now,
// because they have just changed something, does not wait for those milliseconds.
export function gently(act, every = 1000) {
  let waiting = null, running = false, again = false, hurry = false, ended = 0;
  const go = async () => {
    waiting = null;
    running = true;
    try { await act(); } finally {
      running = false;
      ended = performance.now();
      if (again) { again = false; ask(hurry); }
    }
  };
  const ask = (now = false) => {
    hurry = now || (running && hurry);
    if (running) again = true;
    else if (now || waiting === null) {
      clearTimeout(waiting);
      waiting = setTimeout(go, now ? 0 : Math.max(0, every - (performance.now() - ended)));
    }
  };
  return ask;
}
