/** The choice of the network device of each card, for emulated cards in a machine with a fake /sys. */

import { describe, expect, it } from 'vitest';
import { FakeMachine, type FakeNetworkPlace } from '../../test/fixtures/driver/fake-machine.ts';
import { SCRIPTED_BUSES, scriptedNode } from '../../test/fixtures/driver/scripted-node.ts';
import { namedCards } from '../driver/card-names.ts';
import { createEmulatedNode } from '../emulator/index.ts';
import { startProgram } from './program/program.ts';
import { distancesOf, readTopology } from './topology.ts';

/** A machine with interfaces at given PCI locations. */
function machineWith(networks: Readonly<Record<string, FakeNetworkPlace>>): FakeMachine {
  const machine = new FakeMachine();
  machine.addNetworks(networks);
  return machine;
}

function choices(machine: FakeMachine): unknown[] {
  const node = createEmulatedNode({ dmaThreads: 0 });
  try {
    const { config: values } = startProgram({ env: {}, configDirectories: [] });
    const topology = readTopology({ node, config: values, sysRoot: machine.sysRoot });
    return topology.choices.map((choice) => choice && `${choice.device.name}: ${choice.distance.kind}`);
  } finally {
    node.close();
  }
}

const NETWORKS = {
  far: { path: 'pci0000:c0/0000:c0:01.0/0000:c1:00.0', numa: 1 },
  beside: { path: 'pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:02.0/0000:1b:00.0', numa: 0 },
  root: { path: 'pci0000:30/0000:30:05.0/0000:3a:00.0', numa: 0 },
};

describe('the network device of a card', () => {
  it('is the nearest with a link', () => {
    using machine = machineWith(NETWORKS);
    expect(choices(machine)).toEqual([
      'beside: PCI switch',
      'beside: PCI switch',
      'root: PCI root',
      'root: PCI root',
      'far: NUMA node',
      'far: NUMA node',
      'far: NUMA node',
      'far: NUMA node',
    ]);
  });

  it('is never one without a link', () => {
    using machine = machineWith({ ...NETWORKS, beside: { ...NETWORKS.beside, up: false } });
    expect(choices(machine).slice(0, 2)).toEqual(['root: NUMA node', 'root: NUMA node']);
  });

  it('is undefined in a machine without one', () => {
    using machine = machineWith({});
    expect(choices(machine)).toEqual(Array.from({ length: 8 }, () => undefined));
  });

  it('is at an unknown distance from emulated cards without a location in the machine', () => {
    const node = createEmulatedNode({ dmaThreads: 0, cards: 1 });
    const { config } = startProgram({ env: {}, configDirectories: [] });
    for (const choice of readTopology({ node, config }).choices)
      expect(choice?.distance.kind ?? 'unknown').toBe('unknown');
    node.close();
  });

  it('is an RDMA device of the emulated node below the switch of the card, if it has any', () => {
    const node = createEmulatedNode({ dmaThreads: 0, cards: 4, nics: 4 });
    const { config } = startProgram({ env: {}, configDirectories: [] });
    const near = readTopology({ node, config }).choices.map((choice) => [choice?.device.name, choice?.distance.kind]);
    expect(near).toEqual(['hca0', 'hca0', 'hca2', 'hca2'].map((name) => [name, 'PCI switch']));
    node.close();
  });

  it('is chosen among all, of which those of the emulated node come first', () => {
    using machine = machineWith(NETWORKS);
    const node = createEmulatedNode({ dmaThreads: 0, cards: 1, nics: 2 });
    const { config } = startProgram({ env: {}, configDirectories: [] });
    const { networks } = readTopology({ node, config, sysRoot: machine.sysRoot });
    node.close();
    expect(networks.slice(0, 2).map(({ name }) => name)).toEqual(['hca0', 'hca1']);
    expect(
      networks
        .slice(2)
        .map(({ name }) => name)
        .sort(),
    ).toEqual(Object.keys(NETWORKS).sort());
  });
});

describe('the cards of a topology', () => {
  it('are those with a location: removed cards have none', () => {
    using machine = machineWith(NETWORKS);
    const node = scriptedNode({
      node: { absentCards: () => [{ minor: 6, busId: '0000:01:00.0', state: 'removed' }] },
    });
    const { config } = startProgram({ env: {}, configDirectories: [] });
    const { cards } = readTopology({ node, config, sysRoot: machine.sysRoot });
    expect(cards.map(({ index, entry }) => [index, entry.busId])).toEqual([
      [1, SCRIPTED_BUSES[0]],
      [2, SCRIPTED_BUSES[1]],
    ]);
  });
});

describe('the distances of a context', () => {
  it('are those of the devices of its transports, also with a port, and undefined outside the topology', () => {
    using machine = machineWith(NETWORKS);
    const node = createEmulatedNode({ dmaThreads: 0, nics: 8 });
    const { config } = startProgram({ env: {}, configDirectories: [] });
    let readings = 0;
    const counting = {
      ...node,
      get verbs() {
        readings += 1;
        return node.verbs;
      },
    } as unknown as typeof node;
    const sources = { node: counting, config, cards: namedCards(node), sysRoot: machine.sysRoot };
    // The logical index of the context is not that of the bus id.
    const cards = [{ index: 7, device: { busId: node.cards()[0]!.busId } }];
    const distanceOf = distancesOf({ cards: cards as never }, sources);
    expect(readings).toBe(0);
    const kind = (sysDevice: number, device: string): string | undefined =>
      distanceOf(sysDevice, { device } as never)?.kind;
    expect(kind(7, 'beside')).toBe('PCI switch');
    const once = readings;
    expect(['far', 'hca0:1', 'hca0', 'lo', 'hca0:x'].map((device) => kind(7, device))).toEqual([
      'machine',
      'PCI switch',
      'PCI switch',
      undefined,
      undefined,
    ]);
    expect(kind(0, 'beside')).toBeUndefined();
    expect(readings).toBe(once);
    node.close();
  });
});
