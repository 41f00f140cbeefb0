/**
 * Shared libraries loaded at run time: their functions and data, and JavaScript functions that C can call. Declarations are not checked: a wrong one is a
 * SIGSEGV.
 *
 * A callback is a function pointer; its exceptions do not cross the frames of C. Callbacks are not for frequent calls from other threads: each such call waits
 * for the event loop (30 us).
 */

import { throwLater } from '../../ucs/debug/uncaught.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { dlsym, koffi } from './libc.ts';
import { allocateScratch } from './scratch.ts';

/** Parameter and result types of bound functions. Pointers are `int64_t` or `uint64_t`, passed and returned as Numbers. */
export type NativeType = 'void' | 'int' | 'int8_t' | 'int32_t' | 'uint32_t' | 'int64_t' | 'uint64_t' | 'double' | 'str';

const RTLD_NOW = 2;
/** Size of Dl_info, whose first field is the file name. */
const DL_INFO_BYTES = 32;

// The process itself: only since glibc 2.34 is dlopen in libc.so.6, before that in libdl.so.2, which Node.js has loaded.
const self = koffi.load(null);
const dlopen: (path: string, flags: number) => number = self.func('dlopen', 'int64_t', ['str', 'int']);
const dladdr: (address: number, info: number) => number = self.func('dladdr', 'int', ['int64_t', 'uint64_t']);
const dlerror: () => string = self.func('dlerror', 'str', []);

/** A loaded library. It cannot be closed, because a library may register objects with the process that outlive every call into it. */
export class DynamicLibrary {
  /** The name or path that opened it. */
  readonly name: string;
  readonly #library: ReturnType<typeof koffi.load>;
  readonly #handle: number;

  /**
   * @param names sonames (`libucp.so.0`), which the loader searches in its path, or paths; the first existing one is used
   * @throws UcxError ERR_LIBRARY_NOT_FOUND if none exists; ERR_LIBRARY_UNUSABLE if one exists and cannot be loaded, because it is for another platform or a
   *   dependency is missing. Both messages contain the error text of the loader.
   */
  constructor(names: readonly string[]) {
    const { name, handle } = openFirst(names);
    this.name = name;
    this.#handle = handle;
    // The loader counts this handle, and the one above is never closed: the library stays loaded at the end of a thread and after a garbage collection.
    this.#library = koffi.load(name);
  }

