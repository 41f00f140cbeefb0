/**
 * Contexts with selected features, and addresses and keys of programs that do not use this library, without such a program: supported and refused
 * cases, and
 * the same options for the native engine.
 */

import { describe, expect, it } from 'vitest';
import { type ContextOptions, FEATURES, type Feature, type Request, Status } from '../../../src/index.ts';
import { failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { atomicEndpoints, installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { eagerData } from '../../fixtures/messages/eager-data.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.info(`skipped: features and foreign bytes over libucp (${skipReason})`);

const contexts = useContexts();
const open = (options: ContextOptions = {}): Promise<Stack> =>
  contexts.open({
    endpoint: atomicEndpoints(),
    context: { engine: 'libucx', config: { TLS: 'tcp,self', NET_DEVICES: 'lo' }, ...options },
  });

const BYTES = 64;
/** One operation of each kind, awaited or not, by its feature. */
const OPERATIONS: readonly (readonly [Feature, string, (stack: Stack) => unknown])[] = [
  ['tag', 'tagSend and tagRecv', tagged],
  ['tag', 'tagRecv', ({ worker }) => worker.tagRecvNbx(new Uint8Array(1), 0, 1, 9, undefined, { callback: free })],
  ['tag', 'tagSendSync', synchronous],
  ['tag', 'tagProbe', ({ worker }) => worker.tagProbe(1)],
  ['rma', 'put and get', putAndGet],
  ['amo32', 'atomic of 32 bits', (stack) => atomic(stack, 32)],
  ['amo64', 'atomic of 64 bits', (stack) => atomic(stack, 64)],
  ['stream', 'streamSend and streamRecv', stream],
  ['stream', 'streamRecvData', ({ endpoint }) => endpoint.streamRecvData()],
  ['am', 'amSend and messages', message],
  ['am', 'setAmHandler', ({ worker }) => worker.setAmHandler(3, () => undefined)],
];

function free(request: Request): void {
  request.free();
}

async function tagged({ endpoint, worker }: Stack): Promise<void> {
  const [sent, received] = [Uint8Array.of(1, 2, 3), new Uint8Array(3)];
  await Promise.all([endpoint.tagSend(sent, { tag: 7 }), worker.tagRecv(received, { tag: 7 })]);
  expect(received).toEqual(sent);
}

async function synchronous({ endpoint, worker }: Stack): Promise<void> {
  await endpoint.tagSendSync(Uint8Array.of(1), { tag: 9 });
  expect(worker.tagProbe(9)).toBeUndefined();
}

async function putAndGet(stack: Stack): Promise<void> {
  const memory = stack.context.memMap({ allocate: BYTES });
  const rkey = rkeyOf(stack, memory);
  await stack.endpoint.put(Uint8Array.of(4, 5, 6), rkey, { remoteOffset: 8 });
  const got = new Uint8Array(3);
  await stack.endpoint.get(got, rkey, { remoteOffset: 8 });
  expect(got).toEqual(Uint8Array.of(4, 5, 6));
  expect(memory.bytes!.slice(8, 11)).toEqual(got);
}

async function atomic(stack: Stack, bits: 32 | 64): Promise<void> {
  const rkey = rkeyOf(stack, stack.context.memMap({ allocate: BYTES }));
  await stack.endpoint.atomic('add', 5, rkey, { bits });
  expect(await stack.endpoint.atomic('add', 1, rkey, { bits })).toBe(5n);
}

async function stream({ endpoint }: Stack): Promise<void> {
  const received = new Uint8Array(3);
  await Promise.all([endpoint.streamSend(Uint8Array.of(7, 8, 9)), endpoint.streamRecv(received, { waitAll: true })]);
  expect(received).toEqual(Uint8Array.of(7, 8, 9));
}

async function message({ endpoint, worker }: Stack): Promise<void> {
  await using messages = worker.messages(5);
  await endpoint.amSend(5, Uint8Array.of(1), { header: Uint8Array.of(2) });
  const { value } = await messages.next();
  expect([value!.header, eagerData(value!)]).toEqual([Uint8Array.of(2), Uint8Array.of(1)]);
}

describe.skipIf(skipReason !== undefined)(
  'atomic operations of libucp at an endpoint with error handling (needs libucp)',
  () => {
    /** The previous word, or the code of the refusal; with UCX_PROTO_ENABLE. */
    async function answerOf(protocols: string | undefined): Promise<unknown> {
      const stack = await open(protocols === undefined ? {} : { env: { UCX_PROTO_ENABLE: protocols } });
      const watched = stack.worker.endpoint(stack.worker.address(), { errorHandling: 'peer' });
      const rkey = watched.unpackRkey(stack.context.packRkey(stack.context.memMap({ allocate: BYTES })));
      try {
        return await watched.atomic('add', 5, rkey);
      } catch (error) {
        return (error as { code: string }).code;
      } finally {
        rkey.release();
      }
    }

    it('work, or are refused before libucp hangs', async () => {
      expect(await answerOf(undefined)).toBe(atomicEndpoints().errorHandling === 'none' ? 'ERR_UNSUPPORTED' : 0n);
    });

    it('work with the older protocols', async () => {
      expect(await answerOf('n')).toBe(0n);
    });
  },
);

describe.skipIf(skipReason !== undefined)('a context over libucp with (needs libucp)', () => {
  it.each(FEATURES.map((feature) => [feature] as const))('the feature %s alone has its operations', async (feature) => {
    const stack = await open({ features: [feature] });
    for (const [needed, name, run] of OPERATIONS) {
      if (needed === feature) await run(stack);
      else
        expect([name, await failureOf(() => run(stack))]).toMatchObject([
          name,
          { code: 'ERR_FEATURE_MISSING', status: Status.UNSUPPORTED, details: { feature: needed } },
        ]);
    }
    // Calls that need no feature.
    const memory = stack.context.memMap({ allocate: BYTES });
    stack.endpoint.unpackRkey(stack.context.packRkey(memory)).release();
    stack.endpoint.fence();
    await stack.endpoint.flush();
    await stack.worker.flush();
  });

  it('all features has all operations', async () => {
    const stack = await open();
    for (const [, , run] of OPERATIONS) await run(stack);
  });
});

describe('the option features', () => {
  it.each([[[]], [['tag', 'wakeup']], ['tag'], [null]])('is refused as %j', async (features) => {
    const error = await failureOf(() =>
      contexts.open({
        endpoint: atomicEndpoints(),
        context: { features: features as unknown as Feature[] },
      }),
    );
    expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', details: { argument: 'features' } });
  });

  it('omits nothing in the native engine', async () => {
    const stack = await contexts.open({
      endpoint: atomicEndpoints(),
      context: { features: ['tag'], config: { TLS: 'self' } },
    });
    for (const [, , run] of OPERATIONS) await run(stack);
  });
});

describe.skipIf(skipReason !== undefined)('bytes of other programs (needs libucp)', () => {
  it('are addresses and keys, with which those of this library begin', async () => {
    const { context, worker } = await open();
    const memory = context.memMap({ allocate: BYTES });
    memory.bytes!.fill(9);
    const endpoint = worker.endpoint(worker.address(), { rawAddress: true });
    const raw = { address: memory.address, byteLength: BYTES };
    const rkey = endpoint.unpackRkey(context.packRkey(memory), { raw });
    expect(rkey).toMatchObject({ ...raw, memoryType: memory.memoryType });
    await endpoint.put(Uint8Array.of(1, 2), rkey, { remoteOffset: 3 });
    expect([...memory.bytes!.slice(2, 6)]).toEqual([9, 1, 2, 9]);
    expect(() => endpoint.putNbx(new Uint8Array(2), 0, 2, rkey, BYTES - 1)).toThrow(/2 bytes .*do not fit/);
    // Any part of the memory, also with a Number as address.
    const part = endpoint.unpackRkey(context.packRkey(memory), {
      raw: { address: Number(memory.address) + 4, byteLength: 1 },
    });
    const byte = new Uint8Array(1);
    await endpoint.get(byte, part);
    expect(byte[0]).toBe(2);
    await endpoint.close();
  });

  it('are detected without the option', async () => {
    const { context, worker, endpoint } = await open();
    const foreign = worker.address().slice(0, -20);
    expect(() => worker.endpoint(foreign)).toThrow(
      /engine libucx \(if it is from another UCX program, option rawAddress\)/,
    );
    const key = context.packRkey(context.memMap({ allocate: BYTES })).slice(0, -20);
    expect(() => endpoint.unpackRkey(key)).toThrow(/engine libucx \(if it is from another UCX program, option raw\)/);
  });

  it('are refused if they are evidently invalid', async () => {
    const { worker, endpoint } = await open();
    const raw = { address: 4096, byteLength: 8 };
    const connect = (bytes: Uint8Array) => failureOf(() => worker.endpoint(bytes, { rawAddress: true }));
    const unpack = (bytes: Uint8Array) => failureOf(() => endpoint.unpackRkey(bytes, { raw }));
    for (const bytes of [new Uint8Array(0), new Uint8Array(65_537)]) {
      expect(await connect(bytes)).toMatchObject({ code: 'ERR_ADDRESS_MALFORMED' });
      expect(await unpack(bytes)).toMatchObject({ code: 'ERR_RKEY_MALFORMED' });
    }
    const text = 'text' as unknown as Uint8Array;
    for (const refused of [connect(text), unpack(text)]) {
      expect(await refused).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(/Uint8Array/) });
    }
  });
});

