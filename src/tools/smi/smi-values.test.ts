/** Every value of a card is printed under its own name and in its own unit: two cards whose values all differ. */

import { describe, expect, it } from 'vitest';
import { FakeMachine } from '../../../test/fixtures/driver/fake-machine.ts';
import { SCRIPTED_BUSES, scriptedNode } from '../../../test/fixtures/driver/scripted-node.ts';
import { processCommand } from '../../sys/index.ts';
import { HL_INFO_OP } from '../../uapi/index.ts';
import { detailLines, firmwareLines, listLines, SECTION_NAMES } from './details.ts';
import { QUERY_NAMES, queryLines, readFormat } from './queries.ts';
import { readSmiCards } from './smi-card.ts';
import { affinityTable, linkMatrix, portLines, smiTable } from './smi-table.ts';

const MIB = 2 ** 20;
const [BUS_0, BUS_1] = SCRIPTED_BUSES;
const OWN = String(process.pid);

/** The values of -Q by their names, of one card. */
function queried(card: 0 | 1): Readonly<Record<string, string>> {
  const cards = [readSmiCards(scriptedNode())[card]!];
  const [head, row] = queryLines(cards, QUERY_NAMES, readFormat('csv'), 'now').map((line) => line.split(', '));
  return Object.fromEntries(head!.map((name, index) => [name, row![index]!]));
}

/** The lines of -q of the first card, without the blanks between a name and its value. */
function details(names: readonly string[] = SECTION_NAMES): string[] {
  const lines = detailLines(readSmiCards(scriptedNode()).slice(0, 1), names, 'now');
  return lines.map((line) => line.trim().replace(/ *: /, ': '));
}

describe('a card', () => {
  it('has every value from its own source', () => {
    const [first, second] = readSmiCards(scriptedNode());
    expect(first).toMatchObject({
      index: 0,
      minor: 4,
      busId: BUS_0,
      state: 'operational',
      emulated: false,
      name: 'HL225-0',
      moduleId: 2,
      numaNode: 0,
      driverVersion: '1.22.3',
      firmware: 'fw-os-0',
      preboot: 'preboot-0',
      temperature: 46.4,
      power: 345.678,
      powerMax: 600,
      memoryBytes: 97_536 * MIB,
      memoryUsedBytes: 36_096 * MIB,
      utilization: 37,
      clockMhz: 1411,
      clockMaxMhz: 1653,
      powerThrottleNs: 7_654_321,
      thermalThrottleNs: 3_210_987,
      hasPendingRows: true,
      hardResets: 11,
      computeResets: 23,
      links: [undefined, { total: 2, up: 2 }],
      pid: process.pid,
      command: processCommand(process.pid, 200),
    });
    expect(second).toMatchObject({
      index: 1,
      minor: 2,
      busId: BUS_1,
      name: 'HL225-1',
      numaNode: 1,
      firmware: 'fw-os-1',
      preboot: 'preboot-1',
      powerMax: 601,
      memoryUsedBytes: 36_098 * MIB,
      hasPendingRows: false,
      hardResets: 12,
      computeResets: 24,
      links: [{ total: 2, up: 1 }, undefined],
      pid: undefined,
      command: undefined,
    });
  });

  it('in reset has from sysfs what the driver refuses, and no other value', () => {
    const refused = Object.fromEntries(
      Object.values(HL_INFO_OP)
        .filter((op) => op !== HL_INFO_OP.HW_IP_INFO && op !== HL_INFO_OP.DEVICE_STATUS)
        .map((op) => [op, () => -16]),
    );
    const [card] = readSmiCards(scriptedNode({ answers: refused }));
    expect(card).toMatchObject({
      name: 'HL225-0',
      clockMhz: 1001,
      clockMaxMhz: 2001,
      hardResets: 71,
      computeResets: undefined,
      power: undefined,
      memoryBytes: 97_536 * MIB,
      memoryUsedBytes: undefined,
      utilization: undefined,
      powerThrottleNs: undefined,
      thermalThrottleNs: undefined,
      hasPendingRows: undefined,
    });
  });

  it('that cannot be asked has its state and its names from sysfs', () => {
    const node = scriptedNode({ answers: { [HL_INFO_OP.HW_IP_INFO]: () => -16 }, attributes: { status: 'In reset' } });
    expect(readSmiCards(node)[1]).toMatchObject({
      state: 'in reset',
      name: 'GAUDI2-1',
      moduleId: 3,
      firmware: 'fw-os-1',
      clockMhz: 1002,
      clockMaxMhz: 2002,
      hardResets: 72,
      powerMax: 601,
      memoryBytes: undefined,
      ports: undefined,
      links: [undefined, undefined],
    });
  });

  it('without a device node has the state that the driver tells, and is removed where it tells none', () => {
    const node = scriptedNode();
    const [card] = readSmiCards(node);
    const absent = { index: 5, minor: undefined, busId: BUS_1, entry: undefined };
    const [other, removed] = readSmiCards(node, [
      { ...absent, absence: 'no driver' },
      { ...absent, minor: 2, absence: undefined },
    ]);
    expect(other).toMatchObject({ index: 5, minor: undefined, busId: BUS_1, state: 'no driver', emulated: false });
    expect(removed).toMatchObject({ minor: 2, state: 'removed', power: undefined, links: [] });
    expect(Object.keys(removed!).sort()).toEqual(Object.keys(card!).sort());
  });

  it('has the firmware of an older driver, no power without a meter, and no limit or node that is not told', () => {
    const node = scriptedNode({
      answers: { [HL_INFO_OP.POWER]: () => 8 },
      attributes: { fw_os_ver: undefined, max_power: 'unknown' },
    });
    const cards = readSmiCards({ ...node, cards: () => node.cards().map((card) => ({ ...card, numaNode: -1 })) });
    expect(cards[0]).toMatchObject({
      firmware: 'armcp-0',
      power: undefined,
      powerMax: undefined,
      numaNode: undefined,
    });
  });
});

