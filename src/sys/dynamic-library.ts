/**
 * Shared libraries of the machine that are found while the program runs: opening, functions, addresses of data. Not functions of the C library that
 * sys itself calls (libc.ts), and nothing that checks arguments: a function that is declared wrongly is a SIGSEGV.
 */

import './platform.ts';
import koffi from 'koffi';
import { UcxError } from '../ucs/type/error.ts';
import { Status } from '../ucs/type/status.ts';
import { allocateScratch } from './scratch.ts';

/** The types of parameters and results that libraries are bound with. Pointers are `int64_t` or `uint64_t`, passed and returned as Numbers. */
export type NativeType = 'void' | 'int' | 'int8_t' | 'int32_t' | 'uint32_t' | 'int64_t' | 'uint64_t' | 'double' | 'str';

const RTLD_NOW = 2;
/** Dl_info: the name of the file comes first. */
const DL_INFO_BYTES = 32;

// Of this very process: dlopen is in libc.so.6 since glibc 2.34 only, before in libdl.so.2, which Node.js has loaded then.
const self = koffi.load(null);
const dlopen: (path: string, flags: number) => number = self.func('dlopen', 'int64_t', ['str', 'int']);
const dlsym: (library: number, name: string) => number = self.func('dlsym', 'int64_t', ['int64_t', 'str']);
const dladdr: (address: number, info: number) => number = self.func('dladdr', 'int', ['int64_t', 'uint64_t']);
const dlerror: () => string = self.func('dlerror', 'str', []);

/** A loaded library. There is no closing: what a library has registered with the process outlives every call into it. */
export class DynamicLibrary {
  /** The name or path it was opened by. */
  readonly name: string;
  readonly #library: ReturnType<typeof koffi.load>;
  readonly #handle: number;

  /**
   * @param names sonames (`libucp.so.0`), which the loader looks for in its path, or paths; the first one that is there is taken
   * @throws UcxError ERR_LIBRARY_NOT_FOUND when none is there; ERR_LIBRARY_UNUSABLE when one is there and cannot be loaded: no library of this
   *   machine, or something that it needs is missing. Both have the text of the loader.
   */
  constructor(names: readonly string[]) {
    const { name, handle } = openFirst(names);
    this.name = name;
    this.#handle = handle;
    // The loader counts this opening, and the one above is never closed: no end of a thread, and no collection, unloads the library.
    this.#library = koffi.load(name);
  }

  /** Whether the library, or one that it needs, has this function or datum. */
  has(name: string): boolean {
    return dlsym(this.#handle, name) !== 0;
  }

  /**
   * Declares a function: 13 us, then 10 to 40 ns a call more than in C. What is not passed, or of another type, throws a TypeError of koffi.
   * An integer result beyond 2^53 is a bigint.
   * @throws UcxError ERR_LIBRARY_SYMBOL
   */
  // biome-ignore lint/suspicious/noExplicitAny: the parameters of any function
  function<F extends (...values: any[]) => unknown>(name: string, result: NativeType, parameters: NativeType[]): F {
    if (!this.has(name)) throw this.#missing(name);
    return this.#library.func(name, result, parameters) as unknown as F;
  }

  /** Where a function or datum lies. Throws UcxError ERR_LIBRARY_SYMBOL. */
  symbolAddress(name: string): number {
    const address = dlsym(this.#handle, name);
    if (address === 0) throw this.#missing(name);
    return address;
  }

  /** The file that a function or datum of the library is in: with links in its name, as the loader has found it. Throws UcxError ERR_LIBRARY_SYMBOL. */
  fileOf(symbol: string): string {
    using info = allocateScratch(DL_INFO_BYTES);
    // It is one of a loaded library: its file is known.
    dladdr(this.symbolAddress(symbol), info.address);
    return textAt(Number(info.view.getBigUint64(0, true)));
  }

  #missing(symbol: string): UcxError {
    return new UcxError({
      code: 'ERR_LIBRARY_SYMBOL',
      status: Status.NO_ELEM,
      message: `library ${this.name} has no symbol ${symbol}`,
      details: { library: this.name, symbol },
    });
  }
}

/** The text at an address, up to the zero byte. */
export function textAt(address: number): string {
  return koffi.decode.string(address);
}

function openFirst(names: readonly string[]): { name: string; handle: number } {
  const texts: string[] = [];
  for (const name of names) {
    const handle = dlopen(name, RTLD_NOW);
    if (handle !== 0) return { name, handle };
    const text = dlerror();
    // What is not there is named first. A library that is there and misses another one is reported with the name of that other one.
    if (!text.startsWith(`${name}: cannot open shared object file: No such file`)) {
      throw new UcxError({
        code: 'ERR_LIBRARY_UNUSABLE',
        status: Status.UNSUPPORTED,
        message: `library ${name} cannot be loaded: ${text}`,
        details: { library: name },
      });
    }
    texts.push(text);
  }
  throw new UcxError({
    code: 'ERR_LIBRARY_NOT_FOUND',
    status: Status.NO_ELEM,
    message: `no library ${names.join(', ')}: ${texts.join('; ')}`,
    details: { library: names.join(', ') },
  });
}