describe('options for bytes of other programs', () => {
  it.each<readonly [string, object]>([
    ['options', null as unknown as object],
    ['raw', { raw: 5 }],
    ['raw', { raw: null }],
    ['raw.byteLength', { raw: { address: 8, byteLength: 0 } }],
    ['raw.byteLength', { raw: { address: 8, byteLength: 1.5 } }],
    ['raw.byteLength', { raw: { address: 8 } }],
    ['raw.address', { raw: { address: -8, byteLength: 8 } }],
    ['raw.address', { raw: { address: 0.5, byteLength: 8 } }],
    ['raw.address', { raw: { address: 2n ** 48n - 4n, byteLength: 8 } }],
    ['raw.address', { raw: { address: '8', byteLength: 8 } }],
  ])('%s of a key is refused by name: %o', async (argument, options) => {
    const { endpoint } = await contexts.open({
      endpoint: atomicEndpoints(),
      context: { config: { TLS: 'self' } },
    });
    const error = await failureOf(() => endpoint.unpackRkey(new Uint8Array(8), options));
    expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', details: { argument } });
  });

  it('are refused by the native engine, which has another protocol', async () => {
    const { context, worker, endpoint } = await contexts.open({
      endpoint: atomicEndpoints(),
      context: { config: { TLS: 'self' } },
    });
    const unsupported = { code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED };
    const packed = context.packRkey(context.memMap({ allocate: BYTES }));
    const raw = { address: 4096, byteLength: BYTES };
    expect(await failureOf(() => worker.endpoint(worker.address(), { rawAddress: true }))).toMatchObject(unsupported);
    expect(await failureOf(() => endpoint.unpackRkey(packed, { raw }))).toMatchObject(unsupported);
    const wrong = { rawAddress: 1 as unknown as boolean };
    expect(await failureOf(() => worker.endpoint(worker.address(), wrong))).toMatchObject({
      code: 'ERR_INVALID_PARAM',
      details: { argument: 'rawAddress' },
    });
  });
});
