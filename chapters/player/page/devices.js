// Devices side by side: the memory of each by purpose, and its tensors.
import { draw, fill, find, make, say, set, shapeOf, withCommas } from "./drawing.js";
import { doneIn, lettersOf, play, record } from "./record.js";
import { mostBytes } from "./state.js";

/** @typedef {import("./state.js").Held} Held */

const PURPOSES = ["parameters", "optimizer", "gradients", "activations", "buffers"];
const isPipeline = play.underWay.some((spans) => spans.length > 0);
const SHOWN = 4;  // tensors of a purpose that the shown steps do not touch; more are folded
const TOUCHED = 8;  // those that they touch, the last ones; others are folded
/** Which tensors the reader unfolded. */
const unfolded = new Set();

/**
 * The steps in which each device sends, and what it has sent with each.
 * @type {{step: number, bytes: number}[][]}
 */
const sent = record.devices.map(() => []);
play.steps.forEach((step, number) => {
  for (const item of step.items)
    for (const { sends } of doneIn(step, item)) {
      const before = sent[item[0]][sent[item[0]].length - 1]?.bytes ?? 0;
      const bytes = sends.reduce((sum, message) => sum + message[2], 0);
      if (bytes) sent[item[0]].push({ step: number, bytes: before + bytes });
    }
});
const sentInAll = sent.map((steps) => steps[steps.length - 1]?.bytes ?? 0);

/**
 * To whom a device sends in the run: "16,384 bytes to device 2 in 8 messages".
 * @param {number} device
 */
function sentToEach(device) {
  /** @type {Map<number, {bytes: number, messages: number}>} */
  const to = new Map();
  for (const step of play.steps)
    for (const item of step.items.filter(([of]) => of === device))
      for (const [peer, messages, bytes] of doneIn(step, item).flatMap(({ sends }) => sends)) {
        const sum = to.get(peer) ?? { bytes: 0, messages: 0 };
        to.set(peer, { bytes: sum.bytes + bytes, messages: sum.messages + messages });
      }
  return [...to].sort(([a], [b]) => a - b).map(([peer, { bytes, messages }]) =>
    `${withCommas(bytes)} bytes to ${peer < 0 ? "devices that a library chose" : `device ${peer}`} in ${messages} ` +
    `message${messages === 1 ? "" : "s"}`).join(", ");
}

/**
 * What a device has sent after a step.
 * @param {number} device @param {number} step
 */
function sentUntil(device, step) {
  const next = sent[device].findIndex((one) => one.step > step);
  const last = sent[device][(next < 0 ? sent[device].length : next) - 1];
  return `sent ${withCommas(last?.bytes ?? 0)} of ${withCommas(sentInAll[device])}`;
}

/**
 * The column of a device: elements that are kept from step to step. `of`: what it shows.
 * @typedef {{device: number, place: HTMLElement, of: string, heads: Element[], underWay: HTMLElement, bars: SVGElement[],
 *   bytes: HTMLElement, most: Text, sent: HTMLElement, purposes: Purpose[]}} Column
 */
/**
 * The tensors of a purpose, below each other: those that are folded, rows, and those that are folded as untouched.
 * @typedef {{name: string, place: HTMLElement, head: HTMLElement, bytes: HTMLElement, rows: Row[], others: Folded,
 *   untouched: Folded}} Purpose
 */
/** @typedef {{kind: string, place: HTMLDetailsElement, words: HTMLElement, rows: Row[], tensors: Held[]}} Folded */

/** @param {number} device @returns {Column} */
function columnOf(device) {
  const underWay = make("p", { class: "under-way", title: "under way: forward begun, backward not ended" });
  const bytes = make("strong"), most = new Text(), sent = make("p", { class: "sent", title: sentToEach(device) }), bars = barsOf(device);
  const bar = draw("svg", { class: "memory", viewBox: "0 0 200 16", preserveAspectRatio: "none", role: "img",
    "aria-label": `memory of device ${device}` }, ...bars);
  const heads = [make("h3", {}, `device ${device}`), ...(isPipeline ? [underWay] : []), bar,
    make("p", { class: "total" }, bytes, most), ...(sentInAll[device] ? [sent] : [])];
  return { device, place: make("section", { "aria-label": `device ${device}` }), of: "", heads, underWay, bars, bytes, most,
    sent, purposes: PURPOSES.map((name) => purposeIn(device, name)) };
}

const columns = record.devices.map((_, device) => columnOf(device));

/**
 * A column for each device. Only what has changed is drawn anew.
 * @param {import("./state.js").DeviceState[]} devices @param {Set<number>} active @param {number | null} only
 * @param {number} step
 */
