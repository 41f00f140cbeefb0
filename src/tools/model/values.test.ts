/** Every value of a card reaches the model of `top` under its own name: two cards whose values all differ. */

import { describe, expect, it } from 'vitest';
import { SCRIPTED_BUSES, scriptedNode } from '../../../test/fixtures/driver/scripted-node.ts';
import { namedCards } from '../../driver/card-names.ts';
import type { DriverNode, NodeTransfers } from '../../driver/port.ts';
import { processCommand } from '../../sys/index.ts';
import { HL_INFO_DEVICE_STATUS, HL_INFO_OP } from '../../uapi/index.ts';
import { type NodeSample, TopSampler } from './sample.ts';
import { topModel } from './top-model.ts';

const MIB = 2 ** 20;
const [BUS_0, BUS_1] = SCRIPTED_BUSES;
const FAULTS = ['time-out', 'page fault', 'illegal access', 'undefined opcode'];
const RECORDS = [
  HL_INFO_OP.CS_TIMEOUT_EVENT,
  HL_INFO_OP.PAGE_FAULT_EVENT,
  HL_INFO_OP.RAZWI_EVENT,
  HL_INFO_OP.UNDEFINED_OPCODE_EVENT,
];

function sampleOf(node: DriverNode, cards = namedCards(node)): NodeSample {
  const sampler = new TopSampler(
    node,
    () => 5e9,
    () => cards,
  );
  try {
    return sampler.sample();
  } finally {
    sampler.close();
  }
}

const EMULATED = {
  emulated: true,
  serverPid: 4242,
  transfers: (): NodeTransfers => transfersAt(1),
};

/** Counters that grow by a rate of their own: bytes of seconds, by card and direction. */
function transfersAt(seconds: number): NodeTransfers {
  const count = (bytes: number) => ({ bytes: seconds * bytes, operations: 7 });
  const card = (minor: number, base: number) => ({
    minor,
    hostToDevice: count(base + 1),
    deviceToHost: count(base + 2),
    deviceToDevice: count(base + 3),
    fills: count(base + 4),
    busyNs: seconds * base * 1e6,
  });
  const linkBytes: number[][] = [];
  linkBytes[4] = [0, 0, seconds * 42];
  linkBytes[2] = [0, 0, 0, 0, seconds * 24];
  return { timeNs: seconds * 1e9, engineThreads: 2, cards: [card(2, 500), card(4, 300)], linkBytes };
}

