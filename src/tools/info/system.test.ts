/** `info -s`: every value of a card and of its surroundings under its own name, for two cards whose values all differ. */

import { describe, expect, it } from 'vitest';
import { SCRIPTED_BUSES, scriptedNode } from '../../../test/fixtures/driver/scripted-node.ts';
import type { NetworkDevice, Topology } from '../../assembly/topology.ts';
import { cardLabel, namedCards } from '../../driver/card-names.ts';
import type { DriverNode } from '../../driver/port.ts';
import { HL_INFO_OP } from '../../uapi/index.ts';
import { chooseNetworkDevices } from '../../ucs/sys/topology.ts';
import { distanceLines, memcpyText, networkLines, readSystem, systemText } from './system.ts';

const [BUS_0, BUS_1] = SCRIPTED_BUSES;

const NETWORKS: readonly NetworkDevice[] = [
  {
    name: 'mlx5_1',
    kind: 'infiniband',
    up: true,
    megabitPerSecond: 400_000,
    pciPath: 'pci0000:17/0000:17:01.0/0000:1b:00.0',
    numaNode: -1,
    netdevs: [],
  },
  {
    name: 'eth9',
    kind: 'ethernet',
    up: false,
    megabitPerSecond: undefined,
    pciPath: undefined,
    numaNode: 0,
    netdevs: [],
  },
] as unknown as readonly NetworkDevice[];

function topologyOf(node: DriverNode): Topology {
  const cards = namedCards(node).flatMap((card) => {
    const { entry, index } = card;
    return entry ? [{ name: cardLabel(card), pciPath: entry.pciPath, numaNode: entry.numaNode, entry, index }] : [];
  });
  return { cards, networks: NETWORKS, scaleOut: 'auto', choices: chooseNetworkDevices(cards, [NETWORKS[0]!]) } as never;
}

function reportOf(node: DriverNode) {
  return readSystem({ node, topology: topologyOf(node), cards: namedCards(node) });
}

