/** The choice of the network device of each card, for emulated cards in a machine with a fake /sys. */

import { describe, expect, it } from 'vitest';
import { FakeMachine, type FakeNetworkPlace } from '../../test/fixtures/driver/fake-machine.ts';
import { createEmulatedNode } from '../emulator/index.ts';
import { startProgram } from './program/program.ts';
import { readTopology } from './topology.ts';

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
  beside: { path: 'pci0000:17/0000:17:01.0/0000:18:00.0/0000:1b:00.0', numa: 0 },
  root: { path: 'pci0000:31/0000:31:05.0/0000:3a:00.0', numa: 0 },
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
