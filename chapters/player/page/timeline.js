// All devices and all steps at once: a row a device, a bar for what it does.
import { draw, find, make, set } from "./drawing.js";
import { contextOf, doneIn, numDevices, play } from "./record.js";

const ROW = numDevices > 8 ? 16 : numDevices > 4 ? 20 : 24, LEFT = 64, RIGHT = play.idle.length ? 74 : 8;
const LEAST = play.idle.length ? 8.5 : 3;  // of a unit, so that a pipeline's forwards have room for their labels
const NAMES = /** @type {Record<string, string>} */ ({
  forward: "F", loss: "L", backward: "B", optimizer: "U" });
const IDLE = "part of the time, if each product of matrices takes one unit, and nothing else takes time";
/**
 * Where a bar begins in a row of 24.
 * @type {Record<string, number>}
 */
const HIGH = { forward: 2, backward: 7 };

/** @typedef {{step: number, device: number, begin: number, end: number}} Bar */

/**
 * What is drawn; `room`: the width that is seen, if one can scroll.
 * @type {{bars: Bar[], scale: number, first: number, room: number}}
 */
let drawn = { bars: [], scale: 1, first: 0, room: 0 };

/** The number of each step's first bar. */
const firstBars = [0];
for (const { items } of play.steps) firstBars.push(firstBars[firstBars.length - 1] + items.length);

/**
 * Where a step's items lie: in the order, or by the clock.
 * @param {boolean} byClock @returns {Bar[]}
 */
function barsOf(byClock) {
  const origins = new Map();  // sections follow each other
  return play.steps.flatMap((step, number) => step.items.map((item) => {
    const [device, , , begin, end] = item;
    if (!byClock) return { step: number, device, begin, end };
    const events = doneIn(step, item);
    const t = events.map((event) => event.t ?? 0);
    const ends = Math.max(...events.map((event) => (event.t ?? 0) + event.took));
    const origin = origins.get(step.section) ?? origins.set(step.section, lastEnd(origins)).get(step.section);
    origins.set("end", Math.max(origins.get("end") ?? 0, origin + ends));
    return { step: number, device, begin: origin + Math.min(...t), end: origin + ends };
  }));
}

/** @param {Map<any, number>} origins */
function lastEnd(origins) {
  return origins.get("end") ?? 0;
}

/**
 * Draws all bars.
 * @param {boolean} byClock @param {(step: number) => boolean} matches
 */
export function drawTimeline(byClock, matches) {
  const place = find("timeline");
  const bars = barsOf(byClock);
  const first = Math.min(...bars.map((bar) => bar.begin)), last = Math.max(...bars.map((bar) => bar.end));
  const width = Math.max(place.clientWidth, 240, byClock ? 0 : LEFT + RIGHT + LEAST * (last - first));
  const scale = (width - LEFT - RIGHT) / Math.max(last - first, 1e-9);
  const height = ROW * numDevices + 2;
  drawn = { bars, scale, first, room: width > place.clientWidth ? place.clientWidth : 0 };
  const drawing = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "what each device does, from left to right" });
  for (let device = 0; device < numDevices; ++device)
    drawing.append(draw("text", { class: "row", x: LEFT - 8, y: ROW * (device + 0.5) + 4 }, `device ${device}`),
      draw("path", { class: "idle", d: `M${LEFT} ${ROW * (device + 0.5)}H${width - RIGHT}` }),
      ...(play.idle.length && !byClock ? [draw("text", { class: "share", x: width - RIGHT + 8, y: ROW * (device + 0.5) + 4 },
        `idle ${play.idle[device]} %`,
        draw("title", {}, IDLE))] : []));
  for (const bar of bars) drawing.append(barOf(bar, matches(bar.step)));
  drawing.append(...labels(bars), draw("path", { id: "marked", class: "now" }));
  place.replaceChildren(drawing);
  document.documentElement.classList.toggle("by-clock", byClock);
}

/** @param {Bar} bar */
function extentOf({ begin, end }) {
  return { x: LEFT + (begin - drawn.first) * drawn.scale, width: Math.max((end - begin) * drawn.scale - 0.7, 1) };
}

