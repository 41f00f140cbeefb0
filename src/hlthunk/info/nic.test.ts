/** NIC ports with the links of the node. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import type { DriverNode } from '../../driver/port.ts';
import { getHwIpInfo, getNicPorts, linksBetween } from '../index.ts';

const fixture = useEmulatedDevice();

/** The node of the fixture with other links. */
function nodeWith(links: DriverNode['links']): DriverNode {
  const { node } = fixture;
  const { kind } = node;
  const refused = (): never => {
    throw new Error('not asked for here');
  };
  return {
    kind,
    emulated: kind === 'emulator',
    cards: () => node.cards(),
    open: refused,
    openControl: refused,
    attribute: () => undefined,
    ...(links === undefined ? {} : { links }),
    close: () => {},
  };
}

describe('NIC ports', () => {
  it('have the link states and far ends of the node', () => {
    const device = fixture.setUp({ cards: 2 });
    const { busId } = fixture.node.cards()[1]!;
    const before = getNicPorts(device, undefined, fixture.node)!;
    expect(linksBetween(before, busId)).toEqual({ total: 3, up: 3 });
    const { port } = before.find(({ peer }) => peer?.busId === busId)!;
    fixture.node.inject(0, { kind: 'link-down', port });
    const after = getNicPorts(device, undefined, fixture.node)!;
    expect(after.find((candidate) => candidate.port === port)).toMatchObject({ linkUp: false, external: false });
    expect(linksBetween(after, busId)).toEqual({ total: 3, up: 2 });
    expect(after.filter(({ external }) => external).map(({ port: number, peer }) => [number, peer])).toEqual([
      [8, undefined],
      [22, undefined],
      [23, undefined],
    ]);
  });

  it("have the far ends of the server's wiring if the node reports no links", () => {
    const device = fixture.setUp({ cards: 2 });
    const { busId } = fixture.node.cards()[1]!;
    const ports = getNicPorts(device, undefined, nodeWith(undefined))!;
    expect(ports.every(({ linkUp }) => linkUp === undefined)).toBe(true);
    expect(linksBetween(ports, busId)).toEqual({ total: 3, up: 3 });
    // Module 1 of a board of eight, of which this node has two cards.
    const absent = ports.filter(({ peer, external }) => !external && peer?.busId === undefined);
    expect(absent).toHaveLength(18);
    expect(ports.filter(({ connected }) => connected === false)).toEqual(absent);
    expect(ports.filter(({ connected }) => connected === true)).toHaveLength(3 + 3);
  });

  it('have interfaces if the node names them, and count a link of unknown state as up', () => {
    const device = fixture.setUp({ cards: 2 });
    const { busId } = fixture.node.cards()[1]!;
    const mine = getNicPorts(device, undefined, fixture.node)!.filter(({ peer }) => peer?.busId === busId);
    const down = mine[0]!.port;
    const node = nodeWith(() => [{ port: down, up: false, netdev: 'eth7', peer: undefined }]);
    const ports = getNicPorts(device, undefined, node)!;
    expect(ports.find(({ port }) => port === down)).toMatchObject({ linkUp: false, netdev: 'eth7', peer: { busId } });
    expect(linksBetween(ports, busId)).toEqual({ total: 3, up: 2 });
  });

  it('of a server whose wiring is not public have no far ends', () => {
    const device = fixture.setUp({ cards: 2 });
    const info = { ...getHwIpInfo(device), serverType: 0 };
    const ports = getNicPorts(device, info, nodeWith(undefined))!;
    expect(linksBetween(ports, fixture.node.cards()[1]!.busId)).toBeUndefined();
  });
});
