import { describe, expect, it } from 'vitest';
import { GAUDI_PROFILE, GAUDI2_PROFILE, GAUDI3_PROFILE } from '../../uapi/index.ts';
import { SyncManager } from './sync-manager.ts';

const ADD = 0x8000_0000 | 0;

function manager(profile = GAUDI2_PROFILE, dcore = 0, group = 0) {
  const writes: [number, number, number][] = [];
  const memory = new Map<number, number>();
  const { sync } = profile;
  const registers = sync.managers.find((candidate) => candidate.dcore === dcore && candidate.group === group)!;
  const subject: SyncManager = new SyncManager(registers, sync, {
    writeWord: (high, low, value) => {
      writes.push([high, low, value]);
      memory.set(low, value);
      // Address 0 of the high half 7 stands for the sync manager itself.
      if (high === 7) subject.writeObject(low, value);
    },
    readWord: (_high, low) => memory.get(low) ?? 0,
  });
  const write = (register: number, index: number, value: number) => {
    subject.writeObject(register - registers.sobObj + index * 4, value);
  };
  const sob = (id: number, value: number) => write(registers.sobObj, id, value);
  const monitor = (id: number, address: number, data: number, high = 1) => {
    write(registers.monPayAddrL, id, address);
    write(registers.monPayAddrH, id, high);
    write(registers.monPayData, id, data);
  };
  const arm = (id: number, group: number, mask: number, target: number, equal = false) => {
    write(registers.monArm, id, (target << 17) | (equal ? 1 << 16 : 0) | (mask << 8) | group);
  };
  const config = (id: number, value: number) => write(registers.monConfig, id, value);
  const value = (id: number) => subject.readObject(id * 4);
  return { subject, registers, writes, memory, sob, monitor, arm, config, value, write };
}

describe('sync objects', () => {
  it('set, add and subtract in 15 bits', () => {
    const { sob, value } = manager(GAUDI_PROFILE);
    sob(3, 0x1234);
    expect(value(3)).toBe(0x1234);
    sob(3, ADD | 5);
    expect(value(3)).toBe(0x1239);
    sob(3, ADD | 0xffff);
    expect(value(3)).toBe(0x1238);
  });

  it('hold 60 bits in four where the write is long', () => {
    const { sob, value } = manager();
    const LONG = 1 << 24;
    for (const id of [8, 9, 10, 11]) sob(id, 7);
    sob(8, LONG | 0x7fff);
    expect([8, 9, 10, 11].map(value)).toEqual([0x7fff, 0, 0, 0]);
    sob(8, ADD | LONG | 1);
    expect([8, 9, 10, 11].map(value)).toEqual([0, 1, 0, 0]);
  });
});

describe('monitors', () => {
  it('fire once, at arm time or at a later change', () => {
    const { sob, monitor, arm, writes } = manager();
    monitor(20, 0x100, 42);
    sob(16, 2);
    arm(20, 2, 0xfe, 2);
    expect(writes).toEqual([[1, 0x100, 42]]);
    sob(16, 3);
    expect(writes.length).toBe(1);
    arm(20, 2, 0xfe, 5);
    sob(16, 4);
    expect(writes.length).toBe(1);
    sob(16, ADD | 1);
    expect(writes.length).toBe(2);
  });

  it('compare every object of the group that is not masked', () => {
    const { sob, monitor, arm, writes } = manager();
    monitor(1, 0x100, 1);
    arm(1, 0, 0xfc, 1);
    sob(0, 1);
    expect(writes.length).toBe(0);
    sob(1, 1);
    expect(writes.length).toBe(1);
  });

  it('compare for equality if configured', () => {
    const { sob, monitor, arm, writes } = manager();
    monitor(1, 0x100, 1);
    arm(1, 0, 0xfe, 2, true);
    sob(0, 3);
    expect(writes.length).toBe(0);
    sob(0, 2);
    expect(writes.length).toBe(1);
  });

  it('take upper bits of the group from their configuration, and send up to four messages', () => {
    const { sob, monitor, arm, config, writes } = manager();
    for (const id of [4, 5, 6, 7]) monitor(id, 0x100 + id * 4, id);
    config(4, (1 << 16) | (3 << 5));
    arm(4, 0, 0xfe, 1);
    sob(256 * 8, 1);
    expect(writes.map(([, , data]) => data)).toEqual([4, 5, 6, 7]);
  });

  it('trigger each other', () => {
    const { sob, monitor, arm, writes } = manager();
    monitor(1, 8 * 4, 1, 7);
    monitor(2, 0x100, 9);
    arm(2, 1, 0xfe, 1);
    arm(1, 0, 0xfe, 1);
    sob(0, 1);
    expect(writes.at(-1)).toEqual([1, 0x100, 9]);
  });

  it('fill completion queues and notify by a message', () => {
    const { subject, monitor, arm, config, sob, memory, writes } = manager();
    const cq = GAUDI2_PROFILE.sync.cqRegisters!;
    const queue = (register: number, value: number) => subject.writeQueue((register % 4096) + 3 * 4, value);
    queue(cq.baseAddrL, 0x1000);
    queue(cq.sizeLog2, 3);
    queue(cq.incMode, 1);
    queue(cq.lbwAddrL, 0x2000);
    queue(cq.lbwData, 77);
    monitor(9, 3, 5);
    config(9, (1 << 4) | (1 << 8));
    for (let round = 1; round <= 2; round++) {
      sob(0, 0);
      arm(9, 0, 0xfe, 1);
      sob(0, 1);
      expect(memory.get(0x1000)).toBe(5 * round);
    }
    expect(writes.at(-1)).toEqual([0, 0x2000, 77]);
    queue(cq.incMode, 0);
    arm(9, 0, 0xfe, 1);
    arm(9, 0, 0xfe, 1);
    arm(9, 0, 0xfe, 1);
    expect([memory.get(0x1000), memory.get(0x1004)]).toEqual([5, 5]);
    expect(subject.readQueue((cq.pi % 4096) + 12)).toBe(12);
  });

  it('are disarmed by a reset', () => {
    const { subject, sob, monitor, arm, writes, value } = manager();
    sob(0, 5);
    monitor(1, 0x100, 1);
    arm(1, 0, 0xfe, 9);
    subject.reset();
    expect(value(0)).toBe(0);
    sob(0, 9);
    expect(writes.length).toBe(0);
  });
});

