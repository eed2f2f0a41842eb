// Elements from data. Whatever comes from a job becomes text, never markup: there is no other way to make an element here.
const SVG = "http://www.w3.org/2000/svg";

export const h = (tag, props, ...children) => build(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => build(document.createElementNS(SVG, tag), props, children);

function build(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "value" || name === "checked" || name === "indeterminate") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

export const $ = (id) => document.getElementById(id);

const ROOT = new URL(document.documentElement.dataset.root, location.href);
export const here = (path) => new URL(path, ROOT).href;
export const part = encodeURIComponent;
export const jobLink = (id) => here(`jobs/${part(id)}`);

// Make a container's children those of `items`, keeping the nodes whose signature is as it was: nothing flickers, nothing
// loses focus.
export function keyed(container, items, keyOf, make) {
  const old = new Map([...container.children].map((node) => [node.dataset.key, node]));
  const wanted = items.map((item) => {
    const key = String(keyOf(item));
    const signature = JSON.stringify(item);
    const known = old.get(key);
    if (known && known.signature === signature) return known;
    const node = make(item);
    node.dataset.key = key;
    node.signature = signature;
    return node;
  });
  const focused = document.activeElement?.closest?.("[data-key]");
  const focusKey = focused && container.contains(focused) ? focused.dataset.key : null;
  const focusName = focusKey && document.activeElement.dataset.focus;
  wanted.forEach((node, index) => {
    if (container.children[index] !== node) container.insertBefore(node, container.children[index] ?? null);
  });
  while (container.children.length > wanted.length) container.lastElementChild.remove();
  if (focusKey && !container.contains(document.activeElement)) {
    const again = wanted.find((node) => node.dataset.key === focusKey);
    (again?.querySelector(focusName ? `[data-focus="${CSS.escape(focusName)}"]` : "a, button, input"))?.focus();
  }
  return wanted;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
