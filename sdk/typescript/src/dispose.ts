/** The symbol of `await using`, which the first releases of Node 20 do not have yet. */

const known: { asyncDispose?: symbol } = Symbol;
if (known.asyncDispose === undefined) {
  Object.defineProperty(Symbol, "asyncDispose", { value: Symbol.for("nodejs.asyncDispose") });
}

export {};