describe('a sample', () => {
  it('has every value of a card from its own source', () => {
    expect(sampleOf(scriptedNode())).toEqual({
      timeNs: 5e9,
      emulated: false,
      serverPid: undefined,
      driverVersion: '1.22.3',
      transfers: undefined,
      cards: [
        {
          index: 0,
          minor: 4,
          busId: BUS_0,
          moduleId: 2,
          status: 'operational',
          answers: true,
          hbmUsedBytes: 36_096 * MIB,
          hbmBytes: 97_536 * MIB,
          busyEngines: [3, 69, 135, 255],
          utilization: 37,
          clockMhz: 1411,
          inUse: true,
          owner: { pid: process.pid, command: processCommand(process.pid, 200) },
          firmware: 'cpucp-0',
          temperature: 46.4,
          power: 345.678,
          hardResets: 11,
          computeResets: 23,
          refusedSubmissions: 543_211,
          faults: FAULTS,
          pciReceive: 4_321_000,
          pciTransmit: 8_765_000,
          links: [undefined, { total: 2, up: 2 }],
        },
        {
          index: 1,
          minor: 2,
          busId: BUS_1,
          moduleId: 3,
          status: 'operational',
          answers: true,
          hbmUsedBytes: 36_098 * MIB,
          hbmBytes: 97_537 * MIB,
          busyEngines: [4, 69, 135, 255],
          utilization: 38,
          clockMhz: 1412,
          inUse: false,
          owner: undefined,
          firmware: 'cpucp-1',
          temperature: 47.4,
          power: 346.678,
          hardResets: 12,
          computeResets: 24,
          refusedSubmissions: 543_212,
          faults: FAULTS,
          pciReceive: 4_322_000,
          pciTransmit: 8_766_000,
          links: [{ total: 2, up: 1 }, undefined],
        },
      ],
    });
  });

  it.each(RECORDS.map((op, index) => [op, FAULTS[index]!] as const))(
    'has for the record %i the fault %s alone',
    (op, fault) => {
      const absent = Object.fromEntries(RECORDS.filter((other) => other !== op).map((other) => [other, () => -22]));
      expect(sampleOf(scriptedNode({ answers: absent })).cards[0]!.faults).toEqual([fault]);
    },
  );

  it('of a card in reset has only what the driver still tells', () => {
    const inReset = {
      [HL_INFO_OP.DEVICE_STATUS]: (_card: number, view: DataView) => {
        HL_INFO_DEVICE_STATUS.encode({ status: 1 }, view);
        return HL_INFO_DEVICE_STATUS.size;
      },
      [HL_INFO_OP.PCI_COUNTERS]: () => -16,
      [HL_INFO_OP.HW_IDLE]: () => -16,
      [HL_INFO_OP.DEVICE_UTILIZATION]: () => -16,
      [HL_INFO_OP.CLK_RATE]: () => -16,
      [HL_INFO_OP.POWER]: () => -16,
    };
    expect(sampleOf(scriptedNode({ answers: inReset })).cards[0]).toMatchObject({
      status: 'in reset',
      answers: true,
      hbmUsedBytes: 36_096 * MIB,
      busyEngines: [],
      utilization: 0,
      clockMhz: 0,
      inUse: true,
      power: undefined,
      hardResets: 11,
      pciReceive: undefined,
      pciTransmit: undefined,
    });
  });

  it('has the firmware of sysfs, no power and no PCIe where the card tells none', () => {
    const answers = {
      [HL_INFO_OP.POWER]: () => 8,
      [HL_INFO_OP.PCI_COUNTERS]: () => -95,
      [HL_INFO_OP.HW_IP_INFO]: () => 304,
    };
    expect(sampleOf(scriptedNode({ answers })).cards[1]).toMatchObject({
      answers: true,
      firmware: 'fw-os-1',
      power: undefined,
      pciReceive: undefined,
      pciTransmit: undefined,
      hbmUsedBytes: 0,
      links: [undefined, undefined],
    });
  });

  it('of cards without device nodes or answers has their names and states', () => {
    const node = scriptedNode({ answers: { [HL_INFO_OP.DRAM_USAGE]: () => -16 }, attributes: { status: 'Disabled' } });
    const [first, second] = namedCards(node);
    const gone = { ...second!, minor: undefined, entry: undefined, absence: 'no driver' };
    const [silent, removed] = sampleOf(node, [first!, gone as never]).cards;
    expect(silent).toMatchObject({ index: 0, minor: 4, busId: BUS_0, moduleId: 2, status: 'disabled', answers: false });
    expect(removed).toMatchObject({ index: 1, minor: undefined, busId: BUS_1, status: 'no driver', answers: false });
    expect(removed).toMatchObject({ moduleId: undefined, hbmBytes: 0, power: undefined, faults: [], links: [] });
  });

  it('opens each card once, and closes its file when the card stops to answer and at the end', () => {
    let failing = false;
    const events: string[] = [];
    const node = scriptedNode({
      answers: { [HL_INFO_OP.OPEN_STATS]: () => (failing ? -5 : 24) },
    });
    const openControl = (minor: number) => {
      events.push(`open ${minor}`);
      const file = node.openControl(minor);
      return { ...file, close: () => events.push(`close ${minor}`) } as never;
    };
    const sampler = new TopSampler({ ...node, openControl }, () => 0);
    sampler.sample();
    sampler.sample();
    expect(events.splice(0)).toEqual(['open 4', 'open 2']);
    failing = true;
    expect(sampler.sample().cards.map(({ answers }) => answers)).toEqual([false, false]);
    expect(events.splice(0)).toEqual(['close 4', 'close 2']);
    failing = false;
    expect(sampler.sample().cards.map(({ answers }) => answers)).toEqual([true, true]);
    sampler.close();
    sampler.close();
    expect(events).toEqual(['open 4', 'open 2', 'close 4', 'close 2']);
  });

  it('closes the file of a card that does not describe itself', () => {
    const node = scriptedNode({ answers: { [HL_INFO_OP.HW_IP_INFO]: () => -5 } });
    let open = 0;
    const openControl = (minor: number) => {
      open += 1;
      return { ...node.openControl(minor), close: () => (open -= 1) } as never;
    };
    new TopSampler({ ...node, openControl }, () => 0).sample();
    expect(open).toBe(0);
  });

  it('is refused without counters, which only a node that is gone has not', () => {
    const node = scriptedNode({ node: { transfers: () => undefined, lostReason: 'the server has ended' } });
    expect(() => sampleOf(node)).toThrow(
      expect.objectContaining({ code: 'ERR_NODE_UNREACHABLE', message: 'the server has ended' }),
    );
  });
});

