// What each device holds after a step.
import { eventAt, play, record, sectionOf } from "./record.js";

/**
 * A tensor of a device, another object after each change. `mark`: what the shown steps did with it; `step`: which one
 * wrote it last.
 * @typedef {Readonly<{id: number, name: string, by: string, shape: number[] | null, layout: number | null,
 *   purpose: string, bytes: number, step: number | null, mark: "" | "used" | "made" | "changed",
 *   values: (number | null)[] | null}>} Held
 */
/**
 * `most`: the most bytes during the shown steps; `version`: another one after each change.
 * @typedef {{held: Map<number, Held>, bytes: number, most: number, version: number}} DeviceState
 */

/** @typedef {import("./record.js").Section} Section */
/** @typedef {import("./record.js").PlayedEvent} PlayedEvent */

const EVERY = 32;  // so many steps are played anew at most, to go back
/**
 * The state before the step `after`.
 * @typedef {{after: number, section: number, devices: DeviceState[]}} Snapshot
 */
/** @type {Snapshot[]} */
const snapshots = [];
let versions = 0;

/**
 * What devices hold when a section begins. A device that does not come to it keeps what it had.
 * @param {number} section @param {DeviceState[]} before @returns {DeviceState[]}
 */
function atFirst(section, before) {
  return record.devices.map((_, device) => {
    if (!sectionOf(device, section) && before[device]) return before[device];
    /** @type {DeviceState} */
    const state = { held: new Map(), bytes: 0, most: 0, version: ++versions };
    for (const one of sectionOf(device, section)?.held ?? []) {
      const { tensor: id, purpose, bytes, shape = null, layout = null } = one;
      const name = nameOf(sectionOf(device, section), id) || nameAt(one.line);
      state.held.set(id, { id, name, by: "", shape, layout, purpose, bytes, step: null, mark: "", values: null });
      state.bytes += bytes;
    }
    setValues(state, sectionOf(device, section), -1);
    state.most = state.bytes;
    return state;
  });
}

/**
 * The name that the source gives to a line's result.
 * @param {number | undefined} line
 */
function nameAt(line) {
  return line === undefined ? "" : play.assigned[line] ?? "";
}

/**
 * The parameters of each section.
 * @type {Map<Section, Set<number>>}
 */
const parametersOf = new Map();

/**
 * The name of a parameter or of the gradient of one.
 * @param {Section} section @param {number} id
 */
function nameOf(section, id) {
  const name = section.names[id] ?? "";
  if (!name) return "";
  let parameters = parametersOf.get(section);
  if (!parameters) {
    parameters = new Set(section.held.filter(({ purpose }) => purpose === "parameters").map(({ tensor }) => tensor));
    parametersOf.set(section, parameters);
  }
  return parameters.has(id) ? name : `grad ${name}`;
}

/** @param {DeviceState[]} devices */
function copyOf(devices) {
  return devices.map((state) => ({ ...state, held: new Map(state.held) }));
}

/**
 * The state that was shown last. The next step is played from it.
 * @type {Snapshot | null}
 */
let live = null;

/**
 * The state of all devices after the step `to`, with marks of the steps since `from`. Valid until the next call.
 * @param {number} from @param {number} to
 */
export function stateAfter(from, to) {
  const near = snapshots[Math.min(Math.floor(from / EVERY), snapshots.length - 1)];
  const goesOn = live !== null && live.after <= from && live.after >= (near?.after ?? 0);
  const start = goesOn ? live : near;
  let section = start?.section ?? 0;
  let devices = !start ? atFirst(0, []) : goesOn ? start.devices : copyOf(start.devices);
  for (let at = start ? start.after : 0; at <= to; ++at) {
    const step = play.steps[at];
    if (at === snapshots.length * EVERY) snapshots.push({ after: at, section, devices: copyOf(devices) });
    if (step.section !== section) devices = atFirst(section = step.section, devices);
    if (at <= from) forgetMarks(devices);
    playStep(step, at, devices);
  }
  live = { after: to + 1, section, devices };
  return devices;
}

/** @param {import("./record.js").Step} step @param {number} at @param {DeviceState[]} devices */
function playStep(step, at, devices) {
  for (const [device, begin, end] of step.items) {
    const section = sectionOf(device, step.section);
    for (let number = begin; number < end; ++number) {
      apply(devices[device], section, eventAt(section, number), at);
      setValues(devices[device], section, number);
    }
  }
}

