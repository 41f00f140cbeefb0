/** Host memory of the program that was registered by its address is given back when its last user unmaps it, on both engines. */

import { describe, expect, it } from 'vitest';
import { free, malloc } from '../../../src/hlthunk/index.ts';
import { type EngineName, MemoryType } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const BYTES = 65_536;

describe.each<EngineName>(['native', 'libucx'])('memory of malloc, engine %s', (engine) => {
  const fixture = useContexts(engine);

  it.skipIf(engine === 'libucx' && installedLibucp().libucp === undefined)(
    'can be freed as soon as its last mapping ended, also after transfers (needs libucp for libucx)',
    async () => {
      const { context, endpoint } = await fixture.open({ node: { cards: 1 } });
      const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
      const key = endpoint.unpackRkey(context.packRkey(hbm));
      const buffer = malloc(BYTES);
      buffer.bytes.fill(7);
      const [first, second] = [0, 1].map(() => context.memMap({ address: buffer.address, byteLength: BYTES }));
      await endpoint.put(first!, key);
      context.memUnmap(first!);
      const back = new Uint8Array(BYTES);
      await endpoint.get(back, key);
      expect(back).toEqual(buffer.bytes);
      context.memUnmap(second!);
      free(buffer);
      expect(buffer.freed).toBe(true);
      context.memUnmap(hbm);
    },
  );
});
