// Devices side by side: the memory of each by purpose, and its tensors.
import { draw, find, make, shapeOf, withCommas } from "./drawing.js";
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
 * What a device has sent after a step.
 * @param {number} device @param {number} step
 */
function sentUntil(device, step) {
  const next = sent[device].findIndex((one) => one.step > step);
  const last = sent[device][(next < 0 ? sent[device].length : next) - 1];
  return `sent ${withCommas(last?.bytes ?? 0)} of ${withCommas(sentInAll[device])}`;
}

/**
 * The column of each device, and of what it was drawn.
 * @type {{place: HTMLElement, of: string}[]}
 */
const columns = record.devices.map((_, device) =>
  ({ place: make("section", { "aria-label": `device ${device}` }), of: "" }));

/**
 * A column for each device. Only what has changed is drawn anew.
 * @param {import("./state.js").DeviceState[]} devices @param {Set<number>} active @param {number | null} only
 * @param {number} step
 */
export function showDevices(devices, active, only, step) {
  const place = find("devices");
  place.style.setProperty("--columns", String(only === null ? Math.min(devices.length, 4) : 1));
  const shown = columns.filter((_, device) => only === null || only === device).map((column) => column.place);
  if (shown.length !== place.childElementCount || shown[0] !== place.firstElementChild) place.replaceChildren(...shown);
  devices.forEach((state, device) => {
    if (only === null || only === device) drawColumn(state, device, active.has(device), step);
  });
}

/**
 * @param {import("./state.js").DeviceState} state @param {number} device @param {boolean} isActive
 * @param {number} step
 */
