// The imports of fibre.cpp. A fibre's `go` resumes it, and its `back` resumes whom it suspends itself to. Each sets the
// pointer to the C stack of the one that goes on.
mergeInto(LibraryManager.library, {
  $shardFibres: "{}",
  // Later versions of Emscripten want to know that the pointer is used.
  $shardFibres__deps: ["$stackSave", "$stackRestore"].filter((name) => name in LibraryManager.library),
  // A function of the module, by its pointer: the linker shortens the names of exports.
  $shardFibres__postset: 'Module["promising"] = (pointer) => WebAssembly.promising(wasmTable.get(pointer));',

  shard_resume__deps: ["$shardFibres"],
  shard_resume__postset: "_shard_resume = new WebAssembly.Suspending(_shard_resume);",
  shard_resume: function (id, top, body) {
    return new Promise((back) => {
      const here = stackSave();
      const isNew = !shardFibres[id];
      const fibre = shardFibres[id] = shardFibres[id] || {};
      fibre.back = () => {
        stackRestore(here);
        back();
      };
      if (!isNew) return fibre.go();
      stackRestore(top);
      Module["promising"](body)(id).then(() => {
        delete shardFibres[id];
        fibre.back();
      }, Module["onFibreError"]);
    });
  },

  shard_suspend__deps: ["$shardFibres"],
  shard_suspend__postset: "_shard_suspend = new WebAssembly.Suspending(_shard_suspend);",
  shard_suspend: function (id) {
    return new Promise((go) => {
      const here = stackSave();
      const fibre = shardFibres[id];
      fibre.go = () => {
        stackRestore(here);
        go();
      };
      fibre.back();
    });
  },
});
