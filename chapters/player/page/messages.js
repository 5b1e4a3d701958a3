// Which device sends how many bytes to which in the shown steps, and which devices compute.
import { draw, find, say, set, withCommas } from "./drawing.js";
import { doneIn, numDevices, play, record } from "./record.js";

const HEIGHT = 108, BASE = 70;

/**
 * The drawing, whose circles are kept as long as it is as wide.
 * @type {{width: number, place: SVGElement, arrows: SVGElement, nodes: {circle: SVGElement, sum: SVGElement}[]}}
 */
let drawn = { width: 0, place: draw("svg"), arrows: draw("g"), nodes: [] };

/** @param {number} device @param {number} width */
function xOf(device, width) {
  return ((device + 0.5) * width) / numDevices;
}

/** @param {number} width */
function drawNodes(width) {
  const arrows = draw("g"), radius = Math.min(13, width / numDevices / 2 - 2);
  const place = draw("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img",
    "aria-label": "messages between devices" }, arrows);
  const nodes = record.devices.map((_, device) => {
    const x = xOf(device, width), circle = draw("circle", { cx: x, cy: BASE, r: radius });
    const sum = draw("text", { class: "sum", x, y: BASE + 30 });
    place.append(circle, draw("text", { class: "number", x, y: BASE + 4 }, String(device)), sum);
    return { circle, sum };
  });
  find("messages").replaceChildren(place);
  drawn = { width, place, arrows, nodes };
}

/**
 * `width`: of their place, which is measured only when it changes.
 * @param {number} from @param {number} to @param {Set<number>} active @param {number} width
 */
export function showMessages(from, to, active, width) {
  if (width !== drawn.width) drawNodes(width);
  const { sent, received } = messagesIn(from, to);
  const isNamed = sent.length <= Math.max(numDevices, 4) && width / numDevices > 60;
  drawn.arrows.replaceChildren(
    ...sent.filter(({ to }) => to >= 0).flatMap((message) => arrow(message, width, isNamed, false)),
    ...received.flatMap((message) => arrow(message, width, false, true)));
  const sums = record.devices.map(() => 0);
  for (const { from, bytes } of sent) sums[from] += bytes;
  drawn.nodes.forEach(({ circle, sum }, device) => {
    set(circle, { class: `node of${device % 8}${active.has(device) ? " active" : ""}` });
    const words = width / numDevices > 125 ? `sends ${withCommas(sums[device])} bytes` : withCommas(sums[device]);
    say(sum, sums[device] && width / numDevices > 44 ? words : "");
  });
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
          let sum = sums.get(ends);
          if (!sum) sums.set(ends, sum = { from: device, to: peer, messages: 0, bytes: 0 });
          sum.messages += messages;
          sum.bytes += bytes;
        }
        const isAlone = event.what.function === "receive" && step.items.length === 1;
        if (isAlone && event.what.peer !== undefined)
          received.push({ from: event.what.peer, to: device, messages: 0, bytes: 0 });
      }
  }
  const sent = [...sums.values()];
  return { sent, received: received.filter((one) => !sums.has(`${one.from}>${one.to}`)) };
}

/** @param {Message} message @param {number} width @param {boolean} isNamed @param {boolean} isOld */
function arrow({ from, to, bytes, messages }, width, isNamed, isOld) {
  const side = from < to ? 1 : -1;
  const [a, b] = [xOf(from, width) + 5 * side, xOf(to, width) - 5 * side];
  const high = BASE - 16 - Math.min(42, 18 + 11 * Math.abs(to - from)) + (side < 0 ? -13 : 6);
  const count = `${messages} message${messages === 1 ? "" : "s"}`;
  const path = draw("path", { class: isOld ? "message old" : "message", "marker-end": "url(#head)",
    d: `M${a} ${BASE - 15}C${a + 12 * side} ${high} ${b - 12 * side} ${high} ${b} ${BASE - 15}` },
    draw("title", {}, `device ${from} to ${to}: ${withCommas(bytes)} bytes, ${count}`));
  const top = (BASE - 15) / 4 + (3 * high) / 4;
  return isNamed ? [path, draw("text", { class: "bytes", x: (a + b) / 2, y: top - 4 }, withCommas(bytes))] : [path];
}
