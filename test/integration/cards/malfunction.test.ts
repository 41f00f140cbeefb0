/** A card that has failed for good: every operation says so, on both engines; the driver answers EBUSY and EPERM, which mean other things too. */

import { describe, expect, it } from 'vitest';
import { hostMemoryMap, open, openControl } from '../../../src/hlthunk/index.ts';
import { type EngineName, MemoryType, Status } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const BYTES = 65_536;
const FAILED = /the card has failed \(malfunction\)/;

/** The message of an error and of its causes. */
function messagesOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause === undefined ? message : `${message}; ${messagesOf(cause)}`;
}

describe.each<EngineName>(['native', 'libucx'])('a card that has failed, engine %s', (engine) => {
  const fixture = useContexts(engine);

  it.skipIf(engine === 'libucx' && installedLibucp().libucp === undefined)(
    'is named by all operations, and none says busy or rejected (needs libucp for libucx)',
    async () => {
      fixture.allow(/./);
      const { node, context, endpoint } = await fixture.open({ node: { cards: 1 } });
      const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
      const key = endpoint.unpackRkey(context.packRkey(hbm));
      node.inject(0, { kind: 'malfunction' });
      const operations: Readonly<Record<string, () => unknown>> = {
        put: () => endpoint.put(new Uint8Array(BYTES), key),
        'short put': () => endpoint.put(new Uint8Array(8), key),
        get: () => endpoint.get(new Uint8Array(BYTES), key),
        'put of HBM': () => endpoint.put(hbm, key),
        allocate: () => context.memMap({ allocate: 2 ** 31, memoryType: MemoryType.GAUDI }),
      };
      for (const [name, run] of Object.entries(operations)) {
        const error = await failureOf(async () => run());
        expect.soft(messagesOf(error), name).toMatch(FAILED);
        expect.soft(messagesOf(error), name).not.toMatch(/busy|rejected/i);
        expect.soft(error.status, name).toBe(Status.IO_ERROR);
      }
      context.memUnmap(hbm);
    },
  );
});

describe('a card that has failed, in hl-thunk', () => {
  const fixture = useContexts();

  it('is named by the calls of a device and by open', async () => {
    const node = fixture.node({ cards: 1 });
    const device = open(node);
    node.inject(0, { kind: 'malfunction' });
    expect(() => hostMemoryMap(device, 0x10000, 4096)).toThrow(
      expect.objectContaining({ code: 'ERR_GAUDI_DMA_FAILED', message: expect.stringMatching(FAILED) }),
    );
    device.close();
    for (const attempt of [() => open(node), () => openControl(node, 0)]) {
      expect(attempt).toThrow(
        expect.objectContaining({ status: Status.IO_ERROR, message: expect.stringMatching(FAILED) }),
      );
    }
  });
});
