// The key of the session. The cookie alone opens nothing, because the browser sends it to every port of the host. The key
// is in sessionStorage, which only pages of this origin can read. A new tab asks the open tabs of this origin for it.

import { urlFor } from "./urls.js";

const ANSWER_MS = 500;
const session = document.body.dataset.session ?? "";
// Several dashboards can be mounted in one origin.
const NAME = `detent-session ${new URL(urlFor("")).pathname}`;
const channel = new BroadcastChannel(NAME);

/** @param {string} label of the session, as the sign-in answers it @param {string} key */
export const keepKey = (label, key) => sessionStorage.setItem(NAME, JSON.stringify([label, key]));

export const forgetKey = () => sessionStorage.removeItem(NAME);

/** @param {string} label @returns {string | null} */
function storedKey(label) {
  const [storedLabel, key] = JSON.parse(sessionStorage.getItem(NAME) ?? "[]");
  return label && storedLabel === label ? key : null;
}

channel.addEventListener("message", ({ data }) => {
  const key = storedKey(data.wanted ?? "");
  if (key) channel.postMessage({ label: data.wanted, key });
});

export const hasKey = () => storedKey(session) !== null;

/** @type {Promise<string | null> | null} */
let search = null;

/**
 * The key of this page's session; null if no tab has it.
 * @returns {Promise<string | null>}
 */
export async function findKey() {
  if (!session) return null;
  return storedKey(session) ?? (search ??= askOtherTabs());
}

/** @returns {Promise<string | null>} */
function askOtherTabs() {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(null), ANSWER_MS);
    channel.addEventListener("message", function onAnswer({ data }) {
      if (data.label !== session) return;
      channel.removeEventListener("message", onAnswer);
      clearTimeout(timer);
      keepKey(session, data.key);
      resolve(data.key);
    });
    channel.postMessage({ wanted: session });
  });
}

/** @returns {Promise<Record<string, string>>} */
export async function keyHeaders() {
  const key = await findKey();
  return key ? { "X-Session-Key": key } : {};
}