/** The text without the alignment of names. */
function linesOf(text: string): string[] {
  return text.split('\n').map((line) => line.replace(/^# +/, '# '));
}

describe('the report of a machine', () => {
  it('has every value of a card from its own source', () => {
    const [first, second] = reportOf(scriptedNode()).cards;
    expect(first).toMatchObject({
      index: 0,
      minor: 4,
      busId: BUS_0,
      state: 'operational',
      path: '/dev/accel/accel4',
      pciPath: 'pci0000:07/0000:19:00.0',
      numaNode: 0,
      siblings: [],
      network: 'mlx5_1 (infiniband, common: machine)',
      card: {
        name: 'HL225-0',
        moduleId: 2,
        hbmBytes: 97_536 * 2 ** 20,
        hbmPageBytes: 2 * 2 ** 20,
        sramBytes: 48 * 2 ** 20,
        firmware: 'cpucp-0',
      },
    });
    expect(second).toMatchObject({
      index: 1,
      minor: 2,
      busId: BUS_1,
      network: 'mlx5_1 (infiniband, common: PCI root)',
      card: { name: 'HL225-1', moduleId: 3, firmware: 'cpucp-1' },
    });
  });

  it('prints it under its own name', () => {
    const text = systemText(reportOf(scriptedNode()), true);
    expect(linesOf(text).slice(0, 21)).toEqual([
      '#',
      '# 2 Gaudi cards (habanalabs kernel driver)',
      '#',
      `# card 0 (accel4, ${BUS_0}): /dev/accel/accel4`,
      '# name: HL225-0',
      `# bus id: ${BUS_0}`,
      `# PCI path: pci0000:07/${BUS_0}`,
      '# PCI siblings: none',
      '# module id: 2',
      '# NUMA node: 0',
      '# HBM: 95.3 GiB for users, pages of 2.0 MiB',
      '# SRAM: 48.0 MiB',
      '# firmware: cpucp-0',
      '# status: operational',
      '# NIC ports: 3 (2 scale-up, 1 scale-out), 0 links down',
      '# to card 1: 2 of 2 links up: ports 1 (eth01), 3',
      '# scale-out: ports 8 (eth08)',
      '# network: mlx5_1 (infiniband, common: machine)',
      '#',
      `# card 1 (accel2, ${BUS_1}): /dev/accel/accel2`,
      '# name: HL225-1',
    ]);
    expect(linesOf(text)).toContain('# NIC ports: 3 (2 scale-up, 1 scale-out), 1 links down');
    expect(linesOf(text)).toContain('# to card 0: 1 of 2 links up: ports 1 down (eth11), 3');
    expect(systemText(reportOf(scriptedNode()), false)).not.toContain('scale-out: ports');
  });

  it('counts ports without a card at the far end, and tells that states of links are not known', () => {
    const node = scriptedNode({
      node: {
        links: () => [
          { port: 1, up: undefined as never, netdev: undefined, peer: { busId: undefined as never, port: 9 } },
        ],
      },
    });
    expect(linesOf(systemText(reportOf(node), true))).toContain(
      '# NIC ports: 3 (2 scale-up, 1 scale-out), link states not reported, 2 without a card at the far end',
    );
  });

  it('has the reason why a card cannot be asked, and what its driver does not report', () => {
    const node = scriptedNode({ answers: { [HL_INFO_OP.HW_IP_INFO]: () => -16 }, attributes: { status: 'In reset' } });
    const lines = linesOf(systemText(reportOf(node), true));
    expect(lines.find((line) => line.startsWith('# status'))).toMatch(/^# status: in reset \(.+\)$/);
    expect(lines.some((line) => line.startsWith('# HBM') || line.startsWith('# NIC'))).toBe(false);
  });

  it('lists removed cards by their index, those without one last', () => {
    const absent = [
      { minor: 7, busId: '0000:ff:00.0', state: 'no device node' },
      { minor: 6, busId: '0000:01:00.0', state: 'removed' },
    ];
    const report = reportOf(scriptedNode({ node: { absentCards: () => absent } }));
    expect(report.cards.map(({ index, busId, state }) => [index, busId, state])).toEqual([
      [0, '0000:01:00.0', 'removed'],
      [1, BUS_0, 'operational'],
      [2, BUS_1, 'operational'],
      [undefined, '0000:ff:00.0', 'no device node'],
    ]);
    expect(linesOf(systemText(report, true))).toContain('# card 0 (accel6, 0000:01:00.0)');
    expect(distanceLines(report)[1]!.split('\n')).toHaveLength(3);
  });

  it('has the distances from each card to cards and network devices, and its NUMA node', () => {
    const report = reportOf(scriptedNode());
    expect(report.distances).toEqual([
      ['-', 'machine'],
      ['machine', '-'],
    ]);
    expect(report.networkDistances).toEqual([
      ['machine', 'unknown'],
      ['PCI root', 'unknown'],
    ]);
    const [title, table] = distanceLines(report);
    expect(title).toBe('# distances between cards, and to network devices');
    expect(table!.split('\n').map((line) => line.split(/\s{2,}/))).toEqual([
      ['# common', 'card 0', 'card 1', 'mlx5_1', 'eth9', 'NUMA'],
      ['# card 0', '-', 'machine', 'machine', 'unknown', '0'],
      ['# card 1', 'machine', '-', 'PCI root', 'unknown', '1'],
    ]);
  });

  it('has the network devices with their links, speeds and places', () => {
    const [, table] = networkLines(reportOf(scriptedNode()));
    expect(table!.split('\n').map((line) => line.split(/\s{2,}/))).toEqual([
      ['# name', 'kind', 'link', 'speed', 'NUMA', 'PCI path'],
      ['# mlx5_1', 'infiniband', 'up', '400 Gb/s', '-', 'pci0000:17/0000:17:01.0/0000:1b:00.0'],
      ['# eth9', 'ethernet', 'down', '-', '0', '-'],
    ]);
    expect(networkLines({ ...reportOf(scriptedNode()), networks: [] })[1]).toBe('# none');
  });

  it('tells why there are no cards', () => {
    const node = scriptedNode({ node: { cards: () => [], whyNoCards: () => 'the driver is not loaded' } });
    expect(linesOf(systemText(reportOf(node), true)).slice(1, 4)).toEqual([
      '# 0 Gaudi cards (habanalabs kernel driver)',
      '#',
      '# the driver is not loaded',
    ]);
    expect(reportOf(scriptedNode({ node: { whyNoCards: () => 'unasked' } })).whyNoCards).toBeUndefined();
  });
});

it('bandwidth of copies is in MB/s of 2^20 bytes', () => {
  expect(memcpyText([{ byteLength: 4096, bytesPerSecond: 3 * 2 ** 20 }]).split('\n')[2]).toBe(
    '#           4096 bytes: 3.000 MB/s',
  );
});