function drawColumn(state, device, isActive, step) {
  const column = columns[device], { place } = column;
  const told = [...(isPipeline ? [underWay(device, step)] : []), ...(sentInAll[device] ? [sentUntil(device, step)] : [])];
  place.className = `device${isActive ? " active" : ""}`;
  const of = `${state.version} ${told.join()}`;
  if (of === column.of) return;
  column.of = of;
  const all = [...state.held.values()];
  const byPurpose = PURPOSES.map((purpose) => all.filter((tensor) => tensor.purpose === purpose));
  const during = state.most > state.bytes ? ` · up to ${withCommas(state.most)}` : " bytes";
  place.replaceChildren(make("h3", {}, `device ${device}`),
    ...(isPipeline ? [make("p", { class: "under-way", title: "under way: forward begun, backward not ended" }, told[0])] : []),
    memory(state, device, byPurpose),
    make("p", { class: "total" }, make("strong", {}, withCommas(state.bytes)), during),
    ...(sentInAll[device] ? [make("p", { class: "sent" }, told[told.length - 1])] : []),
    ...byPurpose.flatMap((tensors, i) => tensors.length ? [purposeOf(PURPOSES[i], tensors, device)] : []));
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
 * The stacked bar.
 * @param {import("./state.js").DeviceState} state @param {number} device @param {Held[][]} byPurpose
 */
function memory(state, device, byPurpose) {
  const bar = draw("svg", { class: "memory", viewBox: "0 0 200 16", preserveAspectRatio: "none",
    role: "img", "aria-label": `memory of device ${device}` });
  bar.append(draw("rect", { class: "room", x: 0, y: 3, width: 200, height: 10 }));
  let x = 0;
  byPurpose.forEach((tensors, i) => {
    const bytes = sum(tensors);
    if (!bytes) return;
    const width = (200 * bytes) / mostBytes;
    bar.append(draw("rect", { class: PURPOSES[i], x, y: 3, width: Math.max(width - 0.6, 0.4), height: 10 },
      draw("title", {}, `${PURPOSES[i]}: ${withCommas(bytes)} bytes`)));
    x += width;
  });
  const more = (200 * (state.most - state.bytes)) / mostBytes;
  if (more > 0) bar.append(draw("rect", { class: "during", x, y: 6, width: more, height: 4 }));
  const most = (200 * (play.peaks[device]?.[0] ?? 0)) / mostBytes;
  bar.append(draw("path", { class: "peak", d: `M${Math.min(most, 199.5)} 0v16` },
    draw("title", {}, `most: ${withCommas(play.peaks[device]?.[0] ?? 0)} bytes`)));
  return bar;
}

/** @param {Held[]} tensors */
function sum(tensors) {
  return tensors.reduce((bytes, tensor) => bytes + tensor.bytes, 0);
}

/**
 * The tensors of a purpose.
 * @param {string} purpose @param {Held[]} tensors @param {number} device
 */
function purposeOf(purpose, tensors, device) {
  const untouched = tensors.filter(({ mark }) => !mark), touched = tensors.filter(({ mark }) => mark);
  const head = make("h4", {}, make("span", { class: `key ${purpose}` }), purpose,
    make("span", {}, withCommas(sum(tensors))));
  const last = touched.slice(-TOUCHED), others = touched.slice(0, -TOUCHED);
  const isFolded = untouched.length > SHOWN;
  const rows = (isFolded ? last : tensors.filter((tensor) => !others.includes(tensor)));
  return make("div", { class: `purpose ${purpose}` }, head,
    ...(others.length ? [folded(`${purpose} touched`, `${others.length} more`, others, device)] : []),
    ...rows.map((tensor) => row(tensor, device)),
    ...(isFolded ? [folded(purpose, `${untouched.length} untouched`, untouched, device)] : []));
}

/**
 * Tensors that are shown when the reader asks.
 * @param {string} kind @param {string} words @param {Held[]} tensors @param {number} device
 */
function folded(kind, words, tensors, device) {
  const details = make("details", { class: "folded", open: unfolded.has(kind) }, make("summary", {}, words));
  const fill = () => details.append(...tensors.map((tensor) => row(tensor, device)));
  if (details.open) fill();
  details.addEventListener("toggle", () => {
    if (details.open) unfolded.add(kind); else unfolded.delete(kind);
    if (details.open && details.childElementCount === 1) fill();
  });
  return details;
}

/** @param {Held} tensor @param {number} device */
function row(tensor, device) {
  return tensor.drawn ??= drawRow(tensor, device);
}

/**
 * One tensor, as a rectangle.
 * @param {Held} tensor @param {number} device
 */
function drawRow(tensor, device) {
  const layout = tensor.layout === null ? null : record.layouts[tensor.layout];
  const letters = layout ? lettersOf(layout).join(" ") : "";
  const sizes = tensor.shape ? shapeOf(tensor.shape) : `${withCommas(tensor.bytes)} bytes`;
  const isPart = layout && tensor.shape && shapeOf(layout.whole) !== shapeOf(tensor.shape);
  const axes = layout ? layout.axes.map((axis, i) => `${lettersOf(layout)[i]} over ${axis}`) : [];
  const title = [`${tensor.name || tensor.by} ${sizes}${isPart ? ` of ${shapeOf(layout.whole)}` : ""}`, ...axes,
    `${withCommas(tensor.bytes)} bytes`].join("; ");
  const made = /receive/.test(tensor.by) ? "received" : tensor.by || "memory";
  const name = tensor.name ? make("b", {}, tensor.name) : make("i", {}, made);
  const told = make("small", {}, ...(letters ? [make("b", {}, letters), " "] : []), sizes);
  const head = make("span", { class: "head" }, name, make("span", { class: "mark" }, tensor.mark));
  const inside = [slice(layout, device), make("span", { class: "name" }, head, told)];
  if (tensor.values) inside.push(valuesIn(tensor.values));
  const attributes = { class: `tensor ${tensor.mark}`, title };
  return tensor.step === null ? make("div", attributes, ...inside) :
    make("a", { ...attributes, href: `#step=${tensor.step}`, "data-step": tensor.step }, ...inside);
}

/**
 * The first values, in a line; all of them where the reader points.
 * @param {(number | null)[]} values
 */
function valuesIn(values) {
  const words = values.map((value) => (value === null ? "not finite" : String(Number(value.toPrecision(3)))));
  return make("small", { class: "values", title: words.join(" ") }, words.slice(0, 8).join(" "));
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
