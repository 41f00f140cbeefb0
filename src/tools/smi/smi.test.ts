/** `gaudi-ucx smi` in parts: golden outputs of emulated cards and of made-up trees of /dev and /sys, queries, and what is refused. */

import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { FakeMachine } from '../../../test/fixtures/driver/fake-machine.ts';
import { KernelNode } from '../../driver/kernel/kernel-node.ts';
import type { DriverNode } from '../../driver/port.ts';
import { createEmulatedNode } from '../../emulator/index.ts';
import { detailLines, listLines, SECTION_NAMES } from './details.ts';
import { QUERY_NAMES, queryLines, readFormat, readQueries } from './queries.ts';
import { readSmiCards } from './smi-card.ts';
import { affinityTable, linkMatrix, portLines, readPorts, readPortView, smiTable } from './smi-table.ts';

const GOLDEN = join(dirname(fileURLToPath(import.meta.url)), 'golden');
const TIME = 'Mon Nov 23 12:00:00 UTC 2026';

/** All outputs for a node, one behind the other. */
function allOutputs(node: DriverNode, sysRoot: string): string {
  const cards = readSmiCards(node);
  const { driverVersion, emulated } = node;
  return [
    smiTable(cards, { version: '1.2.3', driverVersion, emulated }),
    listLines(cards).join('\n'),
    queryLines(cards, QUERY_NAMES, readFormat('csv'), TIME).join('\n'),
    detailLines(cards, SECTION_NAMES, TIME).join('\n'),
    linkMatrix(cards),
    affinityTable(cards, { cpu: true, numa: true }, sysRoot),
  ]
    .join('\n\n')
    .replaceAll(dirname(sysRoot), '');
}

/** Compares with a golden file, which `UPDATE_GOLDEN=1` writes. */
function expectGolden(name: string, text: string): void {
  const path = join(GOLDEN, name);
  if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(path, `${text}\n`);
  expect(`${text}\n`).toBe(readFileSync(path, 'utf8'));
}

describe('smi', () => {
  it('prints emulated cards as its golden file has them', () => {
    using machine = new FakeMachine();
    machine.write('sys/devices/system/node/node0/cpulist', '0-39,80-119\n');
    const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
    try {
      expectGolden('emulated.txt', allOutputs(node, machine.sysRoot));
    } finally {
      node.close();
    }
  });

  it('prints what sysfs and hwmon tell of cards that do not answer, and N/A for the rest', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout: 'accel-parent', busId: '0000:19:00.0', moduleId: 3, numaNode: 1 });
    machine.addCard({ minor: 2, layout: 'accel-parent', busId: '0000:b3:00.0' });
    machine.write('sys/module/habanalabs/version', '1.22.0-5f8fa9f\n');
    const folder = 'sys/class/accel/accel0/device';
    for (const [name, text] of Object.entries({
      device_type: 'GAUDI2',
      max_power: '600000000',
      fw_os_ver: 'hl-1.22.0-fw-61.0.2',
      preboot_btl_ver: 'hl-gaudi2-1.22.0',
      clk_cur_freq_mhz: '1300',
      clk_max_freq_mhz: '1650',
      hard_reset_cnt: '2',
      status: 'In reset',
    })) {
      machine.write(`${folder}/${name}`, `${text}\n`);
    }
    machine.write('sys/bus/pci/devices/0000:19:00.0/hwmon/hwmon3/temp1_input', '36500\n');
    machine.write('sys/devices/system/node/node1/cpulist', '40-79\n');
    const node = new KernelNode({ devRoot: machine.devRoot, sysRoot: machine.sysRoot, procRoot: '/nonexistent' });
    try {
      expectGolden('kernel.txt', allOutputs(node, machine.sysRoot));
    } finally {
      node.close();
    }
  });

  it('prints a node without cards', () => {
    using machine = new FakeMachine();
    const node = new KernelNode({ devRoot: machine.devRoot, sysRoot: machine.sysRoot, procRoot: '/nonexistent' });
    const cards = readSmiCards(node);
    expect(cards).toEqual([]);
    expect(smiTable(cards, { version: '1', driverVersion: undefined, emulated: false })).toContain('Driver Version:');
    expect(queryLines(cards, ['index'], readFormat('csv'), TIME)).toEqual(['index']);
    expect(linkMatrix(cards)).toContain('Number of links');
    node.close();
  });

  it('has lines of one width in its table, whatever the values', () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const [card] = readSmiCards(node);
    node.close();
    const long = {
      ...card!,
      name: 'x'.repeat(60),
      state: 'in a reset that takes long',
      temperature: 101.6,
      power: 1234,
      powerMax: 12_345,
      pid: 4_194_303,
      command: 'y'.repeat(300),
      memoryUsedBytes: card!.memoryBytes,
      utilization: 100,
    };
    const lines = smiTable([card!, long], { version: '1', driverVersion: undefined, emulated: true }).split('\n');
    expect(new Set(lines.map(({ length }) => length))).toEqual(new Set([79]));
  });
});

