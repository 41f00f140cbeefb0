/** The outputs of statistics: writes in part, full pipes, failures that are told once, and datagrams that wait for their address. */

import { createSocket } from 'node:dgram';
import dns from 'node:dns';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { statsNode } from './stats-node.ts';
import { openStatsOutput, type StatsOutput, statsDatagrams } from './stats-output.ts';

const { writeSync, closeSync } = fs;
const { lookup } = dns;
const pause = vi.spyOn(Atomics, 'wait');

afterEach(() => {
  Object.assign(fs, { writeSync, closeSync });
  Object.assign(dns, { lookup });
  syncBuiltinESMExports();
  pause.mockReset();
});

/** Writes to standard output with another write(2) and close(2): returns the writes, the close, and the warnings. */
function standardOutput(write: (bytes: Buffer) => number) {
  const { log, records } = createTestLog();
  const written: Buffer[] = [];
  const closed: number[] = [];
  pause.mockReturnValue('timed-out');
  Object.assign(fs, {
    writeSync: (fd: number, bytes: Buffer): number => {
      const count = write(bytes);
      written.push(Buffer.concat([Buffer.from(`${fd}:`), bytes.subarray(0, count)]));
      return count;
    },
    closeSync: (fd: number) => closed.push(fd),
  });
  syncBuiltinESMExports();
  return { output: openStatsOutput({ kind: 'stdout' }, 'summary', log)!, written, closed, records };
}

function failing(code: string): never {
  throw Object.assign(new Error(`${code}: made up`), { code });
}

const REPORT = statsNode('node', '', { ops: 12 });

describe('a report to a descriptor', () => {
  it('is written in full, whatever a write takes, and standard output stays open', () => {
    const { output, written, closed } = standardOutput(({ byteLength }) => Math.min(byteLength, 7));
    output.write(REPORT);
    output.close();
    expect(written.every((each) => each.toString().startsWith('1:'))).toBe(true);
    expect(Buffer.concat(written.map((each) => each.subarray(2))).toString()).toMatch(/^# .*\nnode: \{ops:12\}\n$/);
    expect(closed).toEqual([]);
  });

  it('waits for a reader that is slow, and counts only refusals in a row', () => {
    let calls = 0;
    const { output, written, records } = standardOutput(({ byteLength }) => {
      calls += 1;
      // More refusals in total than a reader may make in a row.
      if (calls % 900 !== 0) failing('EAGAIN');
      return Math.min(byteLength, 10);
    });
    output.write(REPORT);
    expect(Buffer.concat(written.map((each) => each.subarray(2))).toString()).toMatch(/\nnode: \{ops:12\}\n$/);
    expect(calls).toBeGreaterThan(1800);
    expect(pause).toHaveBeenCalledTimes(calls - written.length);
    expect(records).toEqual([]);
  });

  it('ends at a reader that has stopped', () => {
    let calls = 0;
    const { output, records } = standardOutput(() => {
      calls += 1;
      if (calls > 5000) throw new TypeError('endless');
      return failing('EAGAIN');
    });
    output.write(REPORT);
    expect([calls, pause.mock.calls.length]).toEqual([1001, 1000]);
    expect(records.map(({ message }) => message)).toEqual(['cannot write statistics: EAGAIN: made up']);
  });

  it('that fails is logged at once, and again only after a report succeeded or failed otherwise', () => {
    let next: string | undefined = 'ENOSPC';
    const { output, records } = standardOutput(({ byteLength }) => (next === undefined ? byteLength : failing(next)));
    const told = (): string[] => records.map(({ message }) => /E[A-Z]+/.exec(message)![0]);
    output.write(REPORT);
    output.write(REPORT);
    expect(told()).toEqual(['ENOSPC']);
    next = 'EIO';
    output.write(REPORT);
    next = undefined;
    output.write(REPORT);
    expect(told()).toEqual(['ENOSPC', 'EIO']);
    next = 'EIO';
    output.write(REPORT);
    expect(told()).toEqual(['ENOSPC', 'EIO', 'EIO']);
    expect(pause).not.toHaveBeenCalled();
  });
});

describe('datagrams', () => {
  type Found = (error: Error | null, address: string, family: number) => void;

  /** An output whose address is found when the test says so. */
  function toHost(port: number) {
    const { log, records } = createTestLog();
    let found!: Found;
    Object.assign(dns, {
      lookup: (_host: string, callback: Found) => {
        found = callback;
      },
    });
    syncBuiltinESMExports();
    const output: StatsOutput = openStatsOutput({ kind: 'udp', host: 'box', port }, 'full', log)!;
    Object.assign(dns, { lookup });
    syncBuiltinESMExports();
    return {
      output,
      records,
      find: () => found(null, '127.0.0.1', 4),
      fail: (why: string) => found(new Error(why), '', 0),
    };
  }

  /** The numbers of the reports that have come when `count` have, and a moment later. */
  async function received(use: (port: number) => void, count: number): Promise<number[]> {
    const socket = createSocket('udp4');
    const numbers: number[] = [];
    try {
      await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
      const enough = new Promise<void>((resolve) => {
        socket.on('message', (message) => {
          numbers.push((JSON.parse(message.toString()) as { counters: { number: number } }).counters.number);
          if (numbers.length === count) resolve();
        });
      });
      use(socket.address().port);
      await enough;
      await new Promise(setImmediate);
      return numbers;
    } finally {
      socket.close();
    }
  }

  const report = (number: number) => statsNode('node', '', { number });

  it('that wait for their address are sent when it is known, without the oldest of too many', async () => {
    const numbers = await received((port) => {
      const { output, find } = toHost(port);
      for (let number = 1; number <= 300; number++) output.write(report(number));
      find();
      output.close();
    }, 256);
    expect(numbers).toEqual(Array.from({ length: 256 }, (_, i) => 45 + i));
  });

  it('of a closed output are not sent', async () => {
    const numbers = await received((port) => {
      const { output, find } = toHost(port);
      output.write(report(1));
      output.close();
      output.write(report(2));
      find();
    }, 1);
    expect(numbers).toEqual([1]);
  });

  it('that cannot be sent are told of once', () => {
    const { output, records, fail } = toHost(9);
    output.write(report(1));
    fail('no such box');
    fail('still no such box');
    output.write(report(2));
    output.close();
    expect(records.map(({ message }) => message)).toEqual(['cannot send statistics: no such box']);
  });

  it('have at most the payload of a packet', () => {
    const heading = { host: 'h', pid: 1, time: new Date(0) };
    const tree = (byteLength: number) => statsNode('a', '', {}, [statsNode('b', 'x'.repeat(byteLength), {})]);
    const bare = statsDatagrams(tree(1), heading)[0]!.byteLength - 1;
    const sizes = (byteLength: number) => statsDatagrams(tree(byteLength - bare), heading).length;
    expect([sizes(65_507), sizes(65_508)]).toEqual([1, 2]);
  });
});