  /** Whether the library, or one of its dependencies, has this function or variable. */
  has(name: string): boolean {
    return dlsym(this.#handle, name) !== 0;
  }

  /**
   * Declares a function. Costs 13 us, and each call 10 to 40 ns more than in C. Missing arguments, and arguments of another type, throw a TypeError of koffi.
   * An integer result beyond 2^53 is a bigint.
   * @throws UcxError ERR_LIBRARY_SYMBOL
   */
  // biome-ignore lint/suspicious/noExplicitAny: the parameters of any function
  function<F extends (...values: any[]) => unknown>(name: string, result: NativeType, parameters: NativeType[]): F {
    if (!this.has(name)) throw this.#missing(name);
    return this.#library.func(name, result, parameters) as unknown as F;
  }

  /** The address of a function or variable. Throws UcxError ERR_LIBRARY_SYMBOL. */
  symbolAddress(name: string): number {
    const address = dlsym(this.#handle, name);
    if (address === 0) throw this.#missing(name);
    return address;
  }

  /** The file that contains a function or variable of the library, by the path that the loader used. Throws UcxError ERR_LIBRARY_SYMBOL. */
  fileOf(symbol: string): string {
    using info = allocateScratch(DL_INFO_BYTES);
    // Cannot fail: the address belongs to a loaded library.
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

/**
 * Declares the function at an address, for example from a function table that a library has filled in. Costs as much as {@link DynamicLibrary.function}.
 * @param address not 0; calling a wrong address ends the process
 */
// biome-ignore lint/suspicious/noExplicitAny: the parameters of any function
export function functionAt<F extends (...values: any[]) => unknown>(
  address: number,
  result: NativeType,
  parameters: NativeType[],
): F {
  return koffi.decode(address, koffi.proto(result, parameters));
}

/** The errno of the last foreign call of this thread. Only meaningful directly after a call that has failed and that sets errno. */
export function lastErrno(): number {
  return koffi.errno();
}

/** The zero-terminated string at an address. */
export function textAt(address: number): string {
  return koffi.decode.string(address);
}

function openFirst(names: readonly string[]): { name: string; handle: number } {
  const texts: string[] = [];
  for (const name of names) {
    const handle = dlopen(name, RTLD_NOW);
    if (handle !== 0) return { name, handle };
    const text = dlerror();
    // The loader names the missing file first: the name of a dependency if the library itself exists.
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
    message: `cannot find library ${names.join(' or ')}: ${texts.join('; ')}`,
    details: { library: names.join(', ') },
  });
}

/** Maximum number of parameters. */
const PARAMETERS_MAX = 6;

let openCount = 0;

/** Number of open {@link NativeCallback}s of this thread. */
export function openNativeCallbacks(): number {
  return openCount;
}

/** Function called by C. 64-bit integers are Numbers up to 2^53 and bigints beyond. */
// biome-ignore lint/suspicious/noExplicitAny: the parameters of any callback
export type NativeCallbackFunction = (...values: any[]) => unknown;

export interface NativeCallbackInit {
  readonly parameters: readonly NativeType[];
  readonly result: NativeType;
  /** Result that C gets if the function throws or does not return a number; omitted for void. */
  readonly fallback?: number;
  readonly call: NativeCallbackFunction;
}

/** A C function pointer that runs a JavaScript function (70 ns). There are at most 8192 at once, in all threads together. */
export class NativeCallback {
  /** The function pointer; calling it after {@link close} is undefined. */
  readonly address: number;
  #registration: bigint | undefined;

  /** @throws UcxError ERR_INVALID_PARAM for more than six parameters, or a missing fallback if there is a result */
  constructor(init: NativeCallbackInit) {
    const { parameters, result } = init;
    if (parameters.length > PARAMETERS_MAX) {
      throw invalidParam('parameters', `must be at most ${PARAMETERS_MAX}`, parameters.length);
    }
    if (result !== 'void' && init.fallback === undefined) {
      throw invalidParam('fallback', `must be given for a result of type ${result}`, init.fallback);
    }
    const proto = prototypeOf(result, parameters);
    this.#registration = koffi.register(result === 'void' ? guardedProcedure(init) : guardedFunction(init), proto);
    this.address = Number(this.#registration);
    openCount++;
  }

  /** Releases the pointer, which a later callback may reuse. Must not be called within the callback. Idempotent. */
  close(): void {
    if (this.#registration === undefined) return;
    koffi.unregister(this.#registration);
    this.#registration = undefined;
    openCount--;
  }
}

/** The pointer type of each signature: reused, because koffi never frees a type. */
const prototypes: Map<string, ReturnType<typeof koffi.pointer>> = new Map();

function prototypeOf(result: string, parameters: readonly string[]): ReturnType<typeof koffi.pointer> {
  const signature = [result, ...parameters].join();
  let proto = prototypes.get(signature);
  if (proto === undefined) {
    proto = koffi.pointer(koffi.proto(result, [...parameters]));
    prototypes.set(signature, proto);
  }
  return proto;
}

/** Explicit parameters: spreading them would create an array for each call. */
type Guarded = (a: unknown, b: unknown, c: unknown, d: unknown, e: unknown, f: unknown) => number | undefined;

function guardedProcedure({ call }: NativeCallbackInit): Guarded {
  return (a, b, c, d, e, f) => {
    try {
      call(a, b, c, d, e, f);
    } catch (error) {
      throwLater(error);
    }
    return undefined;
  };
}

function guardedFunction({ call, fallback }: NativeCallbackInit): Guarded {
  return (a, b, c, d, e, f) => {
    try {
      const result = call(a, b, c, d, e, f);
      if (typeof result === 'number') return result;
      throw invalidParam('call', 'must return a number', result);
    } catch (error) {
      throwLater(error);
      return fallback;
    }
  };
}
