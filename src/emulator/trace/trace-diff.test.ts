/** The comparison of traces, on records decoded from argument blocks. */

import { describe, expect, it } from 'vitest';
import { DRM_IOCTLS, HL_MEM_ARGS, HL_MEM_OP } from '../../uapi/index.ts';
import { decodeIoctl, formatRecord, type IoctlRecord } from './ioctl-record.ts';
import { diffTraces, normalizeTrace } from './trace-diff.ts';

const { words: IN } = HL_MEM_ARGS;

function memory(pid: number, op: number, first: number, answer: number, result = 0): IoctlRecord {
  const before = new Uint32Array(HL_MEM_ARGS.size / 4);
  before[IN.op] = op;
  before[0] = first;
  const after = before.slice();
  after[0] = answer;
  const caller = { timeNs: pid, durationNs: 1500, pid, tid: pid, card: 0, control: false };
  return decodeIoctl(caller, DRM_IOCTLS.MEMORY | 0, { before, after }, result);
}

/** Allocates device memory and frees it. */
function program(pid: number, handle: number, size = 4096, freed = handle): string {
  const records = [memory(pid, HL_MEM_OP.ALLOC, size, handle), memory(pid, HL_MEM_OP.FREE, freed, 0)];
  return records.map((record) => `${JSON.stringify(record)}\n`).join('');
}

describe('a recorded ioctl', () => {
  it('has the names of request, operation, fields and errno', () => {
    const record = memory(7, HL_MEM_OP.FREE, 0x99, 0x99, -22);
    expect(record).toMatchObject({ request: 'MEMORY', op: 'FREE', in: { free_handle: '0x99' }, errno: 'EINVAL' });
    expect(formatRecord(record)).toMatch(
      /^\[7\/7\] ioctl\(accel0, MEMORY FREE, .*free_handle=0x99.*\) = -1 EINVAL .*<0\.000002>$/,
    );
  });

  it('of an unknown request has its number', () => {
    const words = { before: new Uint32Array(1), after: new Uint32Array(1) };
    const caller = { timeNs: 0, durationNs: 0, pid: 1, tid: 1, card: 0, control: true };
    expect(decodeIoctl(caller, 0xc0186447, words, -22)).toMatchObject({
      request: '0xc0186447',
      in: {},
      errno: 'EINVAL',
    });
  });
});

describe('the comparison', () => {
  it('passes over processes and handles', () => {
    expect(diffTraces(program(1, 5), program(2, 77))).toBeUndefined();
  });

  it('distinguishes handles of different kinds with the same number', () => {
    const call = (rest: object): string =>
      JSON.stringify({ timeNs: 0, durationNs: 0, pid: 1, tid: 1, card: 0, control: false, result: 0, ...rest });
    const calls = [
      call({ request: 'MEMORY', op: 'ALLOC', in: {}, out: { handle: '0x1' } }),
      call({ request: 'CS', in: {}, out: { seq: '0x1' } }),
      call({ request: 'MEMORY', op: 'FREE', in: { free_handle: '0x1' }, out: {} }),
      call({ request: 'INFO', op: 'REGISTER_EVENTFD', in: { op: '0x1c', ctx_id: '0x7' }, out: {} }),
    ];
    expect(normalizeTrace(calls.join('\n'))).toEqual([
      expect.stringContaining('{handle=#1}'),
      expect.stringContaining('seq=#2'),
      expect.stringContaining('{free_handle=#1}'),
      expect.stringContaining('{op=0x1c} = 0'),
    ]);
  });

  it('passes over polls: waits that are busy, and looks at the device status', () => {
    const line = (rest: object): string =>
      `${JSON.stringify({ timeNs: 0, durationNs: 0, pid: 1, tid: 1, card: 0, control: false, in: {}, out: {}, ...rest })}\n`;
    const busy = line({ request: 'WAIT_CS', result: 0, out: { status: '0x1' } });
    const look = line({ request: 'INFO', op: 'DEVICE_STATUS', result: 0 });
    expect(diffTraces(program(1, 5), look + busy + program(1, 5) + look)).toBeUndefined();
    for (const other of [
      line({ request: 'WAIT_CS', result: 0, out: { status: '0x0' } }),
      line({ request: 'INFO', op: 'DEVICE_STATUS', result: -19, errno: 'ENODEV' }),
      line({ request: 'INFO', op: 'HW_IDLE', result: 0 }),
    ]) {
      expect(diffTraces(program(1, 5), program(1, 5) + other)).toMatchObject({ call: 3, first: 'nothing' });
    }
  });

  it('names the first call that differs', () => {
    const difference = diffTraces(program(1, 5), program(1, 5, 8192));
    expect(difference).toMatchObject({ call: 1, first: expect.stringContaining('alloc_mem_size=0x1000,') });
    expect(diffTraces(program(1, 5), program(1, 5, 4096, 6))).toMatchObject({
      call: 2,
      first: expect.stringContaining('free_handle=#1'),
      second: expect.stringContaining('free_handle=unknown'),
    });
    const longer = program(1, 5) + program(1, 6);
    expect(diffTraces(program(1, 5), longer)).toMatchObject({ call: 3, first: 'nothing' });
  });

  it('refuses what is not a trace', () => {
    expect(() => diffTraces('{}\n', '')).toThrow(/argument first must have a recorded ioctl in line 1/);
    expect(() => diffTraces('', 'text\n')).toThrow(/line 1/);
  });
});
