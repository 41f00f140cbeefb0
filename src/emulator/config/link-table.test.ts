/** The links of a node: their ends, and the effect of faults. */

import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../../test/contract/driver/driver-client.ts';
import { close, Errno } from '../../sys/index.ts';
import { createEmulatedNode, type EmulatedNode } from '../index.ts';

function nodeOf(options: Parameters<typeof createEmulatedNode>[0]): EmulatedNode {
  return createEmulatedNode({ dmaThreads: 0, ...options });
}

/** Links between two cards that are up, and all of them. */
function between(node: EmulatedNode, minor: number, other: number): [number, number] {
  const { busId } = node.cards()[other]!;
  const links = node.links(minor)!.filter(({ peer }) => peer?.busId === busId);
  return [links.filter(({ up }) => up).length, links.length];
}

describe.each([
  ['gaudi', 1, 3],
  ['gaudi2', 3, 3],
  ['gaudi3', 3, 3],
] as const)('links of %s', (asic, perPeer, external) => {
  it('lead from every card to every other one, and out of the server', () => {
    const node = nodeOf({ asic });
    for (const { minor } of node.cards()) {
      for (const { minor: other } of node.cards()) {
        expect(between(node, minor, other)).toEqual(minor === other ? [0, 0] : [perPeer, perPeer]);
      }
      const out = node.links(minor)!.filter(({ peer }) => peer === undefined);
      expect(out.map(({ up }) => up)).toEqual(Array.from({ length: external }, () => true));
    }
    node.close();
  });

  it('have two ends, which name each other', () => {
    const node = nodeOf({ asic });
    const cards = node.cards();
    for (const { minor, busId } of cards) {
      for (const { port, peer } of node.links(minor)!) {
        if (peer === undefined) continue;
        const far = cards.find((card) => card.busId === peer.busId)!;
        expect(node.links(far.minor)![peer.port]).toMatchObject({ port: peer.port, peer: { busId, port } });
      }
    }
    node.close();
  });

  it('to absent cards are down', () => {
    const node = nodeOf({ asic, cards: 2 });
    expect(between(node, 0, 1)).toEqual([perPeer, perPeer]);
    expect(node.links(0)!.filter(({ up }) => up)).toHaveLength(perPeer + external);
    expect(node.card(0).links.down(0)).toEqual([]);
    node.close();
  });
});

describe('a link', () => {
  it('goes down and up at both ends', () => {
    const node = nodeOf({ cards: 2 });
    const { port, peer } = node.links(0)!.find((link) => link.peer !== undefined)!;
    node.inject(0, { kind: 'link-down', port });
    expect([between(node, 0, 1), between(node, 1, 0)]).toEqual([
      [2, 3],
      [2, 3],
    ]);
    expect(node.card(1).links.down(1)).toEqual([peer!.port]);
    node.inject(1, { kind: 'link-up', port: peer!.port });
    expect(between(node, 0, 1)).toEqual([3, 3]);
    node.inject(1, { kind: 'link-down', peer: 0 });
    expect(between(node, 0, 1)).toEqual([0, 3]);
    node.close();
  });

  it('to a card that was unplugged is down', () => {
    const node = nodeOf({ cards: 3 });
    const { busId } = node.cards()[2]!;
    node.inject(2, { kind: 'unplug' });
    const lost = node.links(0)!.filter(({ peer }) => peer?.busId === busId);
    expect(lost.map(({ up }) => up)).toEqual([false, false, false]);
    expect(between(node, 0, 1)).toEqual([3, 3]);
    expect(node.links(2)).toBeUndefined();
    for (const choice of [{ peer: 2 }, { port: lost[0]!.port }]) {
      expect(() => node.inject(0, { kind: 'link-up', ...choice })).toThrow(/argument (peer|port) /);
    }
    expect(() => node.inject(2, { kind: 'link-up', peer: 0 })).toThrow(/argument peer /);
    expect(node.links(0)!.filter(({ up, peer }) => up && peer?.busId === busId)).toEqual([]);
    node.close();
  });

  it('out of the server goes down and up, too', () => {
    const node = nodeOf({ cards: 1 });
    node.inject(0, { kind: 'link-down', port: 22 });
    expect(
      node
        .links(0)!
        .filter(({ up, peer }) => up && peer === undefined)
        .map(({ port }) => port),
    ).toContain(8);
    expect(node.card(0).links.down(0)).toEqual([22]);
    node.close();
  });

  it.each([
    [{}, 'link'],
    [{ port: 0, peer: 1 }, 'link'],
    [{ port: 24 }, 'port'],
    [{ port: 2 }, 'port'],
    [{ peer: 0 }, 'peer'],
    [{ peer: 7 }, 'peer'],
  ])('that is not there, %o, is named', (choice, argument) => {
    const node = nodeOf({ cards: 2 });
    expect(() => node.inject(0, { kind: 'link-down', ...choice })).toThrow(new RegExp(`argument ${argument} `));
    node.close();
  });

  it('is not reported by a driver without port masks', () => {
    const node = nodeOf({ cards: 2, reportNicPorts: false });
    expect(node.links(0)).toBeUndefined();
    node.close();
  });

  it('that is the last one between two cards prevents the import of memory of the other card: ENXIO', () => {
    const node = nodeOf({ cards: 2 });
    const [exporter, importer] = [0, 1].map((minor) => new DriverClient(node.open(minor)));
    const memory = exporter!.mapDevice(exporter!.allocate(1).out).out;
    const { out: fd } = exporter!.exportDmabuf(memory, 65536);
    const ports = node
      .links(1)!
      .filter(({ peer }) => peer !== undefined)
      .map(({ port }) => port);
    for (const port of ports.slice(1, 3)) node.inject(1, { kind: 'link-down', port });
    for (const { port, up } of node.links(1)!.filter(({ peer }) => peer !== undefined)) {
      if (!up) continue;
      expect(importer!.importDmabuf(fd, 65536).result).toBe(0);
      node.inject(1, { kind: 'link-down', port });
    }
    expect(importer!.importDmabuf(fd, 65536)).toEqual({ result: -Errno.ENXIO, out: 0n });
    node.inject(0, { kind: 'link-up', peer: 1 });
    expect(importer!.importDmabuf(fd, 65536).result).toBe(0);
    close(fd);
    for (const client of [importer, exporter]) client!.close();
    node.close();
  });
});
