/**
 * Atomic operations over every kind of connection: all operations on words of both sizes in every kind of memory compared with BigInt arithmetic, and
 * counters that both ends change at the same time.
 */

import { describe, expect, it } from 'vitest';
import { type AtomicName, type RemoteKey, type Request, Status } from '../../../src/index.ts';
import { atomicEndpoints } from '../../fixtures/libucp/libucp.ts';
import {
  type ConnectionKind,
  contents,
  driveUntil,
  expectContents,
  fill,
  keyFor,
  mappedOf,
  memoryKinds,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const OPERATIONS: readonly AtomicName[] = ['add', 'and', 'or', 'xor', 'swap', 'cswap'];

/** The expected word after an operation. */
function after(operation: AtomicName, word: bigint, value: bigint, compare: bigint, bits: 32 | 64): bigint {
  switch (operation) {
    case 'add':
      return BigInt.asUintN(bits, word + value);
    case 'and':
      return word & value;
    case 'or':
      return word | value;
    case 'xor':
      return word ^ value;
    case 'swap':
      return value;
    case 'cswap':
      return word === compare ? value : word;
  }
}

function wordsOf(bits: 32 | 64): readonly bigint[] {
  const all = (1n << BigInt(bits)) - 1n;
  return [0n, 1n, all, 1n << BigInt(bits - 1), all >> 1n, 0x1234_5678n];
}

/** Declares the tests of atomic operations over a kind of connection. */
export function atomicContract(kind: ConnectionKind): void {
  describe(`atomic operations over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const endpoints = kind.engine === 'libucx' ? atomicEndpoints() : {};
    const remoteKinds = memoryKinds(kind).filter((memory) => memory !== 'bytes');

    it.each(remoteKinds)('on %s memory return the word before and leave the word after', async (remoteKind) => {
      const pair = await fixture.pair(kind, {}, endpoints);
      const { two, ab } = pair;
      const remote = mappedOf(two, remoteKind, 64);
      const rkey = keyFor(ab, two, remote);
      await serving(pair, async () => {
        for (const bits of [32, 64] as const) {
          const words = wordsOf(bits);
          let expected = pattern(64, bits);
          const view = new DataView(expected.buffer);
          const remoteOffset = bits === 32 ? 12 : 24;
          const read = (): bigint =>
            bits === 32 ? BigInt(view.getUint32(remoteOffset, true)) : view.getBigUint64(remoteOffset, true);
          const write = (word: bigint): void => {
            if (bits === 32) view.setUint32(remoteOffset, Number(word), true);
            else view.setBigUint64(remoteOffset, word, true);
          };
          await fill(two, remote, expected);
          for (const operation of OPERATIONS) {
            for (const [i, word] of words.entries()) {
              const value = words[(i + 2) % words.length]!;
              const current = read();
              const got = await ab.atomic('swap', bits === 32 ? Number(word) : word, rkey, { remoteOffset, bits });
              expect(got).toBe(current);
              const compare = i % 2 === 0 ? word : word ^ 1n;
              const options = operation === 'cswap' ? { remoteOffset, bits, compare } : { remoteOffset, bits };
              expect(await ab.atomic(operation, value, rkey, options)).toBe(word);
              write(after(operation, word, value, compare, bits));
              await ab.flush();
              if (i % 3 === 0) await expectContents(two, remote, expected, `${operation} of ${bits} bits`);
            }
          }
          await expectContents(two, remote, expected);
          expected = new Uint8Array(0);
        }
      });
      rkey.release();
      unmap(two, remote);
    });

    it.each(remoteKinds)('on %s memory are refused at invalid places', async (remoteKind) => {
      const pair = await fixture.pair(kind, {}, endpoints);
      const { two, ab } = pair;
      const remote = mappedOf(two, remoteKind, 30);
      const rkey = keyFor(ab, two, remote);
      const before = pattern(30, 1);
      await fill(two, remote, before);
      const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
      const post = (operation: string, value: unknown, remoteOffset: number, params: object = {}) => {
        return () => ab.atomicNbx(operation as AtomicName, value as bigint, rkey, remoteOffset, params);
      };
      for (const remoteOffset of [-8, 1, 4, 7, 24, 32, 1.5, 2 ** 53]) {
        expect(post('add', 1n, remoteOffset), String(remoteOffset)).toThrow(invalid);
      }
      for (const remoteOffset of [-4, 2, 3, 28, 32])
        expect(post('add', 1, remoteOffset, { bits: 32 })).toThrow(invalid);
      for (const value of [-(2 ** 31) - 1, 2 ** 32, 1n << 32n, 1.5, '1', undefined]) {
        expect(post('add', value, 0, { bits: 32 }), String(value)).toThrow(invalid);
      }
      for (const value of [-(1n << 63n) - 1n, 1n << 64n, 2 ** 53, Number.NaN, undefined]) {
        expect(post('xor', value, 0), String(value)).toThrow(invalid);
      }
      expect(post('cswap', 1n, 0)).toThrow(invalid);
      expect(post('cswap', 1, 0, { bits: 32, compare: 1n << 32n })).toThrow(invalid);
      expect(post('add', 1, 0, { bits: 16 })).toThrow(invalid);
      for (const operation of ['nand', '', undefined]) expect(post(operation as string, 1n, 0)).toThrow(invalid);
      await expectContents(two, remote, before);
      expect(pair.one.worker.requestsInUse).toBe(0);
      rkey.release();
      unmap(two, remote);
    });

    it.each(remoteKinds)('from both ends on %s memory lose no update', async (remoteKind) => {
      const pair = await fixture.pair(kind, {}, endpoints);
      const { one, two, ab } = pair;
      const COUNT = remoteKind === 'gaudi' ? 60 : 400;
      const remote = mappedOf(two, remoteKind, 16);
      await fill(two, remote, new Uint8Array(16));
      const keys: [Pick<typeof ab, 'atomicNbx'>, RemoteKey][] = [
        [ab, keyFor(ab, two, remote)],
        [two.endpoint, keyFor(two.endpoint, two, remote)],
      ];
      const before: bigint[] = [];
      let failures = 0;
      const callback = (request: Request, status: Status): void => {
        if (status === Status.OK) before.push(request.atomicResult);
        else failures += 1;
        request.free();
      };
      let started = 0;
      const post = (index: number): void => {
        const [endpoint, rkey] = keys[index]!;
        const result = endpoint.atomicNbx('add', 3, rkey, 8, { callback, noImmediateCompletion: true });
        // A request that ended at once was freed by its callback.
        if (typeof result === 'number' && result !== Status.OK) failures += 1;
      };
      for (; started < COUNT; started++) {
        post(started % 2);
        if (started % 16 === 0) one.worker.progress();
      }
      await driveUntil(pair, () => before.length + failures === COUNT);
      expect(failures).toBe(0);
      await serving(pair, () => ab.flush());
      // Each has returned another value, so no operation came between reading and writing.
      const sorted = [...before].sort((a, b) => (a < b ? -1 : 1));
      expect(sorted).toEqual(Array.from({ length: COUNT }, (_, i) => BigInt(i) * 3n));
      const view = new DataView((await contents(two, remote)).buffer);
      expect(view.getBigUint64(8, true)).toBe(BigInt(COUNT) * 3n);
      for (const [, rkey] of keys) rkey.release();
      unmap(two, remote);
    });
  });
}