describe('-Q', () => {
  it('prints every value under its own name, in its own unit', () => {
    const known = Object.entries(queried(0)).filter(([, value]) => value !== 'N/A');
    expect(Object.fromEntries(known)).toEqual({
      timestamp: 'now',
      name: 'HL225-0',
      bus_id: BUS_0,
      driver_version: '1.22.3',
      'temperature.aip [C]': '46 C',
      module_id: '2',
      'utilization.aip [%]': '37 %',
      'memory.total [MiB]': '97536 MiB',
      'memory.free [MiB]': '61440 MiB',
      'memory.used [MiB]': '36096 MiB',
      index: '0',
      'power.draw [W]': '346 W',
      'power.max [W]': '600 W',
      'clocks.current.soc [MHz]': '1411 MHz',
      'clocks.max.soc [MHz]': '1653 MHz',
      'stats.violation.power [us]': '7654 us',
      'stats.violation.thermal [us]': '3211 us',
    });
    expect(queried(1)).toMatchObject({
      'memory.total [MiB]': '97537 MiB',
      'memory.free [MiB]': '61439 MiB',
      'memory.used [MiB]': '36098 MiB',
      'stats.violation.power [us]': '7655 us',
      'stats.violation.thermal [us]': '3212 us',
    });
  });

  it('leaves out the header and the units with noheader and nounits, and keeps the order of the names', () => {
    const cards = readSmiCards(scriptedNode());
    const names = ['power.max', 'index', 'power.draw'];
    expect(queryLines(cards, names, readFormat('csv,nounits'), 'now')).toEqual([
      'power.max [W], index, power.draw [W]',
      '600, 0, 346',
      '601, 1, 347',
    ]);
    expect(queryLines(cards, names, readFormat('csv,noheader'), 'now')).toEqual(['600 W, 0, 346 W', '601 W, 1, 347 W']);
  });

  it('has no free memory where the used memory is not known', () => {
    const cards = readSmiCards(scriptedNode({ answers: { [HL_INFO_OP.DRAM_USAGE]: () => -16 } }));
    const [line] = queryLines(cards, ['memory.total', 'memory.free', 'memory.used'], readFormat('csv,noheader'), '');
    expect(line).toBe('97536 MiB, N/A, N/A');
  });
});

