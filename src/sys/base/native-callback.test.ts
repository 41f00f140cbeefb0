import { afterAll, describe, expect, it } from 'vitest';
import { CompilerFolder, compilerSkipReason } from '../../../test/fixtures/libucp/c-library.ts';
import { useUncaught } from '../../../test/fixtures/processes/uncaught.ts';
import { DynamicLibrary, functionAt, NativeCallback, openNativeCallbacks } from './dynamic-library.ts';
import { allocateScratch } from './scratch.ts';

const libc = new DynamicLibrary(['libc.so.6']);
const qsort = libc.function<(base: number, count: number, size: number, compare: number) => void>('qsort', 'void', [
  'uint64_t',
  'uint64_t',
  'uint64_t',
  'uint64_t',
]);

const reason = compilerSkipReason();
if (reason !== undefined) console.info(`libraries of C not compiled: ${reason}`);
const folder = new CompilerFolder();
afterAll(() => folder[Symbol.dispose]());

const uncaught = useUncaught();

function nextIteration(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Sorts with a JavaScript comparison of values at addresses. */
function sorted(values: readonly number[], compare: (left: number, right: number) => unknown): number[] {
  using block = allocateScratch(values.length * 4);
  block.words.set(values);
  const callback = new NativeCallback({
    parameters: ['uint64_t', 'uint64_t'],
    result: 'int',
    fallback: 0,
    call: (left: number, right: number) =>
      compare(block.words[(left - block.address) / 4] ?? 0, block.words[(right - block.address) / 4] ?? 0),
  });
  qsort(block.address, values.length, 4, callback.address);
  callback.close();
  callback.close();
  return [...block.words];
}

describe('NativeCallback', () => {
  it('is called by C, with addresses as numbers', () => {
    expect(sorted([3, 1, 2], (left, right) => left - right)).toEqual([1, 2, 3]);
    expect(sorted([3, 1, 2], (left, right) => right - left)).toEqual([3, 2, 1]);
  });

  it('keeps exceptions out of C, which receives the fallback', async () => {
    const error = new Error('thrown in a callback');
    expect(
      sorted([2, 1], () => {
        throw error;
      }),
    ).toHaveLength(2);
    expect(uncaught).toEqual([]);
    await nextIteration();
    expect(uncaught).toEqual([error]);
  });

  it('does not pass a non-number to C', async () => {
    sorted([2, 1], () => 'one');
    await nextIteration();
    expect(uncaught).toEqual([
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ value: '"one"' }) }),
    ]);
  });

  it.skipIf(reason !== undefined)('passes six parameters, and the fallback (needs cc)', async () => {
    const path = folder.library(
      'libsix.so',
      `long six(long (*f)(long, long, long, long, long, long)) { return f(1, -2, 3, 4, 5, 1L << 60); }
       int none(void (*f)(int)) { f(7); return 1; }`,
    );
    const library = new DynamicLibrary([path]);
    const six = library.function<(address: number) => number>('six', 'int64_t', ['uint64_t']);
    const seen: unknown[] = [];
    const words = Array.from({ length: 6 }, () => 'int64_t' as const);
    const callback = new NativeCallback({
      parameters: words,
      result: 'int64_t',
      fallback: -3,
      call: (...values: unknown[]) => {
        seen.push(...values);
        if (seen.length > 6) throw new Error('the second time');
        return 11;
      },
    });
    expect([six(callback.address), six(callback.address)]).toEqual([11, -3]);
    expect(seen.slice(0, 6)).toEqual([1, -2, 3, 4, 5, 2n ** 60n]);
    callback.close();
    const none = library.function<(address: number) => number>('none', 'int', ['uint64_t']);
    const procedure = new NativeCallback({
      parameters: ['int'],
      result: 'void',
      call: (value: number) => {
        throw new Error(`got ${value}`);
      },
    });
    expect(none(procedure.address)).toBe(1);
    procedure.close();
    await nextIteration();
    expect(uncaught).toEqual([new Error('the second time'), new Error('got 7')]);
  });

  it('rejects unsupported signatures', () => {
    const parameters = Array.from({ length: 7 }, () => 'int' as const);
    expect(() => new NativeCallback({ parameters, result: 'void', call: () => undefined })).toThrow(
      'argument parameters must be at most 6, got 7',
    );
    expect(() => new NativeCallback({ parameters: [], result: 'int', call: () => 1 })).toThrow(
      'argument fallback must be given for a result of type int',
    );
  });

  it('returns the type of its result, also after another one with the same parameters', () => {
    const parameters = ['int'] as const;
    const callbacks = (['int', 'double'] as const).map(
      (result) => new NativeCallback({ parameters, result, fallback: 0, call: (value: number) => value + 0.5 }),
    );
    const [whole, half] = callbacks as [NativeCallback, NativeCallback];
    const call = (address: number, result: 'int' | 'double'): number =>
      functionAt<(value: number) => number>(address, result, ['int'])(3);
    expect([call(half.address, 'double'), call(whole.address, 'int')]).toEqual([3.5, 3]);
    for (const callback of callbacks) callback.close();
  });

  it('is counted while it is open', () => {
    const before = openNativeCallbacks();
    const callbacks = [1, 2].map(() => new NativeCallback({ parameters: [], result: 'void', call: () => undefined }));
    expect(openNativeCallbacks()).toBe(before + 2);
    for (const callback of [...callbacks, ...callbacks]) callback.close();
    expect(openNativeCallbacks()).toBe(before);
  });

  it('releases its slot', () => {
    const before = openNativeCallbacks();
    // Four times the maximum number of open callbacks.
    for (let count = 0; count < 32_768; count++) {
      new NativeCallback({ parameters: [], result: 'void', call: () => undefined }).close();
    }
    expect(openNativeCallbacks()).toBe(before);
  });
});