describe('on gaudi3', () => {
  const cq = GAUDI3_PROFILE.sync.cqRegisters!;
  const CQ_ENABLE = 1 << 4;
  const LBW_ENABLE = 1 << 8;

  function open(group = 0) {
    const opened = manager(GAUDI3_PROFILE, 1, group);
    const queue = (register: number, index: number, value: number) =>
      opened.subject.writeQueue((register % 4096) + index * 4, value);
    return { ...opened, queue };
  }

  it('a dcore has two managers, and completion queues in the first one', () => {
    const [first, second] = [open(0).subject, open(1).subject];
    expect([first.objectBytes, first.cqOffset, first.cqBytes]).toEqual([0xe100, 0xe7a0000, 0x950]);
    expect([second.objectBytes, second.cqOffset, second.cqBytes]).toEqual([0xe000, -1, 0]);
  });

  it('a store with bit 28 sets an object to 0, and a long one four objects', () => {
    const { sob, value } = open();
    for (const id of [8, 9, 10, 11, 12]) sob(id, 7);
    sob(12, (1 << 28) | 5);
    sob(8, (1 << 28) | (1 << 24));
    expect([8, 9, 10, 11, 12].map(value)).toEqual([0, 0, 0, 0, 0]);
  });

  it('a monitor sends up to 16 messages, as bits 24 to 27 say', () => {
    const { sob, monitor, arm, config, writes } = open();
    const ids = Array.from({ length: 16 }, (_, index) => 16 + index);
    for (const id of ids) monitor(id, 0x100 + id * 4, id);
    config(16, (15 << 24) | (1 << 16));
    arm(16, 0, 0xfe, 1);
    sob(256 * 8, 1);
    expect(writes.map(([, , data]) => data)).toEqual(ids);
  });

  it('a monitor has a status that survives in its protection bit', () => {
    const { subject, registers, arm, sob } = open();
    const status = () => subject.readObject(registers.monStatus - registers.sobObj + 4);
    expect(status()).toBe(0x200);
    arm(1, 0, 0xfe, 1);
    expect(status()).toBe(0x201);
    sob(0, 1);
    expect(status()).toBe(0x200);
    arm(1, 0, 0xfe, 9);
    subject.reset();
    expect(status()).toBe(0x200);
  });

  it('a monitor sets the objects that it compares to 0 if bit 20 is set', () => {
    const { sob, monitor, arm, config, value, writes } = open();
    monitor(1, 0x100, 1);
    config(1, 1 << 20);
    arm(1, 0, 0xfc, 1);
    for (const id of [0, 1, 2]) sob(id, 3);
    expect([0, 1, 2].map(value)).toEqual([0, 0, 3]);
    expect(writes.length).toBe(1);
  });

  it('a long monitor ignores the parts of its target that are not set', () => {
    const { sob, monitor, write, registers, config, writes } = open();
    monitor(4, 0x100, 1);
    config(4, 1);
    write(registers.monArm, 6, 0);
    write(registers.monArm, 5, 2 << 17);
    write(registers.monArm, 4, (3 << 17) | (0xff << 8));
    sob(2, 9);
    expect(writes.length).toBe(0);
    sob(1, 2);
    expect(writes.length).toBe(0);
    sob(0, 3);
    expect(writes.length).toBe(1);
  });

  it('a monitor of the second group does not reach the completion queues', () => {
    for (const group of [0, 1]) {
      const { sob, monitor, arm, config, memory, queue, writes } = open(group);
      queue(cq.baseAddrL, 3, 0x1000);
      queue(cq.incMode, 3, 1);
      monitor(9, 3, 5);
      config(9, CQ_ENABLE | LBW_ENABLE);
      arm(9, 0, 0xfe, 1);
      sob(0, 1);
      expect(memory.get(0x1000)).toBe(group === 0 ? 5 : undefined);
      expect(writes.length > 0).toBe(group === 0);
    }
  });

  it('a store to CQ_DIRECT appends to its queue, with a message if enabled', () => {
    const { registers, write, memory, queue, writes, value } = open();
    queue(cq.baseAddrL, 3, 0x1000);
    queue(cq.sizeLog2, 3, 4);
    queue(cq.lbwAddrL, 3, 0x2000);
    queue(cq.lbwData, 3, 77);
    write(registers.cqDirect, 3, 41);
    expect(writes).toEqual([[0, 0x1000, 41]]);
    queue(cq.directLbwEn, 3, 1);
    write(registers.cqDirect, 3, 42);
    expect([memory.get(0x1000), memory.get(0x1004), writes.at(-1)]).toEqual([41, 42, [0, 0x2000, 77]]);
    expect(value((registers.cqDirect - registers.sobObj) / 4 + 3)).toBe(0);
  });
});
