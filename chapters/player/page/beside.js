// Two runs, one above the other, at the same step. Each is a page of its own, in a frame.
import { find } from "./drawing.js";

/**
 * The frame of the page has it, or null.
 * @type {number | null}
 */
const firstDifference = JSON.parse(document.body.dataset.first ?? "null");

/** @typedef {{step?: number, last?: number, height?: number, key?: string}} Told */

const frames = /** @type {HTMLIFrameElement[]} */ ([find("right"), find("wrong")]);
const slider = /** @type {HTMLInputElement} */ (find("slider"));
const lasts = [0, 0];
let step = 0;

/**
 * Shows a step of both. A run that has ended stays at its end.
 * @param {number} to
 */
function go(to) {
  step = Math.min(Math.max(to, 0), Math.max(...lasts));
  slider.value = String(step);
  for (const frame of frames) frame.contentWindow?.postMessage({ step, differs: step === firstDifference }, "*");
  try {
    history.replaceState(null, "", `#step=${step}`);
  } catch { /* a browser that lets no file have an address */ }
}

/** To the first difference, if there is one. */
function jump() {
  if (firstDifference !== null) go(firstDifference);
}

/** @type {Record<string, () => void>} */
const keys = {
  ArrowRight: () => go(step + 1), ArrowLeft: () => go(step - 1), Home: () => go(0),
  End: () => go(Math.max(...lasts)), d: jump,
};

/**
 * What a frame says: its height, its last step, that its reader went to a step.
 * @param {MessageEvent<Told>} event
 */
function heard({ source, data }) {
  const number = frames.findIndex((frame) => frame.contentWindow === source);
  if (number < 0) return;
  if (data.height) frames[number].style.height = `${data.height}px`;
  if (data.key && data.key in keys) keys[data.key]();
  if (data.last !== undefined) {
    lasts[number] = data.last;
    slider.max = String(Math.max(...lasts));
    go(begin());
  }
  if (data.step !== undefined) go(data.step);
}

/** The step of the address, or the first difference. */
function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("step");
  return given === null ? firstDifference ?? 0 : Math.trunc(Number(given)) || 0;
}

addEventListener("message", heard);
addEventListener("hashchange", () => go(begin()));
addEventListener("keydown", (event) => {
  if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  keys[event.key]();
});
find("back").addEventListener("click", () => go(step - 1));
find("next").addEventListener("click", () => go(step + 1));
find("first").addEventListener("click", jump);
slider.addEventListener("input", () => go(Number(slider.value)));
for (const frame of frames) frame.contentWindow?.postMessage({ asks: true }, "*");  // one may have been ready before
