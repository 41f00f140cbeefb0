/** `bytes` of memory that was unmapped, which a program may still have: they are private zero pages, and `view()` throws. */

import { describe, expect, it } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';
import { ENGINES } from '../../fixtures/pair.ts';

describe.each(ENGINES)('bytes of unmapped memory over the engine %s', (engine) => {
  const fixture = useContexts(engine);

  it.each([{ allocate: 64 }, { allocate: 8192 }, { allocate: 2 ** 20 }, { allocate: 8192, shared: true }])(
    'are 0, and take writes that reach nothing: %j',
    async (params) => {
      const { context } = await fixture.open();
      const memory = context.memMap(params);
      const bytes = memory.bytes!;
      bytes.fill(7);
      context.memUnmap(memory);
      expect(memory.bytes).toBe(bytes);
      expect(bytes).toEqual(new Uint8Array(params.allocate));
      expect(() => memory.view()).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
      const next = context.memMap(params);
      bytes.fill(9);
      expect(next.bytes).toEqual(new Uint8Array(params.allocate));
      context.memUnmap(next);
    },
  );

  it('stay those of the program for memory that it has mapped', async () => {
    const { context } = await fixture.open();
    const buffer = new Uint8Array(8192).fill(7);
    const memory = context.memMap({ buffer });
    context.memUnmap(memory);
    expect(memory.bytes).toBe(buffer);
    expect(buffer).toEqual(new Uint8Array(8192).fill(7));
  });
});
