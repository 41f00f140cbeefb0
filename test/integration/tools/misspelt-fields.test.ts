/** Misspelt fields of pieces, ranges, parameters and faults are refused, and nothing is moved: over both engines. */

import { describe, expect, it } from 'vitest';
import type { IovPiece } from '../../../src/index.ts';
import { catches } from '../../fixtures/catches.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { ENGINES } from '../../fixtures/pair.ts';

const BYTES = 16;

/** Expects that a call with a misspelt parameter is refused, with the name that was meant. */
async function expectCorrected(
  run: (params: never) => unknown,
  name: string,
  misspelt: object,
  hint: string,
): Promise<void> {
  const { code, message } = await failureOf(() => run(misspelt as never));
  expect([name, code, message]).toEqual([name, 'ERR_INVALID_PARAM', expect.stringContaining(hint)]);
}

/** Expects that a call is refused. */
async function expectRefused(run: () => unknown, index: number): Promise<void> {
  expect([index, (await failureOf(run)).code]).toEqual([index, 'ERR_INVALID_PARAM']);
}

/** Expects that no byte of the memory was moved and that no request is in use. */
function expectUntouched(bytes: Uint8Array | undefined, value: number, requestsInUse: number): void {
  expect(bytes).toEqual(new Uint8Array(BYTES).fill(value));
  expect(requestsInUse).toBe(0);
}

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);

  it('a misspelt parameter of an nbx operation, or of close, is refused with the nearest name', async () => {
    const { context, endpoint, worker } = await fixture.open();
    const memory = context.memMap({ allocate: BYTES });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const bytes = new Uint8Array(BYTES).fill(1);
    const entry = { local: bytes, rkey, byteLength: 8 };
    const calls: Readonly<Record<string, (params: never) => unknown>> = {
      putNbx: (params) => endpoint.putNbx(bytes, 0, 8, rkey, 0, params),
      getNbx: (params) => endpoint.getNbx(bytes, 0, 8, rkey, 0, params),
      putListNbx: (params) => endpoint.putListNbx([entry], params),
      getListNbx: (params) => endpoint.getListNbx([entry], params),
      notifyNbx: (params) => endpoint.notifyNbx(bytes, params),
      atomicNbx: (params) => endpoint.atomicNbx('add', 1, rkey, 0, params),
      tagSendNbx: (params) => endpoint.tagSendNbx(bytes, 0, 8, 1, params),
      tagSendSyncNbx: (params) => endpoint.tagSendSyncNbx(bytes, 0, 8, 1, params),
      amSendNbx: (params) => endpoint.amSendNbx(1, undefined, bytes, 0, 8, params),
      streamSendNbx: (params) => endpoint.streamSendNbx(bytes, 0, 8, params),
      streamRecvNbx: (params) => endpoint.streamRecvNbx(bytes, 0, 8, params),
      flushNbx: (params) => endpoint.flushNbx(params),
      tagRecvNbx: (params) => worker.tagRecvNbx(bytes, 0, 8, 1, 1, params),
      workerFlushNbx: (params) => worker.flushNbx(params),
    };
    for (const [name, run] of Object.entries(calls)) {
      await expectCorrected(run, name, { calback: () => {} }, 'callback?');
    }
    await expectCorrected((options) => endpoint.close(options), 'close', { forse: true }, 'did you mean force?');
    expect(endpoint.closed).toBe(false);
    expectUntouched(memory.bytes, 0, worker.requestsInUse);
    rkey.release();
    context.memUnmap(memory);
  });

  it('a misspelt field is refused', async () => {
    const { node, context, endpoint, worker } = await fixture.open();
    const memory = context.memMap({ buffer: new Uint8Array(BYTES).fill(0xaa) });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const range = { address: memory.address, byteLength: 8 };
    const pieces = [{ memory: new Uint8Array(BYTES), ofset: 8, byteLength: 8 }] as unknown as IovPiece[];
    for (const [index, run] of [
      () => endpoint.put(pieces, rkey),
      () => endpoint.tagSend(pieces, { tag: 1 }),
      () => endpoint.putNbx(pieces, 0, 8, rkey, 0),
      () => context.memQuery({ ...range, sysdevice: 0 } as never),
      () => context.exportDmabuf({ ...range, sysdevice: 0 } as never),
      () => node.inject(0, null as never),
      () => node.inject(0, { kind: 'hang', delay: 5 } as never),
    ].entries()) {
      await expectRefused(run, index);
    }
    expectUntouched(memory.bytes, 0xaa, worker.requestsInUse);
    rkey.release();
    context.memUnmap(memory);
  });

  it('a call that ignores a misspelt field, suggests no name or moves bytes is noticed', async () => {
    const { context, endpoint, worker } = await fixture.open();
    const memory = context.memMap({ buffer: new Uint8Array(BYTES) });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const bytes = new Uint8Array(BYTES).fill(1);
    const put = (): unknown => endpoint.put(bytes, rkey);
    const correct = (run: (params: never) => unknown): unknown => expectCorrected(run, 'put', { ofset: 8 }, 'offset?');
    await catches(correct, put, /nothing failed/);
    await catches(correct, () => endpoint.put(bytes, rkey, { remoteOffset: -1 }), /deeply equal/);
    await catches((run: () => unknown) => expectRefused(run, 0), put, /nothing failed/);
    const moved = memory.bytes;
    await catches((found: typeof moved) => expectUntouched(found, 0, worker.requestsInUse), moved, /deeply equal/);
    rkey.release();
    context.memUnmap(memory);
  });
});
