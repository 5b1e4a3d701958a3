// What a run has come to: the verdict, the curve of the loss, and the table of what devices sent and held.
import { draw, find, make, withCommas } from "../page/drawing.js";

/** @typedef {{measured: number[], formula: number[] | null}} Figure */
/**
 * @typedef {{losses: number[], max_ulp: number, ok: boolean, devices: number, bytes: Figure, messages: Figure,
 *   flops: Figure, peak: Figure, milliseconds: number, variant: string,
 *   curve: {steps: number, largest: number, wrong_step: number} | null}} Report
 */

const WIDTH = 480, HEIGHT = 190, LEFT = 44, BOTTOM = 24;

/**
 * A round number near a third of the largest loss.
 * @param {number} most
 */
function spacing(most) {
  const power = 10 ** Math.floor(Math.log10(most / 3 || 1));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => most / one <= 4) ?? most;
}

/** @param {[number, number][]} points [step, loss] @param {number} steps */
export function showCurve(points, steps) {
  const most = Math.max(...points.map(([, loss]) => loss).filter(Number.isFinite), 1e-9);
  const x = (/** @type {number} */ step) => LEFT + ((step - 1) / Math.max(steps - 1, 1)) * (WIDTH - LEFT - 70);
  const y = (/** @type {number} */ loss) => HEIGHT - BOTTOM - (loss / most) * (HEIGHT - BOTTOM - 12);
  const drawing = draw("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "the loss, step by step" });
  const every = spacing(most);
  for (let at = 0; at <= most; at += every)
    drawing.append(draw("path", { class: "grid", d: `M${LEFT} ${y(at)}H${WIDTH - 70}` }),
      draw("text", { x: LEFT - 7, y: y(at) + 4, "text-anchor": "end" }, String(Number(at.toPrecision(6)))));
  const drawn = points.filter(([, loss]) => Number.isFinite(loss));
  const [lastStep, lastLoss] = drawn[drawn.length - 1] ?? [1, 0];
  drawing.append(
    draw("polyline", { class: "loss", points: drawn.map(([step, loss]) => `${x(step)},${y(loss)}`).join(" ") }),
    draw("circle", { class: "last", cx: x(lastStep), cy: y(lastLoss), r: 3.2 }),
    draw("text", { x: x(lastStep) + 8, y: y(lastLoss) + 4 }, lastLoss.toFixed(4)),
    draw("text", { x: LEFT, y: HEIGHT - 6 }, "step 1"),
    draw("text", { x: WIDTH - 70, y: HEIGHT - 6, "text-anchor": "end" }, `step ${steps}`));
  find("curve").replaceChildren(drawing);
}

/** A row of the table: what is counted, the numbers, and whether they equal the formula. */
function row(/** @type {string} */ what, /** @type {Figure} */ { measured, formula }) {
  const isSame = measured.every((one) => one === measured[0]);
  const largest = Math.max(...measured);
  const number = isSame ? `${withCommas(largest)}${measured.length > 1 ? " on each" : ""}` :
    `${withCommas(largest)} on device ${measured.indexOf(largest)}`;
  const isMet = formula?.every((one, device) => one === measured[device]);
  const wrong = formula ? formula.findIndex((one, device) => one !== measured[device]) : -1;
  const mark = !formula ? "– no closed form" : isMet ? "= closed form" :
    `not ${withCommas(formula[wrong])} on device ${wrong}`;
  return make("tr", {}, make("th", {}, what), make("td", {}, number),
    make("td", { class: isMet === false ? "equals wrong" : "equals" }, mark));
}

/** @param {string} what @param {string} value @param {string} mark @param {boolean} isWrong */
function plain(what, value, mark, isWrong) {
  return make("tr", {}, make("th", {}, what), make("td", {}, value),
    make("td", { class: isWrong ? "equals wrong" : "equals" }, mark));
}

/** @param {Report} report */
function showTable(report) {
  const { losses, max_ulp: ulp } = report;
  find("table").replaceChildren(make("table", {},
    plain("loss", `${losses[0].toFixed(4)} to ${losses[losses.length - 1].toFixed(4)}`, report.curve ?
      (report.curve.wrong_step ? `differs in step ${report.curve.wrong_step}` : "= the unsharded network's") : "",
    Boolean(report.curve?.wrong_step)),
    plain("gradients", ulp ? `up to ${withCommas(ulp)} ulp` : "0 ulp", ulp ? "not the unsharded network's" :
      "= the unsharded network's", ulp !== 0),
    row("bytes sent, a step", report.bytes), row("messages, a step", report.messages),
    row("operations, a step", report.flops), row("bytes held at most", report.peak)));
}

/**
 * @param {string} strong @param {string} words @param {boolean} isWrong
 */
function say(strong, words, isWrong) {
  find("verdict").className = isWrong ? "wrong" : "";
  find("verdict").replaceChildren(make("strong", {}, strong), ` ${words}`);
  find("end").hidden = false;
}

/** @param {string} text */
function showError(text) {
  find("error").textContent = text;
  find("error").hidden = !text;
}

/** Shows that a run begins. */
export function clear() {
  find("end").hidden = true;
  showError("");
  find("curve").replaceChildren();
  find("table").replaceChildren();
}

/**
 * The end of a run: its exit code, its report and what it wrote.
 * @param {number} code @param {Report | null} report @param {string[]} printed @param {string[]} errors
 */
export function showEnd(code, report, printed, errors) {
  if (report) {
    showCurve(report.losses.map((loss, at) => [at + 1, loss]), report.losses.length);
    showTable(report);
    const figures = [report.bytes, report.messages, report.flops, report.peak];
    const formulas = figures.every(({ formula }) => formula) ?
      " Bytes, messages, operations and memory of each device equal their closed forms." : "";
    const same = "Output, dL/dx and all weight gradients are the unsharded network's in every bit.";
    if (report.ok) say("Equal.", same + formulas, false);
    else say("Not equal.", "A gradient, a loss or a figure is not what it should be:", true);
    const wrong = printed.filter((line) => /^ *(differs|loss curve|device \d|not as)/.test(line));
    showError(report.ok ? "" : wrong.join("\n"));
  } else if (code) {
    say(`The run failed with exit code ${code}.`, "", true);
    showError(errors.join("\n"));
  } else {
    say("Done.", "What it printed stands below.", false);
  }
}

/** @param {string} text */
export function showFailure(text) {
  say("The engine itself failed.", "This is a fault of the page or of the browser:", true);
  showError(text);
}
