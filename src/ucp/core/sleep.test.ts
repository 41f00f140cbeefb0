import { expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import type { Iface } from '../../uct/api/iface.ts';
import { TransportSleep } from './sleep.ts';

/** An interface with something on its way that cannot be slept on. */
function sleepless(wait: () => Promise<void>): Iface {
  const resource = { transport: 'posix', device: 'memory' };
  return { attributes: { flags: 0, resource }, outstanding: 1, wait } as unknown as Iface;
}

it.each([
  ['throws', () => expect.fail('no descriptor')],
  ['rejects', () => Promise.reject(new Error('no descriptor'))],
])('a transport whose wait %s is looked at again after a pause, with a bounded number of warnings', async (_, wait) => {
  const clock = new ManualClock(1e9);
  const log = createTestLog();
  const worker = { ifaces: [sleepless(wait)], sockets: { outstanding: 0, wait }, hasPending: false, requestsInUse: 0 };
  const sleep = new TransportSleep(worker, clock, log.log);
  let wakes = 0;
  for (let turn = 1; turn <= 100; turn++) {
    sleep.on(() => {
      wakes += 1;
    });
    for (let tick = 0; tick < 5; tick++) await Promise.resolve();
    expect(wakes).toBe(turn - 1);
    clock.advance(1e6);
    expect(wakes).toBe(turn);
  }
  expect(log.records.length).toBe(10);
  expect(log.records[0]!.message).toContain('events of posix/memory, polling every millisecond instead: no descriptor');
});
