/** Calls that did nothing and said so to nobody: they are refused or logged, over both engines. */

import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const ENGINES = [
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const;

describe.each(ENGINES)('over the engine %s (needs libucp)', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)('bytes that were detached are refused, and no bytes are accepted', async () => {
    const { context, endpoint } = await fixture.open();
    const memory = context.memMap({ allocate: 64 });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const detached = new Uint8Array(8);
    structuredClone(detached.buffer, { transfer: [detached.buffer] });
    for (const start of [
      () => endpoint.put(detached, rkey),
      () => endpoint.get(detached, rkey),
      () => endpoint.tagSend(detached, { tag: 1 }),
      () => endpoint.amSend(1, detached),
    ]) {
      const error = await failureOf(async () => start());
      expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', details: { argument: 'local' } });
      expect(error.message).toMatch(/must not be detached/);
    }
    expect(await endpoint.put(new Uint8Array(0), rkey)).toMatchObject({ byteLength: 0 });
    rkey.release();
  });

  it.skipIf(!isThere)('a signal of AbortSignal.timeout rejects with a TimeoutError', async () => {
    const { worker } = await fixture.open();
    const receive = worker.tagRecv(new Uint8Array(8), { tag: 1, signal: AbortSignal.timeout(5) });
    await expect(receive).rejects.toMatchObject({ name: 'TimeoutError', code: 'ABORT_ERR' });
    const abort = new AbortController();
    const other = worker.tagRecv(new Uint8Array(8), { tag: 1, signal: abort.signal });
    abort.abort(new Error('not needed'));
    await expect(other).rejects.toMatchObject({ name: 'AbortError', cause: { message: 'not needed' } });
  });
});

describe('an active message whose id ; set one with worker.setAmHandler()', () => {
  const fixture = useContexts('native');

  it.each([8, 2_000_000])('of %i bytes is a warning, at most ten', async (byteLength) => {
    const { worker, endpoint } = await fixture.open();
    fixture.allow(
      /^active message dropped: no handler for id 3; set one with worker\.setAmHandler\(\)$|^\d+ more warnings about peers/,
    );
    for (let i = 0; i < 20; i++) await endpoint.amSend(3, new Uint8Array(byteLength));
    while (worker.progress() > 0);
    expect(fixture.records.filter(({ message }) => message.includes('no handler'))).toHaveLength(10);
  });
});

describe.each(ENGINES)('what console.log and JSON show over the engine %s (needs libucp)', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)('is the facts of an object, and not its implementation', async () => {
    const { context, worker, endpoint } = await fixture.open();
    const memory = context.memMap({ allocate: 4096 });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const receive = worker.tagRecvNbx(new Uint8Array(8), 0, 8, 9);
    if (typeof receive === 'number') expect.fail('nothing was sent');
    for (const object of [context, worker, endpoint, memory, rkey, receive]) {
      expect(inspect(object).split('\n')).toHaveLength(1);
      const text = JSON.stringify(object);
      expect(text.length, text).toBeLessThan(400);
      expect(Object.keys(JSON.parse(text)).length).toBeGreaterThan(0);
    }
    expect(JSON.parse(JSON.stringify(memory))).toMatchObject({ memoryType: 'host', byteLength: 4096 });
    expect(inspect(receive)).toMatch(/^Request \{ protocol: tag\/\w+.*, status: INPROGRESS, byteLength: 8/);
    receive.cancel();
    while (!receive.isCompleted) worker.progress();
    receive.free();
    rkey.release();
  });
});
