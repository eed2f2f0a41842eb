// Addresses of pages, relative to the dashboard's root, so that they work under any prefix.

const ROOT = new URL(document.documentElement.dataset.root ?? "./", location.href);

/** @param {string} path */
export const urlFor = (path) => new URL(path, ROOT).href;
/** @param {string} id */
export const jobUrl = (id) => urlFor(`jobs/${encodeURIComponent(id)}`);
/** @param {string} filter */
export const jobsUrl = (filter) => urlFor(`jobs?q=${encodeURIComponent(filter)}`);
/** @param {string} id */
export const deadLetterUrl = (id) => urlFor(`dead-letters/${encodeURIComponent(id)}`);
/** @param {string} name */
export const contractUrl = (name) => urlFor(`contracts/${encodeURIComponent(name)}`);
/** @param {string} name */
export const queueUrl = (name) => urlFor(`queue?name=${encodeURIComponent(name)}`);
/** @param {string} name */
export const jobTypeUrl = (name) => urlFor(`type?name=${encodeURIComponent(name)}`);
/** @param {string} id */
export const workerUrl = (id) => urlFor(`worker?name=${encodeURIComponent(id)}`);
/** @param {string} [jobType] */
export const enqueueUrl = (jobType) => urlFor(jobType ? `enqueue?name=${encodeURIComponent(jobType)}` : "enqueue");

/** The name in the address of a queue, job type or worker, which may contain any character. */
export const nameInQuery = () => new URL(location.href).searchParams.get("name") ?? "";

/** The last part of this page's path: the id or name of the object shown. An escape that is none stays as it is. */
export function idInPath() {
  const part = location.pathname.split("/").at(-1) ?? "";
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * Write parameters into the address without loading the page; an empty value removes the parameter.
 * @param {Record<string, string>} params
 */
export function setQueryParams(params) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(params)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(null, "", url);
}
