import { describe, expect, it } from 'vitest';
import { distanceBetween } from '../../ucs/sys/topology.ts';
import { createEmulatedNode } from '../emulated-node.ts';
import { placesOf } from './card-places.ts';
import type { EmulatedNodeOptions } from './node-config.ts';

describe('the places of cards', () => {
  it('are those of a server by default', () => {
    const places = placesOf(4, []);
    expect(places.map(({ busId }) => busId)).toEqual(['0000:19:00.0', '0000:1a:00.0', '0000:33:00.0', '0000:34:00.0']);
    expect(places.map(({ moduleId }) => moduleId)).toEqual([3, 2, 1, 0]);
    // The NUMA nodes of their root bridges; the first four cards share a socket.
    expect(places.map(({ numaNode }) => numaNode)).toEqual([0, 0, 0, 0]);
  });

  it('follow the options, with defaults for omitted fields', () => {
    const node = createEmulatedNode({
      cards: 3,
      dmaThreads: 0,
      identities: [{ busId: '4D:00.0', moduleId: 2, numaNode: 5 }, { busId: '0000:1a:00.0' }, { moduleId: 7 }],
    });
    const cards = node.cards().map(({ busId, moduleId, numaNode, pciPath }) => [busId, moduleId, numaNode, pciPath]);
    expect(cards).toEqual([
      ['0000:4d:00.0', 2, 5, 'pci0000:4d/0000:4d:00.0'],
      ['0000:1a:00.0', 1, 0, 'pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0'],
      ['0000:33:00.0', 7, 0, 'pci0000:30/0000:30:01.0/0000:31:00.0/0000:32:00.0/0000:33:00.0'],
    ]);
    expect(node.attribute(0, 'pci_addr')).toBe('0000:4d:00.0');
    node.close();
  });

  it('are behind the switch that has the bus, each behind a port, or below a separate root', () => {
    const paths = (busIds: readonly string[]): string[] =>
      placesOf(
        busIds.length,
        busIds.map((busId) => ({ busId })),
      ).map(({ pciPath }) => pciPath);
    expect(paths(['0000:1c:00.0', '0000:20:00.0'])).toEqual([
      'pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:03.0/0000:1c:00.0',
      'pci0000:20/0000:20:00.0',
    ]);
    // Without a card behind the switch, its buses are free; in another domain, too.
    expect(paths(['0000:17:00.0', '0001:19:00.0'])).toEqual(['pci0000:17/0000:17:00.0', 'pci0001:19/0001:19:00.0']);
  });

  const refused: [string, NonNullable<EmulatedNodeOptions['identities']>][] = [
    ['more than there are cards', [{}, {}, {}]],
    ['a bus id that is none', [{ busId: 'card0' }]],
    ['a bus id twice', [{ busId: '0000:4d:00.0' }, { busId: '4d:00.0' }]],
    ['a bus id on a bus of the switch of another card', [{ busId: '0000:18:1f.0' }, { busId: '0000:19:00.0' }]],
    ['a module id twice', [{ moduleId: 1 }, { moduleId: 1 }]],
    ['a module id that the board does not have', [{ moduleId: 8 }]],
    ['a NUMA node that is not a number', [{ numaNode: -1 }]],
    ['a value that is not an identity', [null as never]],
  ];
  it.each(refused)('refuse %s', (_what, identities) => {
    expect(() => createEmulatedNode({ cards: 2, identities })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
  });

  it.each([1, 2, 3, 4, 5, 6, 7, 8])(
    'of %i cards agree with each other: below one bridge is on one NUMA node',
    (count) => {
      const cards = placesOf(count, []).map((place) => ({ ...place, name: `card ${place.minor}` }));
      for (const one of cards) {
        for (const other of cards) {
          const { kind } = distanceBetween(one, other);
          const isSameNode = one.numaNode === other.numaNode;
          expect(kind === 'machine', `${one.name} and ${other.name}: ${kind}`).toBe(!isSameNode);
        }
      }
    },
  );
});
