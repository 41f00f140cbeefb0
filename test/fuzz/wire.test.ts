/**
 * Mutated worker addresses and remote keys with a valid checksum: they are refused with a typed error, or access only the
 * memory of the key. Never a crash, never a byte outside of the caller's memory.
 */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { isUcxError, type RemoteKey, Status } from '../../src/index.ts';
import { createRandom, type Random } from '../../src/ucs/sys/random.ts';
import { catches } from '../fixtures/catches.ts';
import { extent, timeLimit } from '../fixtures/extent.ts';
import {
  connectionKind,
  expectContents,
  expectSame,
  keyFor,
  mappedOf,
  pattern,
  serving,
  usePairs,
} from '../fixtures/pair.ts';

const SEED = Number(process.env['GAUDI_UCX_FUZZ_SEED'] ?? 20_240);
const ROUNDS = extent('GAUDI_UCX_FUZZ_ROUNDS', 3000, 100_000);
const TIMEOUT_MS = timeLimit(ROUNDS);

/** Changes bytes, lengths and order, and updates the checksum. */
function mutated(random: Random, packed: Uint8Array): Uint8Array {
  let bytes = packed.slice(0, -4);
  for (let changes = 1 + random.below(3); changes > 0; changes--) {
    const at = random.below(Math.max(1, bytes.byteLength));
    const kind = random.below(6);
    if (kind <= 1) bytes[at]! ^= 1 << random.below(8);
    else if (kind === 2) bytes[at] = random.below(2) * 255;
    else if (kind === 3) bytes = bytes.slice(0, at);
    else if (kind === 4)
      bytes = Buffer.concat([bytes.subarray(0, at), random.bytes(random.below(20)), bytes.subarray(at)]);
    else bytes.copyWithin(at, random.below(Math.max(1, bytes.byteLength)));
  }
  const sealed = new Uint8Array(bytes.byteLength + 4);
  sealed.set(bytes);
  new DataView(sealed.buffer).setUint32(bytes.byteLength, crc32(bytes), true);
  return sealed;
}

/** Runs `decode`; returns the result, or undefined if it has refused with a typed error. */
function decoded<T>(bytes: Uint8Array, decode: () => T, codes: RegExp): T | undefined {
  try {
    return decode();
  } catch (error) {
    const isOwn = isUcxError(error) && codes.test(error.code);
    if (!isOwn) expect.fail(`${String((error as Error).stack)} for ${Buffer.from(bytes).toString('hex')}`);
    return undefined;
  }
}

/** A get into a target of these bytes, at this offset. */
type Get = (target: Uint8Array, localOffset: number, byteLength: number) => Promise<unknown>;

/** Fails if a get by a mutated key throws an error of the language, or writes outside of its target. */
async function expectOnlyTarget(get: Get, byteLength: number, bytes: Uint8Array): Promise<void> {
  const target = new Uint8Array(128).fill(0xcc);
  const failure = await get(target, 32, byteLength).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (failure !== undefined && !isUcxError(failure))
    expect.fail(`${String(failure)} for ${Buffer.from(bytes).toString('hex')}`);
  expectSame(target.subarray(0, 32), new Uint8Array(32).fill(0xcc), 'before the target');
  expectSame(target.subarray(32 + byteLength), new Uint8Array(96 - byteLength).fill(0xcc), 'behind the target');
}

it('a decoder and a get that trust a mutated key are noticed', async () => {
  const bytes = new Uint8Array(8);
  const beyondEnd = (): unknown => new DataView(bytes.buffer).getUint32(6);
  await catches((decode: () => unknown) => decoded(bytes, decode, /MALFORMED/), beyondEnd, /RangeError.* for 0000/s);
  const check = (get: Get): Promise<void> => expectOnlyTarget(get, 64, bytes);
  const tooMuch: Get = async (target, at, byteLength) => target.fill(1, at, at + byteLength + 1);
  await catches(check, tooMuch, /behind the target/);
  await catches(check, async (target, at) => target.fill(1, at - 1), /before the target/);
  await catches(check, async () => beyondEnd(), /RangeError.* for 0000/);
});

describe('fuzzed', () => {
  const fixture = usePairs();

  it('worker addresses are refused or connect', { timeout: TIMEOUT_MS }, async () => {
    const { one, two } = await fixture.pair(connectionKind('all transports'));
    const random = createRandom(SEED);
    const address = two.worker.address();
    let connected = 0;
    for (let i = 0; i < ROUNDS; i++) {
      const bytes = mutated(random, address);
      const endpoint = decoded(bytes, () => one.worker.endpoint(bytes), /^ERR_(ADDRESS_MALFORMED|UNREACHABLE)$/);
      if (endpoint === undefined) continue;
      connected += 1;
      one.worker.progress();
      two.worker.progress();
      await endpoint.close({ force: true });
    }
    expect(connected).toBeLessThan(ROUNDS);
    // The genuine one works.
    const target = new Uint8Array(10_000);
    const endpoint = one.worker.endpoint(address);
    await Promise.all([endpoint.tagSend(pattern(10_000, 1), { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
    expectSame(target, pattern(10_000, 1));
  });

  it.each(['registered', 'allocated', 'gaudi'] as const)(
    'remote keys of %s memory are refused, or read only their memory',
    { timeout: TIMEOUT_MS },
    async (kind) => {
      const pair = await fixture.pair(connectionKind('all transports'));
      const { one, two, ab } = pair;
      const random = createRandom(SEED + kind.length);
      const memory = mappedOf(two, kind, 4096);
      const guard = pattern(4096, 5);
      const key = keyFor(ab, two, memory);
      await serving(pair, async () => {
        await ab.put(guard, key);
        const packed = two.context.packRkey(memory);
        const codes = /^ERR_RKEY_(MALFORMED|STALE|FORGED)$|^ERR_UNREACHABLE$|^ERR_SHM_SEGMENT$/;
        for (let i = 0; i < ROUNDS / 3; i++) {
          const bytes = mutated(random, packed);
          const rkey: RemoteKey | undefined = decoded(bytes, () => ab.unpackRkey(bytes), codes);
          if (rkey === undefined) continue;
          const byteLength = Math.min(64, rkey.byteLength);
          const get: Get = (target, localOffset, length) =>
            ab.get(target, rkey, { offset: localOffset, byteLength: length, remoteOffset: 0 });
          await expectOnlyTarget(get, byteLength, bytes);
          rkey.release();
        }
      });
      key.release();
      await expectContents(two, memory, guard);
      expect([one.worker.requestsInUse, ab.status]).toEqual([0, Status.OK]);
    },
  );
});
