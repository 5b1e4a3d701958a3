// A row for each variant: memory as a bar to scale, and the formulas with their numbers.
import { find, make, withCommas } from "../page/drawing.js";

/**
 * @typedef {{parameters: number, gradients: number, state: number, peak: number, bytes: number, messages: number,
 *   flops: number}} Device
 */
/** @typedef {{memory: number, operations: number, bytes: number}} Rates of a device: bytes, and both a second */

const GIB = 2 ** 30;
const gib = (/** @type {number} */ bytes) => `${(bytes / GIB).toFixed(2)} GiB`;
const seconds = (/** @type {number} */ time) => `${Number(time.toPrecision(3))} s`;
const largest = (/** @type {Device[]} */ all, /** @type {keyof Device} */ what) => Math.max(...all.map((one) => one[what]));

/**
 * The parameters of a decoder: the formula with its numbers, and what it gives. None for another kind of network.
 * @param {any} config @returns {[string, number] | null}
 */
function parametersOf(config) {
  if (!["mistral", "mixtral", "llama"].includes(config.model_type)) return null;
  const { vocab_size: V, hidden_size: D, intermediate_size: F, num_hidden_layers: L, num_attention_heads: H } = config;
  const K = config.num_key_value_heads ?? H, d = config.head_dim ?? D / H, E = config.num_local_experts ?? 0;
  const tables = config.tie_word_embeddings ? 1 : 2, w = withCommas;
  const block = 2 * D + D * d * (2 * H + 2 * K) + 3 * D * F * Math.max(E, 1) + D * E;
  const ofExperts = E ? ` × ${E} experts + ${w(D)} × ${E}` : "";
  return [`${tables} × ${w(V)} × ${w(D)} + ${w(D)} + ${L} blocks × (2 × ${w(D)} + ${w(D)} × ${d} × (2 × ${H} + 2 × ${K}) + ` +
    `3 × ${w(D)} × ${w(F)}${ofExperts})`, tables * V * D + D + L * block];
}

/**
 * The bar of the device that holds most.
 * @param {Device} device @param {number} most @param {number} memory
 */
function bar(device, most, memory) {
  const parts = { parameters: device.parameters, gradients: device.gradients, state: device.state,
    rest: device.peak - device.parameters - device.gradients - device.state };
  let begin = 0;
  const spans = Object.entries(parts).map(([name, bytes]) => {
    const span = make("span", { class: name, style: `left:${(100 * begin) / most}%;width:${(100 * bytes) / most}%`,
      title: `${name}: ${gib(bytes)}` }, bytes > 0.06 * most ? `${name} ${(bytes / GIB).toFixed(1)}` : "");
    begin += bytes;
    return span;
  });
  const told = Object.entries(parts).map(([name, bytes]) => `${name} ${gib(bytes)}`).join(", ");
  return make("div", { class: "scale", role: "img", "aria-label": told }, ...spans, begin > most ? make("b", {}, "→") : "",
    make("i", { style: `left:${(100 * memory) / most}%`, title: `a device has ${gib(memory)}` }));
}

/**
 * What the colours of the bars are.
 * @param {number} memory
 */
function legend(memory) {
  const names = { parameters: "parameters", gradients: "gradients", state: "Adam’s state", rest: "the rest" };
  return make("p", { class: "legend soft" }, ...Object.entries(names).map(([name, words]) =>
    make("span", {}, make("span", { class: `key ${name}` }), words)),
  make("span", {}, make("i", {}), `what a device has, ${gib(memory)}`));
}

/** @param {string} what @param {string} formula @returns {Node[]} */
const line = (what, formula) => [make("dt", {}, what), make("dd", {}, formula)];

/**
 * @param {Device} device that holds most @param {Device[]} all @param {number} whole of its network's parameters, 0: unknown
 * @param {Rates} rates
 */
function formulas(device, all, whole, rates) {
  const rest = device.peak - device.parameters - device.gradients - device.state, w = withCommas;
  const share = whole ? `, 1/${Number((whole / (device.parameters / 4)).toPrecision(4))} of the network's ${w(whole)}` : "";
  const flops = largest(all, "flops"), bytes = largest(all, "bytes");
  return make("details", {}, make("summary", {}, "the numbers"), make("dl", {},
    ...line("parameters", `${w(device.parameters / 4)} numbers${share} × 4 bytes = ${w(device.parameters)} bytes`),
    ...line("gradients", `${w(device.gradients / 4)} numbers × 4 bytes = ${w(device.gradients)} bytes`),
    ...line("Adam's state", `two moments: ${w(device.state / 8)} × 2 × 4 bytes = ${w(device.state)} bytes`),
    ...line("at most", `${w(device.parameters)} + ${w(device.gradients)} + ${w(device.state)} + ${w(rest)} of activations and ` +
      `buffers = ${w(device.peak)} bytes`),
    ...line("computing", `${w(flops)} operations / ${w(rates.operations)} a second = ${seconds(flops / rates.operations)}`),
    ...line("sending", `${w(bytes)} bytes in ${w(largest(all, "messages"))} messages / ${w(rates.bytes)} a second = ` +
      seconds(bytes / rates.bytes))));
}

/**
 * Shows all variants, those that need least memory first. Returns what is said of all: in bold, plainly, and small.
 * @param {Record<string, Device[]>} costs @param {number} devices @param {any} config @param {Rates} rates
 * @returns {[string, string, string]}
 */
export function showCosts(costs, devices, config, rates) {
  const rows = Object.entries(costs).map(([name, all]) =>
    ({ name, all, fullest: all.reduce((one, other) => (other.peak > one.peak ? other : one)) }));
  rows.sort((one, other) => one.fullest.peak - other.fullest.peak);
  const formula = parametersOf(config);
  const single = rows.find(({ name }) => name.endsWith("single"));
  const whole = single ? single.fullest.parameters / 4 : formula?.[1] ?? 0;
  const most = 1.02 * Math.max(rates.memory, ...rows.filter((one) => one !== single).map(({ fullest }) => fullest.peak));
  find("table").replaceChildren(legend(rates.memory), ...rows.map(({ name, all, fullest }) => {
    const over = fullest.peak - rates.memory;
    return make("section", { class: "way" },
      make("h2", {}, name, make("span", { class: "most" }, `at most ${gib(fullest.peak)} on a device`),
        make("span", { class: over > 0 ? "most over" : "most" }, over > 0 ? `✗ ${gib(over)} too much` : "✓ fits")),
      bar(fullest, most, rates.memory),
      make("div", { class: "sums" }, make("span", {}, `sends ${gib(largest(all, "bytes"))}`),
        make("span", {}, `${withCommas(largest(all, "messages"))} messages`),
        make("span", {}, `computing ${seconds(largest(all, "flops") / rates.operations)}`),
        make("span", {}, `sending ${seconds(largest(all, "bytes") / rates.bytes)}`)),
      formulas(fullest, all, whole, rates));
  }));
  const fits = rows.filter(({ fullest }) => fullest.peak <= rates.memory).map(({ name }) => name);
  const counted = formula && single ? (formula[1] === whole ? ", as counted" : `, but ${withCommas(whole)} are counted`) : "";
  return [whole ? `${withCommas(whole)} parameters.` : "Counted.",
    `On ${devices} devices with ${gib(rates.memory)} each, ${fits.length ? fits.join(" and ") : "nothing here"} ${
      fits.length > 1 ? "fit" : "fits"}.`,
    formula ? `${formula[0]} = ${withCommas(formula[1])}${counted}` : ""];
}
