/** Misspelt fields of pieces, ranges and faults are refused, and nothing is moved: over both engines. */

import { describe, expect, it } from 'vitest';
import type { IovPiece } from '../../src/index.ts';
import { failureOf, useContexts } from '../fixtures/contexts.ts';
import { ENGINES } from '../fixtures/pair.ts';

const BYTES = 16;

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);

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
      expect([index, (await failureOf(run)).code]).toEqual([index, 'ERR_INVALID_PARAM']);
    }
    expect(memory.bytes).toEqual(new Uint8Array(BYTES).fill(0xaa));
    expect(worker.requestsInUse).toBe(0);
    rkey.release();
    context.memUnmap(memory);
  });
});