export function showDevices(devices, active, only, step) {
  const place = find("devices");
  place.style.setProperty("--columns", String(only === null ? Math.min(devices.length, 4) : 1));
  const shown = columns.filter(({ device }) => only === null || only === device);
  fill(place, shown.map((column) => column.place));
  for (const column of shown) drawColumn(devices[column.device], column, active.has(column.device), step);
}

/**
 * @param {import("./state.js").DeviceState} state @param {Column} column @param {boolean} isActive
 * @param {number} step
 */
function drawColumn(state, column, isActive, step) {
  const { device, place, purposes } = column;
  const words = isPipeline ? underWay(device, step) : "", sent = sentInAll[device] ? sentUntil(device, step) : "";
  set(place, { class: `device${isActive ? " active" : ""}` });
  const of = `${state.version} ${words} ${sent}`;
  if (of === column.of) return;
  column.of = of;
  say(column.underWay, words);
  say(column.bytes, withCommas(state.bytes));
  column.most.data = state.most > state.bytes ? ` · up to ${withCommas(state.most)}` : " bytes";
  say(column.sent, sent);
  /** @type {Held[][]} */
  const byPurpose = PURPOSES.map(() => []);
  for (const tensor of state.held.values()) byPurpose[PURPOSES.indexOf(tensor.purpose)]?.push(tensor);
  const sums = byPurpose.map((tensors) => tensors.reduce((bytes, tensor) => bytes + tensor.bytes, 0));
  drawMemory(state, column, sums);
  byPurpose.forEach((tensors, i) => tensors.length && drawPurpose(purposes[i], tensors, sums[i], device));
  fill(place, [...column.heads, ...purposes.filter((_, i) => byPurpose[i].length).map((purpose) => purpose.place)]);
}

/**
 * The micro-batches whose forward pass has begun and whose backward pass has not ended.
 * @param {number} device @param {number} step
 */
function underWay(device, step) {
  const spans = play.underWay[device].filter(([, begin, end]) => begin <= step && step < end);
  const numbers = [...new Set(spans.map(([micro]) => micro))].sort((a, b) => a - b);
  const many = numbers.length > 2 && numbers[numbers.length - 1] - numbers[0] === numbers.length - 1 ?
    `${numbers[0]}–${numbers[numbers.length - 1]}` : numbers.join(", ");
  return numbers.length ? `micro-batch${numbers.length > 1 ? "es" : ""} ${many}` : "no micro-batch";
}

/**
 * What the stacked bar has: its room, a part for each purpose, what was held during the step, and the most ever.
 * @param {number} device @returns {SVGElement[]}
 */
function barsOf(device) {
  const [most] = play.peaks[device] ?? [0];
  return [draw("rect", { class: "room", x: 0, y: 3, width: 200, height: 10 }),
    ...PURPOSES.map((name) => draw("rect", { class: name, y: 3, height: 10 }, draw("title"))),
    draw("rect", { class: "during", y: 6, height: 4 }),
    draw("path", { class: "peak", d: `M${Math.min((200 * most) / mostBytes, 199.5)} 0v16` },
      draw("title", {}, `most: ${withCommas(most)} bytes`))];
}

/**
 * The stacked bar.
 * @param {import("./state.js").DeviceState} state @param {Column} column @param {number[]} sums
 */
function drawMemory(state, { bars }, sums) {
  let x = 0;
  sums.forEach((bytes, i) => {
    const width = (200 * bytes) / mostBytes, bar = bars[i + 1];
    set(bar, { x, width: bytes ? Math.max(width - 0.6, 0.4) : 0 });
    say(/** @type {Element} */ (bar.firstElementChild), `${PURPOSES[i]}: ${withCommas(bytes)} bytes`);
    x += width;
  });
  set(bars[PURPOSES.length + 1], { x, width: Math.max((200 * (state.most - state.bytes)) / mostBytes, 0) });
}

/** @param {number} device @param {string} name @returns {Purpose} */
function purposeIn(device, name) {
  const bytes = make("span"), head = make("h4", {}, make("span", { class: `key ${name}` }), name, bytes);
  return { name, place: make("div", { class: `purpose ${name}` }), head, bytes, rows: [],
    others: foldedIn(device, `${name} touched`), untouched: foldedIn(device, name) };
}

/**
 * The tensors of a purpose.
 * @param {Purpose} purpose @param {Held[]} tensors @param {number} bytes @param {number} device
 */
