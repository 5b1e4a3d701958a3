// In the worker: runs one command, and makes the page of its record. The module's own JavaScript, `texts` and the
// translated program stand before this.
/* global Shardbook, texts, join, record */

/** Bytes as lines of text. The program's output is no terminal, so no line is written over another one. */
function lines(isError) {
  let bytes = [];
  return (byte) => {
    if (byte !== 10 && byte !== null) return void bytes.push(byte & 255);
    postMessage({ line: new TextDecoder().decode(new Uint8Array(bytes)), isError });
    bytes = [];
  };
}

onmessage = async ({ data: { module, devices, words, files } }) => {
  const begun = performance.now();
  let hasEnded = false, engine;

  const file = (path) => {
    try {
      return engine.FS.readFile(path, { encoding: "utf8" });
    } catch {
      return null;  // the command writes none
    }
  };
  /** Says how the command has ended, and then what its record shows. */
  const end = (code) => {
    if (hasEnded) return;
    hasEnded = true;
    postMessage({ code, report: file("/report.json"), milliseconds: performance.now() - begun });
    const text = file("/record.json");
    postMessage({ record: text, page: text && new join.Page(new record.Record(text, "", null), "").text(" framed") });
  };
  const fail = (error) => { if (!hasEnded) postMessage({ failure: String(error?.stack ?? error) }); };

  try {
    engine = await Shardbook({
      stdout: lines(false), stderr: lines(true), quit: (code, error) => { end(code); throw error; },
      onFibreError: fail,
      instantiateWasm: (imports, done) => {
        WebAssembly.instantiate(module, imports).then((instance) => done(instance, module), fail);
        return {};
      },
      preRun: [({ ENV, FS }) => {
        ENV.SHARDBOOK_DEVICES = String(devices);
        FS.mkdir("/data");
        for (const [name, text] of Object.entries({ ...texts.data, ...files })) FS.writeFile(`/data/${name}`, text);
      }],
    });
    const bytes = new TextEncoder().encode(words.map((word) => `${word}\n`).join("") + "\0");
    const at = engine._malloc(bytes.length);
    engine.HEAPU8.set(bytes, at);
    end(await engine.promising(engine._shard_command())(at));
  } catch (error) {
    fail(error);
  }
};
