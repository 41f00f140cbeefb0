/** Settings that leave libucp no transport with messages: refused when the context is created, with the reason and a setting that works. */

import { describe, expect, it } from 'vitest';
import { Context, MemoryType } from '../../../src/index.ts';
import { failureOf, rkeyOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { expectContents, expectSame, fill, pattern } from '../../fixtures/pair.ts';

const { libucp } = installedLibucp();
const BYTES = 10_000;

describe.skipIf(libucp === undefined)('UCX_TLS without messages over libucp (needs libucp)', () => {
  const fixture = useContexts('libucx');

  it.each([
    ['gaudi_copy', { cards: 1 }, /\(UCX_TLS=gaudi_copy; self does not report completed sends/],
    ['self', { cards: 1 }, /\(UCX_TLS=self; self does not report completed sends/],
    ['cma,gaudi', { cards: 1 }, /\(UCX_TLS=cma,gaudi; cma needs another transport for messages/],
    ['rc,gaudi', { cards: 1, nics: 1 }, /\(UCX_TLS=rc,gaudi; libucp cannot use rc of the emulated node\)/],
  ])('%s is refused with the reason', async (tls, node, reason) => {
    const failure = await failureOf(() => fixture.open({ node, context: { env: { UCX_TLS: tls } } }));
    expect(failure.code).toBe('ERR_NO_TRANSPORT');
    expect(failure.message).toMatch(reason);
    expect(failure.message).toMatch(
      /UCX [\d.]+ has .*\btcp\b.* on this machine: add one to UCX_TLS, or use engine native$/,
    );
  });

  it.each(['tcp', 'posix'])('gaudi_copy works with %s, as the refusal says', async (added) => {
    const stack = await fixture.open({ context: { env: { UCX_TLS: `gaudi_copy,${added}` } } });
    const hbm = stack.context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    await stack.endpoint.put(pattern(BYTES, 1), rkeyOf(stack, hbm));
    await expectContents(stack, hbm, pattern(BYTES, 1));
    const received = new Uint8Array(BYTES);
    await Promise.all([stack.endpoint.tagSend(hbm, { tag: 1 }), stack.worker.tagRecv(received, { tag: 1 })]);
    expectSame(received, pattern(BYTES, 1));
  });

  it('makes auto take the native engine, which has others', async () => {
    const node = fixture.node({ cards: 1, nics: 1 });
    const env = { UCX_TLS: 'rc,gaudi' };
    const stack = await fixture.openOn(node, { engine: 'auto', env });
    expect(stack.context.engine).toMatchObject({ name: 'native', reason: expect.stringContaining('UCX_TLS=rc,gaudi') });
    const [hbm, received] = [
      stack.context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI }),
      new Uint8Array(BYTES),
    ];
    await fill(stack, hbm, pattern(BYTES, 2));
    await Promise.all([stack.endpoint.tagSend(hbm, { tag: 1 }), stack.worker.tagRecv(received, { tag: 1 })]);
    expectSame(received, pattern(BYTES, 2));
    await stack.context.close();
    // libucx by its name is refused, and leaves the card free.
    await expect(Context.create(fixture.quiet({ node, engine: 'libucx', env }))).rejects.toMatchObject({
      code: 'ERR_NO_TRANSPORT',
    });
    await fixture.openOn(node, { engine: 'native', env });
  });
});
