/** Moves between HBM and host memory of the same process: the card copies them, over both engines, without fragments of host memory. */

import { describe, expect, it } from 'vitest';
import { MemoryType, Status } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { ENGINES, expectSame, pattern } from '../../fixtures/pair.ts';

const BYTES = 100_003;

describe.each(ENGINES)('over the engine %s', (engine) => {
  const fixture = useContexts(engine);
  const isMissing = engine === 'libucx' && installedLibucp().libucp === undefined;

  it.skipIf(isMissing)('the card copies between its memory and mapped host memory (needs libucp)', async () => {
    const { context, endpoint } = await fixture.open();
    const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const host = context.memMap({ allocate: BYTES });
    const rkey = endpoint.unpackRkey(context.packRkey(host));
    for (const operation of ['put', 'get'] as const) {
      const { chosen } = endpoint.explain(operation, hbm, rkey);
      expect(chosen.map(({ transport }) => transport)).toEqual(['gaudi_cpy/gaudi0']);
    }
    host.bytes!.set(pattern(BYTES, 1));
    const got = await endpoint.get(hbm, rkey);
    host.bytes!.fill(0);
    const put = await endpoint.put(hbm, rkey);
    expectSame(host.bytes!, pattern(BYTES, 1));
    expect([got.transport, put.transport]).toEqual(['gaudi_cpy', 'gaudi_cpy']);
    rkey.release();
  });

  it.skipIf(isMissing)('a key of host memory that was unmapped moves nothing (needs libucp)', async () => {
    const { context, endpoint } = await fixture.open();
    const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const bytes = new Uint8Array(BYTES);
    const host = context.memMap({ buffer: bytes });
    const rkey = endpoint.unpackRkey(context.packRkey(host));
    await endpoint.put(hbm, rkey);
    context.memUnmap(host);
    bytes.fill(7);
    expect(await failureOf(() => endpoint.put(hbm, rkey))).toMatchObject({ status: Status.INVALID_ADDR });
    expectSame(bytes, new Uint8Array(BYTES).fill(7));
    rkey.release();
  });
});
