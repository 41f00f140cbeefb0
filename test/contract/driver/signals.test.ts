/**
 * Transports under a storm of handled signals: no operation fails, and no peer is reported as failed. For all tests under a storm see
 * docs/TESTING.md.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pollCall } from '../../../src/sys/base/libc.ts';
import { allocateScratch, PollEvent, pipe2, close as sysClose } from '../../../src/sys/index.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { startSignalStorm, stopSignalStorm } from '../../fixtures/processes/signal-storm.ts';
import { createTestLog } from '../../fixtures/test-log.ts';
import { endpointMessagesContract } from '../uct/endpoint-messages.ts';
import { endpointRmaContract } from '../uct/endpoint-rma.ts';
import { openCma, openPosix, openTcp } from '../uct/uct-implementations.ts';

const HERTZ = 1000;

beforeAll(() => startSignalStorm(HERTZ));
afterAll(stopSignalStorm);

endpointMessagesContract('posix under signals', openPosix);
endpointMessagesContract('tcp under signals', (log) => openTcp(log, { TCP_SNDBUF: '16k', TCP_RCVBUF: '16k' }), true);
endpointRmaContract('cma under signals', openCma);

describe('a live peer', () => {
  expectNoLeaks();

  it.each([
    ['posix', openPosix],
    ['cma', openCma],
    ['tcp', openTcp],
  ] as const)('is never taken for dead by %s', (_, open) => {
    const { md } = open(createTestLog());
    const iface = md.openIface(md.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const statuses = new Set<Status>();
    const [reader, writer] = pipe2();
    const record = allocateScratch(8);
    record.words.set([reader, PollEvent.IN]);
    // Until the kernel has certainly interrupted calls in between.
    for (let interrupted = 0; interrupted < 5; interrupted += pollCall(record.address, 1, 0) < 0 ? 1 : 0) {
      for (let turn = 0; turn < 8; turn++) statuses.add(endpoint.check());
    }
    expect([...statuses]).toEqual([Status.OK]);
    record.free();
    for (const fd of [reader, writer]) sysClose(fd);
    endpoint.close();
    iface.close();
    md.close();
  });
});