function drawPurpose({ place, head, bytes: sum, rows, others, untouched }, tensors, bytes, device) {
  const touched = tensors.filter(({ mark }) => mark);
  others.tensors = touched.slice(0, -TOUCHED);
  untouched.tensors = tensors.filter(({ mark }) => !mark);
  const hidden = new Set(others.tensors), isFolded = untouched.tensors.length > SHOWN;
  const shown = isFolded ? touched.slice(-TOUCHED) : tensors.filter((tensor) => !hidden.has(tensor));
  say(sum, withCommas(bytes));
  if (hidden.size) drawFolded(others, `${hidden.size} more`, device);
  if (isFolded) drawFolded(untouched, `${untouched.tensors.length} untouched`, device);
  fill(place, [head, ...(hidden.size ? [others.place] : []), ...rowsOf(rows, shown, device),
    ...(isFolded ? [untouched.place] : [])]);
}

/**
 * Tensors that are shown when the reader asks.
 * @param {number} device @param {string} kind @returns {Folded}
 */
function foldedIn(device, kind) {
  const words = make("summary"), place = make("details", { class: "folded" }, words);
  /** @type {Folded} */
  const folded = { kind, place, words, rows: [], tensors: [] };
  place.addEventListener("toggle", () => {
    if (place.open) unfolded.add(kind); else unfolded.delete(kind);
    drawInside(folded, device);
  });
  return folded;
}

/** @param {Folded} folded @param {string} words @param {number} device */
function drawFolded(folded, words, device) {
  say(folded.words, words);
  if (folded.place.open !== unfolded.has(folded.kind)) folded.place.open = unfolded.has(folded.kind);
  drawInside(folded, device);
}

/** @param {Folded} folded @param {number} device */
function drawInside({ place, words, rows, tensors }, device) {
  fill(place, [words, ...(place.open ? rowsOf(rows, tensors, device) : [])]);
}

/**
 * The rectangle of a tensor: elements that are kept, and what they show.
 * @typedef {{place: HTMLElement, slice: Element, drawing: SVGElement | null, name: HTMLElement, mark: HTMLElement,
 *   told: HTMLElement, letters: HTMLElement, sizes: Text, values: HTMLElement, of: Held | null}} Row
 */

/**
 * A row for each tensor, of those of a place.
 * @param {Row[]} rows @param {Held[]} tensors @param {number} device
 */
function rowsOf(rows, tensors, device) {
  return tensors.map((tensor, i) => {
    const row = rows[i] ??= emptyRow();
    if (row.of !== tensor) drawRow(row, tensor, device);
    return row.place;
  });
}

const rowWithoutWords = make("a", { class: "tensor " }, draw("svg", { class: "slice" }), make("span", { class: "name" },
  make("span", { class: "head" }, make("i"), make("span", { class: "mark" })), make("small")));

/** @returns {Row} */
function emptyRow() {
  const place = /** @type {HTMLElement} */ (rowWithoutWords.cloneNode(true));
  const [slice, name] = place.children, [head, told] = /** @type {HTMLCollectionOf<HTMLElement>} */ (name.children);
  const [words, mark] = /** @type {HTMLCollectionOf<HTMLElement>} */ (head.children);
  const sizes = told.appendChild(new Text());
  return { place, slice, drawing: null, name: words, mark, told, letters: make("b"), sizes, values: make("small", { class: "values" }),
    of: null };
}

/**
 * One tensor, as a rectangle: only what it has otherwise than the tensor that its row showed.
 * @param {Row} row @param {Held} tensor @param {number} device
 */
function drawRow(row, tensor, device) {
  const { place, of } = row, { name, by, shape, layout: number, bytes, mark, step, values } = tensor;
  if (!of || number !== of.layout) drawSlice(row, sliceOf(number, device));
  if (mark !== of?.mark) {
    place.className = `tensor ${mark}`;
    say(row.mark, mark);
  }
  if (name !== of?.name || by !== of.by || shape !== of.shape || number !== of.layout || bytes !== of.bytes) {
    const { title, letters, sizes } = wordsOf(tensor);
    place.title = title;
    drawName(row, name, /receive/.test(by) ? "received" : by || "memory");
    say(row.letters, letters);
    if (letters && !row.letters.parentNode) row.told.prepend(row.letters);
    else if (!letters) row.letters.remove();
    row.sizes.data = letters ? ` ${sizes}` : sizes;
  }
  if (step === null) place.removeAttribute("href");
  else if (step !== of?.step) place.setAttribute("href", `#step=${step}`);
  if (values === null) row.values.remove();
  else if (values !== of?.values) drawValues(row, values);
  row.of = tensor;
}

/**
 * What rows say, by what it is made of: many tensors are alike.
 * @type {Map<string, {title: string, letters: string, sizes: string}>}
 */
const words = new Map();

