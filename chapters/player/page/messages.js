// Which device sends how many bytes to which in the shown steps, and which devices compute.
import { draw, find, withCommas } from "./drawing.js";
import { doneIn, numDevices, play } from "./record.js";

const HEIGHT = 108, BASE = 70;

/**
 * `width`: of their place, which is measured only when it changes.
 * @param {number} from @param {number} to @param {Set<number>} active @param {number} width
 */
export function showMessages(from, to, active, width) {
  const x = (/** @type {number} */ device) => ((device + 0.5) * width) / numDevices;
  const { sent, received } = messagesIn(from, to);
  const drawing = draw("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img",
    "aria-label": "messages between devices" });
  const isFew = sent.length <= Math.max(numDevices, 4);
  const isNamed = isFew && width / numDevices > 60;
  for (const message of sent.filter(({ to }) => to >= 0)) drawing.append(...arrow(message, x, isNamed, false));
  for (const message of received) drawing.append(...arrow(message, x, false, true));
  const space = width / numDevices;
  for (let device = 0; device < numDevices; ++device) drawing.append(...node(device, x(device), space, active, sent));
  find("messages").replaceChildren(drawing);
}

/** @typedef {{from: number, to: number, messages: number, bytes: number}} Message */

/**
 * All messages of these steps, added up by their ends.
 * @param {number} from @param {number} to
 */
function messagesIn(from, to) {
  /** @type {Map<string, Message>} */
  const sums = new Map();
  /** @type {Message[]} */
  const received = [];
  for (let at = from; at <= to; ++at) {
    const step = play.steps[at];
    for (const item of step.items)
      for (const event of doneIn(step, item)) {
        const device = item[0];
        for (const [peer, messages, bytes] of event.sends) {
          const ends = `${device}>${peer}`;
          const sum = sums.get(ends) ?? { from: device, to: peer, messages: 0, bytes: 0 };
          sums.set(ends, { ...sum, messages: sum.messages + messages, bytes: sum.bytes + bytes });
        }
        const isAlone = event.what.function === "receive" && step.items.length === 1;
        if (isAlone && event.what.peer !== undefined)
          received.push({ from: event.what.peer, to: device, messages: 0, bytes: 0 });
      }
  }
  const sent = [...sums.values()];
  return { sent, received: received.filter((one) => !sums.has(`${one.from}>${one.to}`)) };
}

/** @param {Message} message @param {(device: number) => number} x @param {boolean} isNamed @param {boolean} isOld */
function arrow({ from, to, bytes, messages }, x, isNamed, isOld) {
  const side = from < to ? 1 : -1;
  const [a, b] = [x(from) + 5 * side, x(to) - 5 * side];
  const high = BASE - 16 - Math.min(42, 18 + 11 * Math.abs(to - from)) + (side < 0 ? -13 : 6);
  const count = `${messages} message${messages === 1 ? "" : "s"}`;
  const path = draw("path", { class: isOld ? "message old" : "message", "marker-end": "url(#head)",
    d: `M${a} ${BASE - 15}C${a + 12 * side} ${high} ${b - 12 * side} ${high} ${b} ${BASE - 15}` },
    draw("title", {}, `device ${from} to ${to}: ${withCommas(bytes)} bytes, ${count}`));
  const top = (BASE - 15) / 4 + (3 * high) / 4;
  return isNamed ? [path, draw("text", { class: "bytes", x: (a + b) / 2, y: top - 4 }, withCommas(bytes))] : [path];
}

/**
 * @param {number} device @param {number} x @param {number} space @param {Set<number>} active
 * @param {Message[]} sent
 */
function node(device, x, space, active, sent) {
  const bytes = sent.filter((one) => one.from === device).reduce((all, one) => all + one.bytes, 0);
  const radius = Math.min(13, space / 2 - 2);
  const kind = `node of${device % 8}${active.has(device) ? " active" : ""}`;
  const parts = [draw("circle", { class: kind, cx: x, cy: BASE, r: radius }),
    draw("text", { class: "number", x, y: BASE + 4 }, String(device))];
  const words = space > 125 ? `sends ${withCommas(bytes)} bytes` : withCommas(bytes);
  if (bytes && space > 44) parts.push(draw("text", { class: "sum", x, y: BASE + 30 }, words));
  return parts;
}