describe('ports', () => {
  it('are those that lead to other cards, with the state of their links, or all with where they lead', () => {
    const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
    const cards = readSmiCards(node);
    node.close();
    const [first, second] = cards;
    const external = first!.ports!.filter((port) => port.external).map(({ port }) => port);
    expect(external.length).toBe(3);
    const links = portLines([first!], 'link', undefined);
    expect(links.length).toBe(first!.ports!.length - 3);
    expect(links[0]).toMatch(/^port {2}0:\t(UP|DOWN)$/);
    expect(links.filter((line) => line.endsWith('\tUP')).length).toBe(first!.links[1]!.up);
    const all = portLines([first!], 'ports', undefined);
    expect(all.length).toBe(first!.ports!.length);
    expect(all.filter((line) => line.endsWith('external'))).toEqual(
      external.map((port) => `port ${String(port).padStart(2)}:\texternal`),
    );
    const [port] = first!.ports!;
    const broken = {
      ...first!,
      ports: [
        { ...port!, linkUp: false },
        { ...port!, port: 11, linkUp: undefined },
      ],
    };
    expect(portLines([broken, { ...second!, ports: undefined }], 'link', readPorts('11,0'))).toEqual([
      first!.busId,
      'port  0:\tDOWN',
      'port 11:\tN/A',
      second!.busId,
      'ports:\tN/A',
    ]);
  });

  it.each([
    [() => readPortView('stats'), /-n must be one of link, ports, got "stats"/],
    [() => readPorts('1,x'), /-P must be ports from 0 to 63/],
    [() => readPorts('64'), /-P must be ports/],
    [() => readPorts(''), /-P must be ports/],
  ])('refuse what does not exist (%#)', (read, message) => {
    expect(read).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(message) }),
    );
  });
});

describe('queries', () => {
  it('have the forms of hl-smi', () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const cards = readSmiCards(node);
    node.close();
    const names = readQueries('index, bus_id,memory.total,uuid');
    const form = (text: string): string[] => queryLines(cards, names, readFormat(text), TIME);
    expect(form('csv')).toEqual(['index, bus_id, memory.total [MiB], uuid', '0, 0000:19:00.0, 97536 MiB, N/A']);
    expect(form('csv,noheader')).toEqual(['0, 0000:19:00.0, 97536 MiB, N/A']);
    expect(form('csv,noheader,nounits')).toEqual(['0, 0000:19:00.0, 97536, N/A']);
  });

  it.each([
    [() => readQueries('index,memory.usd'), /-Q must be names from timestamp, .*got "memory.usd"/],
    [() => readQueries(''), /-Q must be names from/],
    [() => readQueries('constructor'), /-Q must be names from/],
    [() => readFormat('xml'), /-f must be csv/],
    [() => readFormat('csv,header'), /-f must be csv/],
  ])('refuse what does not exist (%#)', (read, message) => {
    expect(read).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(message) }),
    );
  });
});