/** @param {Held} tensor */
function wordsOf({ name, by, shape, layout: number, bytes }) {
  const key = [name, by, shape, number, bytes].join(";");
  let known = words.get(key);
  if (!known) {
    const layout = number === null ? null : record.layouts[number];
    const letters = layout ? lettersOf(layout) : [], sizes = shape ? shapeOf(shape) : `${withCommas(bytes)} bytes`;
    const isPart = layout && shape && shapeOf(layout.whole) !== sizes;
    const axes = layout ? layout.axes.map((axis, i) => `${letters[i]} over ${axis}`) : [];
    const title = [`${name || by} ${sizes}${isPart ? ` of ${shapeOf(layout.whole)}` : ""}`, ...axes,
      `${withCommas(bytes)} bytes`].join("; ");
    words.set(key, known = { title, letters: letters.join(" "), sizes });
  }
  return known;
}

/**
 * A tensor's name; what made it, if it has none.
 * @param {Row} row @param {string} name @param {string} made
 */
function drawName(row, name, made) {
  const tag = name ? "b" : "i";
  if (row.name.localName === tag) return say(row.name, name || made);
  const words = make(tag, {}, name || made);
  row.name.replaceWith(words);
  row.name = words;
}

/**
 * The first values, in a line; all of them where the reader points.
 * @param {Row} row @param {(number | null)[]} values
 */
function drawValues(row, values) {
  const words = values.map((value) => (value === null ? "not finite" : String(value)));
  set(row.values, { title: words.join(" ") });
  say(row.values, words.slice(0, 8).join(" "));
  row.place.append(row.values);
}

/**
 * The drawings of parts, of which rows have copies; by layout and device, and by how they look.
 * @type {Map<string, SVGElement>}
 */
const slices = new Map();

/** @param {number | null} layout @param {number} device */
function sliceOf(layout, device) {
  const key = `${layout} ${device}`;
  let drawing = slices.get(key);
  if (!drawing) {
    drawing = slice(layout === null ? null : record.layouts[layout], device);
    const look = drawing.outerHTML;
    slices.set(key, drawing = slices.get(look) ?? drawing).set(look, drawing);
  }
  return drawing;
}

/** @param {Row} row @param {SVGElement} drawing */
function drawSlice(row, drawing) {
  if (row.drawing === drawing) return;
  const copy = /** @type {SVGElement} */ (drawing.cloneNode(true));
  row.slice.replaceWith(copy);
  row.slice = copy;
  row.drawing = drawing;
}

/**
 * Where a device's part lies in the whole.
 * @param {import("./record.js").Layout | null} layout @param {number} device
 */
function slice(layout, device) {
  const drawing = draw("svg", { class: "slice", viewBox: "-1 -1 34 28", "aria-hidden": "true" });
  if (!layout) {
    drawing.append(draw("rect", { class: "unknown", x: 6, y: 5, width: 20, height: 16 }));
    return drawing;
  }
  const whole = layout.whole.length > 1 ? layout.whole : [1, layout.whole[0] ?? 1];
  const columns = whole[whole.length - 1];
  const rows = whole.slice(0, -1).reduce((product, extent) => product * extent, 1);
  const ratio = Math.min(3, Math.max(1 / 3, columns / Math.max(rows, 1)));
  const width = Math.min(32, 26 * ratio);
  const height = Math.max(5, Math.min(26, width / ratio));
  const [left, top] = [(32 - width) / 2, (26 - height) / 2];
  const letters = lettersOf(layout);
  const isSame = letters.every((letter) => letter === "R");
  const mine = layout.parts[device] ?? [];
  drawing.append(draw("rect", { class: "whole", x: left, y: top, width, height }));
  const ranges = mine.length > 1 || !mine.length ? mine : [/** @type {[number, number]} */ ([0, 1]), mine[0]];
  if (ranges.length) {
    const [y, high] = share(ranges.slice(0, -1), whole.slice(0, -1));
    const [x, wide] = share(ranges.slice(-1), [columns]);
    const place = { x: left + x * width, y: top + y * height, width: wide * width, height: high * height };
    drawing.append(draw("rect", { class: isSame ? "same" : `of${device % 8}`, ...place }));
    if (letters.includes("P")) drawing.append(draw("rect", { class: "addend", ...place }));
  }
  return drawing;
}

/** Where ranges of the leading dimensions lie, as (begin, size) in parts of the whole: the first cut one counts. */
function share(/** @type {[number, number][]} */ ranges, /** @type {number[]} */ extents) {
  const cut = ranges.findIndex(([begin, end], i) => end - begin < extents[i]);
  if (cut < 0) return [0, 1];
  return [ranges[cut][0] / extents[cut], (ranges[cut][1] - ranges[cut][0]) / extents[cut]];
}