describe('the model', () => {
  it('of real cards has every value under its own name', () => {
    const sample = sampleOf(scriptedNode());
    const { cards, ...rest } = topModel(sample, { ...sample, timeNs: 7e9 });
    expect(rest).toEqual({
      emulated: false,
      serverPid: undefined,
      driverVersion: '1.22.3',
      seconds: 2,
      links: [
        { from: 4, to: 2, up: 2, total: 2, bytesPerSecond: undefined },
        { from: 2, to: 4, up: 1, total: 2, bytesPerSecond: undefined },
      ],
    });
    expect(cards[0]).toEqual({
      label: `card 0 (accel4, ${BUS_0})`,
      index: 0,
      minor: 4,
      busId: BUS_0,
      moduleId: 2,
      status: 'operational',
      inUse: true,
      pid: process.pid,
      command: processCommand(process.pid, 200),
      firmware: 'cpucp-0',
      temperature: 46.4,
      power: 345.678,
      hbmUsedBytes: 36_096 * MIB,
      hbmBytes: 97_536 * MIB,
      busyPercent: 37,
      busyEngines: [3, 69, 135, 255],
      clockMhz: 1411,
      hostToDevice: 4_321_000,
      deviceToHost: 8_765_000,
      deviceToDevice: undefined,
      hardResets: 11,
      computeResets: 23,
      refusedSubmissions: 543_211,
      faults: FAULTS,
    });
    expect(cards[1]).toMatchObject({ pid: undefined, command: undefined, busyPercent: 38, hostToDevice: 4_322_000 });
  });

  it('of emulated cards has the rates of each direction and link, by the clock of the node', () => {
    const sample = sampleOf(scriptedNode({ node: EMULATED }));
    const later = { ...sample, timeNs: 900e9, transfers: transfersAt(5) };
    const model = topModel(sample, later);
    expect(model).toMatchObject({ emulated: true, serverPid: 4242, seconds: 4 });
    expect(model.cards[0]).toMatchObject({
      minor: 4,
      busyPercent: 15,
      hostToDevice: 301,
      deviceToHost: 302,
      deviceToDevice: 303,
    });
    expect(model.cards[1]).toMatchObject({ minor: 2, busyPercent: 25, hostToDevice: 501, deviceToHost: 502 });
    expect(model.links.map(({ from, to, bytesPerSecond }) => [from, to, bytesPerSecond])).toEqual([
      [4, 2, 42],
      [2, 4, 24],
    ]);
  });

  it('has no rates where the clock went back or stands still', () => {
    const sample = sampleOf(scriptedNode({ node: EMULATED }));
    for (const seconds of [0.5, 1]) {
      const model = topModel({ ...sample, transfers: transfersAt(1) }, { ...sample, transfers: transfersAt(seconds) });
      expect([model.seconds, model.cards[0]!.hostToDevice, model.links[0]!.bytesPerSecond]).toEqual([0, 0, 0]);
    }
  });

  it('has no rates of counters that went back, as those of a node that was restarted', () => {
    const sample = sampleOf(scriptedNode({ node: EMULATED }));
    const restarted = { ...sample, transfers: { ...transfersAt(1), timeNs: 9e9 } };
    const model = topModel({ ...sample, transfers: transfersAt(2) }, restarted);
    expect([model.seconds, model.cards[0]!.hostToDevice, model.cards[0]!.busyPercent]).toEqual([7, 0, 0]);
    expect(model.links[0]!.bytesPerSecond).toBe(0);
  });

  it('leaves out links from and to cards without a minor', () => {
    const sample = sampleOf(scriptedNode());
    const [first, second] = sample.cards;
    const model = topModel(undefined, { ...sample, cards: [{ ...first!, minor: undefined }, second!] });
    expect(model.links).toEqual([]);
    expect(model.cards[0]!.label).toBe(`card 0 (${BUS_0})`);
  });
});