/**
 * A bar. Forward stands high in its row and backward low, so that colour is not needed.
 * @param {Bar} bar @param {boolean} isWanted
 */
function barOf(bar, isWanted) {
  const step = play.steps[bar.step];
  const phase = contextOf(step).phase ?? "other";
  const isMessage = /send|receive/.test(step.call ?? "");
  const ofCall = isMessage ? [8, 8] : [3, 18];
  const [y, height] = step.kind === "compute" ? [HIGH[phase] ?? 4.5, 15] : ofCall;
  const kind = step.kind === "compute" ? phase : step.kind;
  return draw("rect", { class: `bar ${kind}${isWanted ? "" : " faint"}`, "data-step": bar.step, ...extentOf(bar),
    y: ROW * bar.device + (y * ROW) / 24, height: (height * ROW) / 24, rx: step.kind === "compute" ? 1.5 : 0 });
}

/**
 * Phase, micro-batch and block, in bars that have room. Narrow bars of one phase and micro-batch share a label.
 * @param {Bar[]} bars
 */
function labels(bars) {
  /** @type {{words: string, device: number, x: number, end: number, phase: string}[]} */
  const runs = [];
  const last = new Map();
  for (const bar of bars) {
    const step = play.steps[bar.step], { phase = "", micro_batch: micro = "", block } = contextOf(step);
    const { x, width } = extentOf(bar);
    let words = step.kind === "compute" && phase in NAMES ? NAMES[phase] + micro : "";
    if (words && block && hasRoom(`${words} ${block}`, width)) words += ` ${block}`;
    const run = last.get(bar.device);
    if (run && run.words === words && x - run.end < 2) {
      if (!hasRoom(words, run.end - run.x) && hasRoom(words, width)) run.x = x;
      if (!hasRoom(words, run.end - run.x)) run.end = x + width;
      continue;
    }
    last.set(bar.device, { words, device: bar.device, x, end: x + width, phase });
    if (words) runs.push(last.get(bar.device));
  }
  const high = (/** @type {string} */ phase) => ((HIGH[phase] ?? 4.5) + 7.5) / 24;
  return runs.filter(({ words, x, end }) => hasRoom(words, end - x)).map(({ words, device, x, end, phase }) =>
    draw("text", { class: "label", x: (x + end) / 2, y: ROW * (device + high(phase)) + 3.5 }, words));
}

/** @param {string} words @param {number} width */
function hasRoom(words, width) {
  return width > 6.2 * words.length + 4;
}

/**
 * Marks the steps that are shown: a frame around bars of a device that touch.
 * @param {number} from @param {number} to
 */
export function markTimeline(from, to) {
  /** @type {{x: number, end: number, device: number}[]} */
  const places = [];
  const last = new Map();
  for (const bar of drawn.bars.slice(firstBars[from], firstBars[to + 1])) {
    const { x, width } = extentOf(bar), { device } = bar, place = last.get(device);
    if (place && place.x <= x && x - place.end < 2) {
      place.end = Math.max(place.end, x + width);
      continue;
    }
    last.set(device, { x, end: x + width, device });
    places.push(last.get(device));
  }
  set(find("marked"), { d: places.map(({ x, end, device }) =>
    `M${x - 1} ${ROW * device + 1}H${end + 1}v${ROW - 2}H${x - 1}z`).join("") });
  const { room } = drawn;
  const left = Math.min(...places.map(({ x }) => x)) - room / 2;
  if (room) requestAnimationFrame(() => find("timeline").scrollTo({ left }));
}

/** What the bars are. */
export function legend() {
  const kindOf = (/** @type {import("./record.js").Step} */ step) =>
    step.kind === "compute" ? contextOf(step).phase ?? "other" : step.kind;
  const phases = new Set(play.steps.map(kindOf));
  const words = { forward: "forward, high", backward: "backward, low", loss: "loss", optimizer: "update, by the optimizer",
    other: "other", call: "call", wait: "wait" };
  return Object.entries(words).filter(([name]) => phases.has(name)).map(([name, text]) =>
    make("span", {}, make("span", { class: `key ${name}` }), text)).concat(play.idle.length ?
    [make("span", { class: "of-order" }, `idle: ${IDLE}`)] : []);
}
