/** Programs start without the cards that others use, unless they have asked for cards: over both engines. */

import { describe, expect, it } from 'vitest';
import { Context, type ContextOptions, MemoryType } from '../../../src/index.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';

const ENGINES = [
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const;
const WARNING =
  /^gaudi_copy and gaudi_ipc are not used: gaudi device is busy: open of cards 0-1: EBUSY \(this process has it open\); select other cards/;

describe.each(ENGINES)('if all cards are busy, over the engine %s (needs libucp)', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)('a program starts with one warning, and moves host memory', async () => {
    const node = fixture.node();
    const files = node.cards().map(({ minor }) => node.open(minor));
    fixture.allow(WARNING);
    const { context, endpoint } = await fixture.openOn(node);
    expect(fixture.records.filter(({ message }) => WARNING.test(message))).toHaveLength(1);
    expect(context.query().unavailable).toContainEqual({
      name: 'gaudi_copy',
      reason: expect.stringMatching(/EBUSY.*UCX_ACC_DEVICES or GAUDI_MAPPING_TABLE/),
    });
    const memory = context.memMap({ allocate: 4096 });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    await endpoint.put(pattern(4096, 1), rkey);
    rkey.release();
    expectSame(memory.bytes!, pattern(4096, 1));
    expect(() => context.memMap({ allocate: 4096, memoryType: MemoryType.GAUDI })).toThrow(/EBUSY/);
    for (const file of files) file.close();
  });

  it.skipIf(!isThere).each<[string, (busId: string) => ContextOptions]>([
    ['GAUDI_MAPPING_TABLE', (bus_id) => ({ env: { GAUDI_MAPPING_TABLE: JSON.stringify([{ index: 0, bus_id }]) } })],
    ['UCX_ACC_DEVICES', () => ({ config: { ACC_DEVICES: 'gaudi1' } })],
    ['UCX_TLS', () => ({ config: { TLS: 'self,tcp,gaudi' } })],
  ])('a program that names them by %s fails with the reason', async (_name, optionsOf) => {
    const node = fixture.node();
    const cards = node.cards();
    const files = cards.map(({ minor }) => node.open(minor));
    const error = await failureOf(() => Context.create(fixture.quiet({ engine, node, ...optionsOf(cards[0]!.busId) })));
    expect(error).toMatchObject({ code: 'ERR_GAUDI_DEVICE_BUSY', status: Status.BUSY });
    for (const file of files) file.close();
  });
});
