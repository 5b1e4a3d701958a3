// The source beside the devices: the lines around the one that runs.
import { find, make } from "./drawing.js";
import { doneIn, play, record } from "./record.js";

const AROUND = 8;

/**
 * The lines that run in each step, by its items.
 * @type {number[][][]}
 */
const linesOf = play.steps.map((step) => step.items.map((item) =>
  doneIn(step, item).flatMap(({ what: { line } }) => line ?? [])));

/**
 * The steps in which a line runs, by the number of the line.
 * @type {Map<number, number[]>}
 */
const stepsOfLine = new Map();
linesOf.forEach((lines, number) => {
  for (const line of lines.flat()) {
    const steps = stepsOfLine.get(line) ?? [];
    if (steps[steps.length - 1] !== number) steps.push(number);
    stepsOfLine.set(line, steps);
  }
});

/** The numbers of lines by "file:line". */
const numbers = new Map(record.lines.map(([file, line], number) => [`${file}:${line}`, number]));

/**
 * Shows where these steps are. `device`: whose line counts, if it has one.
 * @param {number} from @param {number} to @param {number | null} device
 */
export function showSource(from, to, device) {
  /** @type {number | undefined} */
  let current;
  /** @type {number | undefined} */
  let ofDevice;
  const also = new Set();
  for (let at = from; at <= to; ++at)
    linesOf[at].forEach((lines, i) => {
      for (const line of lines) also.add(current = line);
      if (play.steps[at].items[i][0] === device) ofDevice = lines[lines.length - 1] ?? ofDevice;
    });
  current = ofDevice ?? current;
  const place = find("source");
  if (current === undefined) return place.replaceChildren(make("p", { class: "soft" }, "This step has no line of the source."));
  const [file, middle] = record.lines[current];
  const name = record.files[file];
  const shown = textOf(name, middle).map(([number, text]) => lineOf(file, number, text, to, number === middle, also));
  place.replaceChildren(make("ol", { class: "code" }, ...shown));
  place.prepend(make("h3", {}, name.replace(/^.*\/(?=[^/]+\/[^/]+$)/, ""), make("span", {}, `line ${middle}`)));
}

/**
 * The lines around one, as far as the page has them.
 * @param {string} file @param {number} middle @returns {[number, string][]}
 */
function textOf(file, middle) {
  const isIn = (/** @type {[number, string]} */ [first, text]) =>
    first <= middle && middle < first + text.split("\n").length;
  const part = (play.sources[file] ?? []).find(isIn);
  if (!part) return [];
  return part[1].split("\n").map((text, i) => /** @type {[number, string]} */ ([part[0] + i, text]))
    .filter(([number]) => Math.abs(number - middle) <= AROUND);
}

/**
 * @param {number} file @param {number} number @param {string} text @param {number} now @param {boolean} isCurrent
 * @param {Set<number>} also
 */
function lineOf(file, number, text, now, isCurrent, also) {
  const line = numbers.get(`${file}:${number}`);
  const steps = (line === undefined ? null : stepsOfLine.get(line)) ?? [];
  const next = steps.find((step) => step > now) ?? steps[0];
  const [, code, comment] = /^(.*?)(\s*\/\/.*)?$/.exec(text) ?? ["", text, ""];
  const inside = [make("span", { class: "at" }, String(number)),
    make("span", { class: "text" }, code || " ", make("span", { class: "comment" }, comment ?? ""))];
  const kind = isCurrent ? "current" : line !== undefined && also.has(line) ? "also" : "";
  const whole = next === undefined ? make("span", { class: "line" }, ...inside) :
    make("a", { class: "line", href: `#step=${next}`, "data-step": next, title: `to step ${next}` }, ...inside);
  return make("li", { class: kind, "aria-current": isCurrent ? "true" : null }, whole);
}