/**
 * The values of each section by event.
 * @type {Map<Section, Map<number, import("./record.js").Values[]>>}
 */
const valuesOf = new Map();

/**
 * Gives small tensors the values that they have after an event.
 * @param {DeviceState} state @param {Section | undefined} section @param {number} event
 */
function setValues(state, section, event) {
  if (!section?.values?.length) return;
  let byEvent = valuesOf.get(section);
  if (!byEvent) {
    byEvent = new Map();
    for (const one of section.values) byEvent.set(one[0], [...(byEvent.get(one[0]) ?? []), one]);
    valuesOf.set(section, byEvent);
  }
  for (const [, id, values] of byEvent.get(event) ?? []) {
    const tensor = state.held.get(id);
    if (tensor) change(state, { ...tensor, values });
  }
}

/** @param {DeviceState[]} devices */
function forgetMarks(devices) {
  for (const device of devices) {
    if (device.most !== device.bytes) device.version = ++versions;
    device.most = device.bytes;
    for (const tensor of device.held.values()) if (tensor.mark) change(device, { ...tensor, mark: "" });
  }
}

/** @param {DeviceState} device @param {Held} tensor */
function change(device, tensor) {
  device.version = ++versions;
  device.held.set(tensor.id, tensor);
}

/** @param {DeviceState} device @param {Section} section @param {PlayedEvent} event @param {number} step */
function apply(device, section, event, step) {
  const { what } = event;
  device.version = ++versions;
  if (what.is === "made") {
    const bytes = what.bytes ?? 0;
    const id = event.from[0];
    device.held.set(id, { id, name: nameOf(section, id) || nameAt(what.line), by: "", shape: null, layout: null,
      purpose: what.purpose ?? "", bytes, step, mark: "made", values: null });
    device.bytes += bytes;
    device.most = Math.max(device.most, device.bytes);
    return;
  }
  const tensor = device.held.get(event.from[0]);
  if (what.is === "freed") {
    device.bytes -= tensor?.bytes ?? 0;
    device.held.delete(event.from[0]);
  } else if (what.is === "moved") {
    if (tensor) change(device, { ...tensor, purpose: what.purpose ?? "" });
  } else if (event.of !== null) {
    write(device, section, eventAt(section, event.of), step);
  } else {
    read(device, event);
    if (!event.isStarted) write(device, section, event, step);
  }
}

/** @param {DeviceState} device @param {import("./record.js").PlayedEvent} event */
function read(device, { what, from }) {
  const operands = Array.isArray(what.from) ? what.from : what.from ? [what.from] : [];
  from.forEach((id, i) => {
    const tensor = device.held.get(id);
    if (!tensor) return;
    const { shape = null, layout = null } = operands[i] ?? {};
    change(device, { ...tensor, mark: tensor.mark || "used", shape: tensor.shape ?? shape, layout: tensor.layout ?? layout });
  });
}

/** @param {DeviceState} device @param {Section} section @param {PlayedEvent} event @param {number} step */
function write(device, section, { what, to }, step) {
  const tensor = to === null ? undefined : device.held.get(to);
  if (!tensor) return;
  change(device, { ...tensor, name: nameOf(section, tensor.id) || nameAt(what.line) || tensor.name, by: what.function ?? "",
    shape: what.to?.shape ?? tensor.shape, layout: what.to?.layout ?? null, step, values: null,
    mark: tensor.mark === "made" ? "made" : "changed" });
}

/** The most bytes that any device ever has. */
export const mostBytes = Math.max(1, ...Object.values(play.peaks).map(([bytes]) => bytes));

/** The device that has most at once, with the step; whether all devices come to have as much. */
export const peak = Object.entries(play.peaks)
  .map(([device, [bytes, step]]) => ({ device: Number(device), bytes, step, isOnAll: false }))
  .reduce((most, one) => (one.bytes > most.bytes ? one : most), { device: 0, bytes: 0, step: 0, isOnAll: false });
peak.isOnAll = record.devices.every((_, device) => play.peaks[device]?.[0] === peak.bytes);
