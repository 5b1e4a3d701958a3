// The record, the steps that were made of it, and their types. docs/record.md says what the record has.
import { find } from "./drawing.js";

/** @typedef {{shape?: number[], layout?: number, transposed?: boolean}} Operand */
/**
 * @typedef {{is: string, line?: number, function?: string, purpose?: string, bytes?: number, group?: number,
 *   peer?: number, from?: Operand | Operand[], to?: Operand}} What
 */
/** @typedef {{phase?: string, micro_batch?: number, stage?: number, block?: string}} Context */
/**
 * @typedef {{axes: string[], letters: string[] | string, whole: number[],
 *   parts: Record<string, [number, number][]>}} Layout
 */
/**
 * @typedef {{tensor: number, purpose: string, bytes: number, shape?: number[], layout?: number,
 *   line?: number}} HeldAtFirst
 */
/**
 * What a small tensor has after an event; -1: at first.
 * @typedef {[number, number, (number | null)[]]} Values
 */
/**
 * @typedef {{name: string, held: HeldAtFirst[], names: Record<string, string>, events: any[][],
 *   values?: Values[]}} Section
 */
/**
 * @typedef {{job: Record<string, any>, files: string[], lines: [number, number][],
 *   groups: {name: string, members: number[]}[], layouts: Layout[], contexts: Context[],
 *   sends: [number, number, number][][], what: What[], devices: {device: number, sections: Section[]}[]}} RunRecord
 */
/**
 * What a device does in a step: [device, first event, event behind the last, begin, end in the order].
 * @typedef {number[]} Item
 */
/** @typedef {{kind: "compute" | "call" | "wait", section: number, context: number, items: Item[], group?: number,
 *   call?: string, open?: boolean}} Step */
/**
 * A run of steps: [first step, words, sentence].
 * @typedef {[number, string, string]} Group
 */
/** @typedef {{questions: import("./lesson.js").Question[], stops: import("./lesson.js").Stop[]}} Lesson */
/**
 * `idle`: of a pipeline, the percent of time that each device idles. `underWay`: for each device of a pipeline
 * [micro-batch, first step, last step].
 * @typedef {{steps: Step[], words: string[], groups: Group[], peaks: Record<string, [number, number]>,
 *   assigned: Record<string, string>, sources: Record<string, [number, string][]>, idle: number[],
 *   underWay: [number, number, number][][], lesson: Lesson}} Play
 */
/**
 * An event with what its numbers stand for.
 * @typedef {{what: What, context: Context, t: number | null, took: number, from: number[], to: number | null,
 *   of: number | null, sends: [number, number, number][], isStarted: boolean}} PlayedEvent
 */

/** @type {RunRecord} */
export const record = JSON.parse(find("record").textContent ?? "");
/** @type {Play} */
export const play = JSON.parse(find("play").textContent ?? "");
export const numDevices = record.devices.length;

/** @param {number} device @param {number} section @returns {Section} */
export function sectionOf(device, section) {
  return record.devices[device].sections[section];
}

/**
 * The events of sections, as far as they were asked for.
 * @type {Map<Section, PlayedEvent[]>}
 */
const played = new Map();

/** @type {never[]} */
const NONE = [];

/** @param {Section} section @param {number} number */
export function eventAt(section, number) {
  let events = played.get(section);
  if (!events) played.set(section, events = []);
  return events[number] ??= eventOf(section.events[number]);
}

/** @param {any[]} row @returns {PlayedEvent} */
function eventOf(row) {
  const what = record.what[row[0]], kind = what.is;
  const isMemory = kind === "made" || kind === "freed" || kind === "moved", isCall = kind === "call";
  const from = isMemory ? [row[1]] : kind === "operation" ? row[4] : isCall && row[4] !== null ? [row[4]] : NONE;
  return { what, context: isMemory ? {} : record.contexts[row[1]], t: isMemory ? null : row[2],
    took: isMemory ? 0 : Math.max(row[3] ?? 0, 0), from, to: kind === "operation" || isCall ? row[5] : null,
    of: kind === "wait" ? row[4] : null, sends: isCall ? record.sends[row[7]] : NONE,
    isStarted: isCall && row[3] === null };
}

/**
 * The events of items that computed or called.
 * @type {Map<Item, PlayedEvent[]>}
 */
const done = new Map();

/** @param {Step} step @param {Item} item */
export function doneIn(step, item) {
  const known = done.get(item);
  if (known) return known;
  const [device, begin, end] = item, section = sectionOf(device, step.section), timed = [];
  for (let number = begin; number < end; ++number) {
    const event = eventAt(section, number);
    if (event.t !== null) timed.push(event);
  }
  done.set(item, timed);
  return timed;
}

/**
 * Where a step belongs.
 * @param {Step} step @returns {Context}
 */
export function contextOf(step) {
  return record.contexts[step.context] ?? {};
}

/**
 * The letters of a layout, one for each axis.
 * @param {Layout} layout
 */
export function lettersOf(layout) {
  return Array.isArray(layout.letters) ? layout.letters : [layout.letters];
}
