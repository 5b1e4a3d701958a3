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
