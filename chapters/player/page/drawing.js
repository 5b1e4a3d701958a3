// Elements of the page, and how numbers are written.

/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes */

/** @param {Element} element @param {Attributes} attributes @param {(Node | string)[]} children */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    const isThere = value !== null && value !== undefined && value !== false;
    if (isThere) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Attributes} attributes @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  filled(element, attributes, children);
  return element;
}

/** @param {string} tag @param {Attributes} attributes @param {...(Node | string)} children */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  filled(element, attributes, children);
  return element;
}

/**
 * Gives a kept element attributes, where they are others.
 * @param {Element} element @param {Record<string, string | number>} attributes
 */
export function set(element, attributes) {
  for (const name in attributes) {
    const value = String(attributes[name]);
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
}

/**
 * Gives a kept element words, where they are others.
 * @param {Element} element @param {string} words
 */
export function say(element, words) {
  const text = element.firstChild;
  if (!(text instanceof Text)) element.textContent = words;
  else if (text.data !== words) text.data = words;
}

/**
 * Gives a kept element children, where they are others.
 * @param {Element} element @param {Node[]} children
 */
export function fill(element, children) {
  const now = element.childNodes;
  let same = 0;
  while (same < children.length && now[same] === children[same]) ++same;
  if (same === children.length && same === now.length) return;
  const kept = new Set(children);
  for (const child of [...now].slice(same)) if (!kept.has(child)) child.remove();
  /** @type {ChildNode | null} */
  let at = now[same] ?? null;
  for (const child of children.slice(same))
    if (child === at) at = at.nextSibling;
    else element.insertBefore(child, at);
}

/**
 * The element of the page with this id.
 * @param {string} id @returns {HTMLElement}
 */
export function find(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}

/**
 * 24,576
 * @param {number} value
 */
export function withCommas(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * (64, 64)
 * @param {number[]} sizes
 */
export function shapeOf(sizes) {
  return `(${sizes.map(withCommas).join(", ")}${sizes.length === 1 ? "," : ""})`;
}