describe('-q', () => {
  it('prints every value in its section', () => {
    expect(details()).toEqual([
      '================ GAUDI-UCX SMI LOG ================',
      '',
      'Timestamp: now',
      'Attached AIPs: 1',
      `[0] AIP (accel4) ${BUS_0}`,
      'Product',
      'Product Name: HL225-0',
      'Serial Number: N/A',
      'Module ID: 2',
      'Driver Version: 1.22.3',
      'Firmware Version: fw-os-0',
      'Preboot Version: preboot-0',
      'State: operational',
      'Hard Resets: 11',
      'Compute Resets: 23',
      'PCI',
      `Bus Id: ${BUS_0}`,
      'NUMA Node: 0',
      'Memory Usage',
      'Total: 97536 MiB',
      'Used: 36096 MiB',
      'Free: 61440 MiB',
      'Clocks',
      'SoC: 1411 MHz',
      'Max SoC: 1653 MHz',
      'Temperature',
      'AIP: 46 C',
      'Power',
      'Power Draw: 346 W',
      'Power Limit: 600 W',
      'Throttled by Power: 7654 us',
      'Throttled by Temperature: 3211 us',
      'Fan',
      'Speed: N/A',
      'Network',
      'Port 1: UP, internal, eth01',
      'Port 3: UP, internal',
      'Port 8: UP, external, eth08',
      'Row Replacement',
      'Pending: Yes',
    ]);
  });

  it.each([
    ['PRODUCT', 'Product'],
    ['BUS', 'PCI'],
    ['MEMORY', 'Memory Usage'],
    ['CLOCK', 'Clocks'],
    ['TEMPERATURE', 'Temperature'],
    ['POWER', 'Power'],
    ['FAN', 'Fan'],
    ['NET', 'Network'],
    ['ROW_REPLACEMENT', 'Row Replacement'],
  ])('with -d %s prints the section %s alone', (name, title) => {
    expect(details([name])[5]).toBe(title);
    expect(details([name]).filter((line) => !line.includes(':'))).toHaveLength(3);
  });
});

describe('other views', () => {
  it('list the names, the firmware, the links, the ports and the nodes', () => {
    const cards = readSmiCards(scriptedNode());
    expect(listLines(cards)).toEqual([
      `AIP 0: HL225-0 (bus id: ${BUS_0}, module id: 2, uuid: N/A, operational)`,
      `AIP 1: HL225-1 (bus id: ${BUS_1}, module id: 3, uuid: N/A, operational)`,
    ]);
    expect(firmwareLines(cards)[1]).toBe(`AIP 1 (bus id: ${BUS_1}): firmware fw-os-1, preboot preboot-1`);
    const matrix = linkMatrix(cards).split('\n').slice(1, 3);
    expect(matrix.map((line) => line.trim().split(/\s+/))).toEqual([
      ['AIP0', 'X', '2/2'],
      ['AIP1', '1/2', 'X'],
    ]);
    expect(portLines(cards, 'link', undefined)).toEqual([
      BUS_0,
      'port  1:\tUP',
      'port  3:\tUP',
      BUS_1,
      'port  1:\tDOWN',
      'port  3:\tUP',
    ]);
    expect(portLines([cards[1]!], 'ports', undefined)).toEqual([
      'port  1:\tinternal',
      'port  3:\tinternal',
      'port  8:\texternal',
    ]);
  });

  it('show the processors of the node of each card', () => {
    using machine = new FakeMachine();
    machine.write('sys/devices/system/node/node0/cpulist', '0-39\n');
    machine.write('sys/devices/system/node/node1/cpulist', '40-79\n');
    const rows = affinityTable(readSmiCards(scriptedNode()), { cpu: true, numa: true }, machine.sysRoot).split('\n');
    expect(rows.slice(2).map((row) => row.trim().split(/\s+/))).toEqual([
      ['2', '0-39', '0'],
      ['3', '40-79', '1'],
    ]);
  });

  it('show two lines for each card in the table, and a line for its process', () => {
    const cards = readSmiCards(scriptedNode()).map((card) => ({ ...card, command: card.pid && 'node train.js' }));
    const head = { version: '9.8.7', driverVersion: '1.22.3', emulated: false };
    const lines = smiTable(cards as Parameters<typeof smiTable>[0], head).split('\n');
    const words = (line: string | undefined): string => (line ?? '').replaceAll(/[ |]+/g, ' ').trim();
    expect(lines.slice(1, 4).map(words)).toEqual([
      'GAUDI-UCX SMI Version: 9.8.7',
      'Driver Version: 1.22.3',
      'Firmware Version: fw-os-0',
    ]);
    expect([8, 9].map((at) => words(lines[at]))).toEqual([
      `0 HL225-0 N/A ${BUS_0} N/A N/A`,
      'N/A 46C N/A 346W / 600W 36096MiB / 97536MiB 37% 37%',
    ]);
    expect(words(lines[12])).toBe('N/A 47C N/A 347W / 601W 36098MiB / 97537MiB 38% 37%');
    const end = lines.findIndex((line) => line.includes('Process name'));
    expect([2, 3].map((at) => words(lines[end + at]))).toEqual([
      `0 ${OWN} C node train.js 36096MiB`,
      '1 N/A N/A N/A N/A',
    ]);
  });
});
