import { describe, expect, it } from 'vitest';
import { GAUDI_PROFILE, GAUDI2_PROFILE } from '../../uapi/index.ts';
import { SyncManager } from './sync-manager.ts';

const ADD = 0x8000_0000 | 0;

function manager(profile = GAUDI2_PROFILE, dcore = 0) {
  const writes: [number, number, number][] = [];
  const memory = new Map<number, number>();
  const { sync } = profile;
  const registers = sync.managers.find((candidate) => candidate.dcore === dcore)!;
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
