/** Arguments that only look like what they should be: every call names the argument and the rule, and none fails with an error of JavaScript. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../../src/index.ts';
import { catches } from '../../fixtures/catches.ts';
import { connectionKind, ENGINES, keyFor, mappedOf, type Pair, usePairs } from '../../fixtures/pair.ts';

const BYTES = 64;
const NONE = Symbol('none');
/** Values that pass `instanceof Uint8Array`. */
const FORGED: readonly (readonly [string, unknown])[] = [
  ['an object with the prototype of byte arrays', Object.create(Uint8Array.prototype)],
  ['a proxy of a byte array', new Proxy(new Uint8Array(BYTES), {})],
];

/** Fails unless a call, or its promise, fails with ERR_INVALID_PARAM that names an argument. */
async function expectRefused(argument: string, run: () => unknown): Promise<void> {
  const ended = (async () => run())();
  await expect(ended, run.toString()).rejects.toMatchObject({
    name: 'UcxError',
    code: 'ERR_INVALID_PARAM',
    status: Status.INVALID_PARAM,
    message: expect.stringContaining(`argument ${argument} `),
  });
}

it('a call that accepts such an argument, or fails with an error of JavaScript, is noticed', async () => {
  const check = (run: () => unknown): Promise<void> => expectRefused('local', run);
  const fail = (): never => {
    throw new TypeError('x');
  };
  await catches(check, () => Status.OK, /resolved.*instead of rejecting/);
  await catches(check, fail, /to match object/);
});

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = usePairs();
  const open = (): Promise<Pair> => fixture.pair(connectionKind(engine === 'native' ? 'loopback' : 'libucx, all'));

  it.each(FORGED)('%s is refused wherever bytes are', async (_name, value) => {
    const { one, two, ab } = await open();
    const { context, worker } = one;
    const memory = mappedOf(two, 'allocated', BYTES);
    const rkey = keyFor(ab, two, memory);
    const forged = value as Uint8Array;
    const calls: readonly (readonly [string, () => unknown])[] = [
      ['local', () => ab.putNbx(forged, 0, 0, rkey, 0)],
      ['local', () => ab.putNbx(forged, 0, 8, rkey, 0)],
      ['local', () => ab.getNbx(forged, 0, 8, rkey, 0)],
      ['local', () => ab.put(forged, rkey)],
      ['local', () => ab.put([{ memory: forged }], rkey)],
      ['local', () => ab.putListNbx([{ local: forged, rkey, byteLength: 8 }])],
      ['local', () => ab.tagSendNbx(forged, 0, 8, 1)],
      ['local', () => ab.tagSend(forged)],
      ['local', () => ab.tagSendNbx([{ memory: forged }], 0, 0, 1)],
      ['local', () => worker.tagRecvNbx(forged, 0, 8, 1)],
      ['local', () => ab.amSendNbx(1, undefined, forged, 0, 8)],
      ['header', () => ab.amSendNbx(1, forged, new Uint8Array(8), 0, 8)],
      ['local', () => ab.streamSendNbx(forged, 0, 8)],
      ['local', () => ab.streamRecvNbx(forged, 0, 8)],
      ['data', () => ab.streamDataRelease(forged)],
      ['notify', () => ab.notifyNbx(forged)],
      ['buffer', () => context.memMap({ buffer: forged })],
      ['local', () => ab.explain('put', forged, rkey)],
    ];
    for (const [argument, run] of calls) await expectRefused(argument, run);
    await expectRefused('packed', () => ab.unpackRkey(forged));
    await expectRefused('address', () => worker.endpoint(forged));
    rkey.release();
    two.context.memUnmap(memory);
  });

  it.each([
    ['a symbol', NONE],
    ['a bigint', 1n],
  ])('%s is refused wherever a number is, also beside a list of pieces', async (_name, value) => {
    const { two, ab } = await open();
    const memory = mappedOf(two, 'allocated', BYTES);
    const rkey = keyFor(ab, two, memory);
    const bytes = new Uint8Array(8);
    const wrong = value as unknown as number;
    await expectRefused('byteLength', () => ab.putNbx(bytes, 0, wrong, rkey, 0));
    await expectRefused('remoteOffset', () => ab.putNbx(bytes, 0, 8, rkey, wrong));
    await expectRefused('offset', () => ab.put(bytes, rkey, { offset: wrong }));
    await expectRefused('byteLength', () => ab.put(bytes, rkey, { byteLength: wrong }));
    const pieces = [{ memory: bytes }];
    await expectRefused('offset', () => ab.putNbx(pieces, wrong, 0, rkey, 0));
    await expectRefused('remoteOffset', () => ab.putNbx(pieces, 0, 0, rkey, wrong));
    await expectRefused('offset', () => ab.put(pieces, rkey, { offset: wrong }));
    await expectRefused('remoteOffset', () => ab.put(pieces, rkey, { remoteOffset: wrong }));
    await expectRefused('byteLength', () => ab.put([{ memory: bytes, byteLength: wrong }], rkey));
    await expectRefused('byteLength', () => ab.tagSend([{ memory: bytes, byteLength: wrong }]));
    rkey.release();
    two.context.memUnmap(memory);
  });

  it('an offset beside a list of pieces is refused, and not ignored', async () => {
    const { two, ab } = await open();
    const memory = mappedOf(two, 'allocated', BYTES);
    const rkey = keyFor(ab, two, memory);
    await expectRefused('offset', () => ab.put([{ memory: new Uint8Array(8) }], rkey, { offset: 4 }));
    rkey.release();
    two.context.memUnmap(memory);
  });

  it('bytes that are too long are told their length', async () => {
    const { ab } = await open();
    const tooLong = { code: 'ERR_INVALID_PARAM', message: expect.stringMatching(/of 4097 bytes: at most 4096$/) };
    const refusal = (run: () => unknown): unknown => {
      try {
        return run();
      } catch (error) {
        return error;
      }
    };
    expect(refusal(() => ab.amSendNbx(1, Buffer.alloc(4097), new Uint8Array(8), 0, 8))).toMatchObject(tooLong);
    expect(refusal(() => ab.notifyNbx(Buffer.alloc(4097)))).toMatchObject(tooLong);
  });
});
