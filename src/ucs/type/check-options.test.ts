/** The checks of options, implementations of interfaces and simple values, and the argument that their errors name. */

import { describe, expect, it } from 'vitest';
import { checkMethods, checkNoNulls, checkOptions, checkPositive } from './check-options.ts';

/** An error about an argument. */
const about = (argument: string, message: RegExp): unknown =>
  expect.objectContaining({
    code: 'ERR_INVALID_PARAM',
    message: expect.stringMatching(message) as string,
    details: expect.objectContaining({ argument }) as object,
  });

describe('options', () => {
  it('have known fields only', () => {
    checkOptions({ depth: 1, byteLength: 2 }, 'options', ['byteLength', 'depth']);
    const check = (options: object) => () => checkOptions(options, 'options', ['byteLength', 'depth']);
    expect(check({ depth: 1, dept: 2 })).toThrow(about('options', /has no field dept; did you mean depth\?$/));
    expect(check({ other: 1 })).toThrow(about('options', /has no field other, only byteLength, depth$/));
  });

  it('may have any field if no names are known', () => {
    checkOptions({ anything: 1 });
    for (const bad of [null, undefined, 3])
      expect(() => checkOptions(bad as never)).toThrow(about('options', /object/));
  });

  it.each([[new Uint8Array(1)], [[1]], [AbortSignal.abort()]])('are not %o', (value) => {
    expect(() => checkOptions(value, 'options', ['depth'])).toThrow(about('options', /must be an object with depth/));
  });

  it('are omitted rather than null', () => {
    checkNoNulls({ depth: undefined, size: 0 });
    expect(() => checkNoNulls({ size: 0, depth: null })).toThrow(about('depth', /must be omitted/));
  });
});

it('a positive integer is 1 or more', () => {
  for (const good of [1, 2, Number.MAX_SAFE_INTEGER]) checkPositive('depth', good);
  for (const bad of [0, -1, 1.5, Number.NaN, 2 ** 53, '1']) {
    expect(() => checkPositive('depth', bad as never), String(bad)).toThrow(about('depth', /must be an integer of 1/));
  }
});

it('an implementation of an interface has its methods as functions', () => {
  const methods = ['open', 'close'] as const;
  checkMethods('node', { open: () => 1, close: () => 2 }, methods);
  class Node {
    open(): void {}
    close(): void {}
  }
  checkMethods('node', new Node(), methods);
  for (const bad of [{ open: () => 1 }, { open: () => 1, close: true }]) {
    expect(() => checkMethods('node', bad as never, methods)).toThrow(about('node', /must have the method close/));
  }
});
