// The engine: a WebAssembly module that is in the page. Each command runs in a worker of its own, so that the page
// stays alive, and so that it can be stopped.
import { find } from "../page/drawing.js";

/**
 * What the worker says: a line of output, the end, the page of the record.
 * @typedef {{line?: string, isError?: boolean, code?: number, report?: string | null, milliseconds?: number,
 *   record?: string | null, page?: string | null, failure?: string}} Told
 */

/** What the browser lacks to run the engine; empty: nothing. */
function lacking() {
  if (!("DecompressionStream" in window)) return "streams that decompress";
  return "Suspending" in WebAssembly ? "" : "JavaScript Promise Integration for WebAssembly";
}

/** Whether the browser can run the engine. Where it cannot, the page says so, and its button is off. */
export function isAble() {
  const missing = lacking();
  find("lacks").hidden = !missing;
  if (missing)
    find("lacks").textContent = `This browser lacks ${missing}. Chrome can run the page from version 137 on, ` +
      "Firefox from 153 on, and Safari from 27 on. The command above does the same in a shell.";
  /** @type {HTMLButtonElement} */ (find("start")).disabled = Boolean(missing);
  return !missing;
}

/** @param {string} id */
function inflated(id) {
  const packed = Uint8Array.from(atob(find(id).textContent ?? ""), (character) => character.charCodeAt(0));
  const inflating = new /** @type {any} */ (window).DecompressionStream("gzip");
  return new Response(new Blob([packed]).stream().pipeThrough(inflating));
}

/** @type {Promise<{module: WebAssembly.Module, source: string}> | undefined} */
let loading;

/** The module, and what a worker runs; made once. */
function loaded() {
  loading ??= (async () => {
    const [texts, bytes] = await Promise.all([inflated("texts").text(), inflated("module").arrayBuffer()]);
    const { program } = JSON.parse(texts);
    const source = URL.createObjectURL(new Blob([`const texts = ${texts};\n`, program], { type: "text/javascript" }));
    return { module: await WebAssembly.compile(bytes), source };
  })();
  return loading;
}

/** @type {Worker | undefined} */
let worker;

export function stop() {
  worker?.terminate();
  worker = undefined;
}

/**
 * Runs `shardbook WORDS` on so many devices. Whatever ran before is stopped. `files`: texts that lie in /data.
 * @param {number} devices @param {string[]} words @param {(told: Told) => void} heard
 * @param {Record<string, string>} [files]
 */
export async function run(devices, words, heard, files = {}) {
  stop();
  try {
    const { module, source } = await loaded();
    stop();
    const mine = worker = new Worker(source);
    mine.onmessage = ({ data }) => { if (worker === mine) heard(data); };
    mine.onerror = ({ message }) => heard({ failure: message });
    mine.postMessage({ module, devices, words, files });
  } catch (error) {
    heard({ failure: String(error) });
  }
}
