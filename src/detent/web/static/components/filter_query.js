// The filter language: `status:retrying queue:mail tenant:a "free text"`.

/** Filter key -> query parameter of the API. @type {Record<string, string>} */
export const JOB_FILTER_KEYS = {
  status: "status",
  phase: "phase",
  queue: "queue",
  type: "job_type",
  contract: "contract",
  tenant: "tenant",
};
const TERM = /(\w+):(?:"((?:[^"\\]|\\.)*)"?|(\S*))|"((?:[^"\\]|\\.)*)"?|(\S+)/g;

/**
 * The query parameters of a filter, and its terms with an unknown key.
 * @param {string} text
 * @param {Record<string, string>} [keys]
 */
export function parseFilter(text, keys = JOB_FILTER_KEYS) {
  /** @type {Record<string, string>} */
  const query = {};
  const unknown = [], freeText = [];
  for (const [whole, key, quoted, plain, phrase, word] of text.matchAll(TERM)) {
    const value = unescape(quoted ?? plain ?? "");
    if (key === undefined) freeText.push(unescape(phrase ?? word));
    else if (!(key in keys)) unknown.push(whole);
    else if (value) query[keys[key]] = value;
  }
  if (freeText.length) query.text = freeText.join(" ");
  return { query, unknown };
}

/** @param {string} text */
const unescape = (text) => text.replace(/\\(.)/g, "$1");
/** @param {string} value */
const quote = (value) => (/^[^\s":\\]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);

/**
 * @param {string} key
 * @param {string} value
 */
export const filterTerm = (key, value) => `${key}:${quote(value)}`;
