// Creates elements from data. Text of a job is always inserted as text, never as markup: these functions are the only way
// to create an element in the dashboard.

/** @import { Child, Props } from "../types.d.ts" */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * Create an HTML element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props} [props]
 * @param {...Child} children
 */
export const h = (tag, props, ...children) => build(document.createElement(tag), props, children);

/**
 * Create an SVG element.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props} [props]
 * @param {...Child} children
 */
export const s = (tag, props, ...children) => build(document.createElementNS(SVG_NAMESPACE, tag), props, children);

/**
 * @template {Element} Built
 * @param {Built} node
 * @param {Props | undefined} props
 * @param {Child[]} children
 */
function build(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "object") {
      for (const [event, handler] of Object.entries(value)) {
        node.addEventListener(event, /** @type {EventListener} */ (handler));
      }
    } else if (name === "value" || name === "checked" || name === "indeterminate") {
      Object.assign(node, { [name]: value });
    } else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

/**
 * @param {Element} node
 * @param {Child[]} children
 */
function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Replace the children of `node`. The focus stays on the element that takes the place of the focused one.
 * @template {Element} Filled
 * @param {Filled} node
 * @param {...Child} children
 */
export function fill(node, ...children) {
  const restoreFocus = node.contains(document.activeElement) ? rememberFocus() : null;
  node.replaceChildren();
  append(node, children);
  restoreFocus?.();
  return node;
}

/** What tells a focusable element from others when its surroundings are drawn again. @param {Element} node */
const identityOf = (node) =>
  node.id || node.getAttribute("data-focus") || node.getAttribute("href") || node.textContent;

/**
 * Returns a function that gives the focus back to the element that has it now. If that one was removed: to the same
 * element of the redrawn row, else to something of the row, of the row that took its place, or to the page.
 */
export function rememberFocus() {
  const focused = document.activeElement;
  const identity = focused && identityOf(focused), name = focused?.localName ?? "";
  const row = focused?.closest("[data-key]"), key = row?.getAttribute("data-key");
  const rows = row?.parentElement ?? null, index = row && rows ? [...rows.children].indexOf(row) : 0;
  return () => {
    if (focused?.isConnected) return focusOn(focused);
    const newRow = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    const candidates = [...(newRow || document).querySelectorAll(name || "body")];
    const place = rows?.isConnected ? childElements(rows)[Math.min(index, rows.children.length - 1)] : null;
    const target = candidates.find((node) => identityOf(node) === identity) ??
      firstFocusable(newRow || place) ?? byId("main");
    if (target) focusOn(target);
  };
}

/** @param {Element} node */
function focusOn(node) {
  if (node !== document.activeElement) /** @type {HTMLElement} */ (node).focus({ preventScroll: true });
}

/** @param {Element | null | undefined} node */
const firstFocusable = (node) => node?.querySelector("button:not([disabled]), a, input:not([disabled])");

/** @param {string} id */
export const byId = (id) => document.getElementById(id);

/**
 * The element that `selector` matches; throws if there is none.
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {HTMLElement}
 */
export function requireElement(selector, root = document) {
  const node = root.querySelector(selector);
  if (!(node instanceof HTMLElement)) throw new Error(`no element matches ${selector}`);
  return node;
}

export const isDialogOpen = () => document.querySelector("dialog[open]") !== null;

/** JSON of the item that each keyed node was created from. @type {WeakMap<Element, string>} */
const signatures = new WeakMap();

/**
 * Make the children of `container` match `items`. Nodes whose item is unchanged are kept, so that they do not flicker and
 * keep the focus.
 * @template Item
 * @param {HTMLElement} container
 * @param {Item[]} items
 * @param {(item: Item) => string | number} keyOf
 * @param {(item: Item) => HTMLElement} create
 */
export function updateKeyed(container, items, keyOf, create) {
  const oldNodes = new Map(childElements(container).map((node) => [node.dataset.key, node]));
  const nodes = items.map((item) => {
    const key = String(keyOf(item));
    const signature = JSON.stringify(item);
    const oldNode = oldNodes.get(key);
    if (oldNode && signatures.get(oldNode) === signature) return oldNode;
    const node = create(item);
    node.dataset.key = key;
    signatures.set(node, signature);
    return node;
  });
  const restoreFocus = container.contains(document.activeElement) ? rememberFocus() : null;
  nodes.forEach((node, index) => {
    if (container.children[index] !== node) container.insertBefore(node, container.children[index] ?? null);
  });
  while (container.children.length > nodes.length) container.lastElementChild?.remove();
  restoreFocus?.();
}

/**
 * @param {Element} node
 * @returns {HTMLElement[]}
 */
export const childElements = (node) => /** @type {HTMLElement[]} */ ([...node.children]);

/**
 * Copy to the clipboard; false if the browser refuses.
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "visually-hidden", value: text });
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}
