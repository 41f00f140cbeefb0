/**
 * The bytes of a put that has failed lie in the socket of a peer that makes no progress: they are written when it continues, unless the memory has
 * been mapped anew. The guide on security says so.
 */

import { describe, expect, it } from 'vitest';
import type { Context, MemoryHandle } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';

const BYTES = 4096;

describe('the bytes of a put over tcp that a forced close has ended', () => {
  const fixture = useContexts('native');
  type Prepare = (context: Context, memory: MemoryHandle, bytes: Uint8Array) => void;

  it.each<[string, Prepare, Uint8Array]>([
    ['are written when their owner makes progress', () => undefined, pattern(BYTES, 1)],
    [
      'are refused by an owner that has mapped its memory anew',
      (context, memory, buffer) => {
        context.memUnmap(memory);
        context.memMap({ buffer });
      },
      new Uint8Array(BYTES),
    ],
  ])('%s', async (_title, prepare, expected) => {
    const options = { context: { env: { UCX_TLS: 'tcp,self' } } };
    const [here, there] = [await fixture.open(options), await fixture.open(options)];
    const bytes = new Uint8Array(BYTES);
    const memory = there.context.memMap({ buffer: bytes });
    const endpoint = here.worker.endpoint(there.worker.address());
    let hasEnded = false;
    const onError = (): void => {
      hasEnded = true;
    };
    const back = there.worker.endpoint(here.worker.address(), { onError });
    const rkey = endpoint.unpackRkey(there.context.packRkey(memory));
    await Promise.all([endpoint.flush(), back.flush()]);

    const put = endpoint.put(pattern(BYTES, 1), rkey);
    const outcome = put.then(
      () => 'OK',
      (error: Error) => error.message,
    );
    here.worker.progress();
    rkey.release();
    await endpoint.close({ force: true });
    expect(await outcome).toMatch(/cancel/);
    expectSame(bytes, new Uint8Array(BYTES));

    prepare(there.context, memory, bytes);
    // The end of the connection is behind the bytes.
    while (!hasEnded) {
      there.worker.progress();
      await new Promise(setImmediate);
    }
    expectSame(bytes, expected);
    await back.close({ force: true });
  });
});
