import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../../../test/fixtures/transports/own-segments.ts';
import { mapAnonymous, ownIdentity, packIdentity, processStartTime } from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { NODE_ADDRESS_BYTES } from '../base/table-domain.ts';
import { CMA_CONFIG_TABLE } from './config.ts';
import { accessRefusal, missingPrivilege } from './iface.ts';
import { CmaMd } from './md.ts';

expectNoLeaks(SEGMENT_PROBES);
let md: CmaMd;

beforeEach(() => {
  md = new CmaMd({ log: createTestLog().log, clock: systemClock, config: loadConfig([CMA_CONFIG_TABLE]) });
});
afterEach(() => md.close());

describe('access to a process', () => {
  it('is checked by the kernel, and a refusal has a description', () => {
    expect(accessRefusal(process.pid)).toBeUndefined();
    expect(accessRefusal(2 ** 30)).toMatch(/has ended/);
    expect(missingPrivilege(77)).toMatch(/process 77: .*(CAP_SYS_PTRACE|next boot)/);
  });

  // Its keys are in shared memory that this user does not trust.
  it.skipIf(process.geteuid?.() !== 0)('of another user is refused to the superuser as well (needs root)', async () => {
    const child = spawn('cat', { uid: 65_534, stdio: ['pipe', 'ignore', 'ignore'] });
    const pid = child.pid!;
    const iface = md.openIface(md.resources[0]!);
    const address = iface.address.slice();
    const identity = { ...ownIdentity(), pid, startTime: processStartTime(pid)! };
    packIdentity(identity, address, NODE_ADDRESS_BYTES);
    expect(iface.unreachableReason(address)).toBe(`process ${pid} belongs to another user`);
    child.stdin!.end();
    await once(child, 'exit');
    expect(iface.unreachableReason(address)).toBe('the process of the peer has ended');
    iface.close();
  });
});

describe('an address', () => {
  it('with the id of a thread is refused', () => {
    const thread = readdirSync('/proc/self/task')
      .map(Number)
      .find((tid) => tid !== process.pid)!;
    const iface = md.openIface(md.resources[0]!);
    const address = iface.address.slice();
    const identity = { ...ownIdentity(), pid: thread, startTime: processStartTime(thread)! };
    packIdentity(identity, address, NODE_ADDRESS_BYTES);
    expect(() => iface.connect(address)).toThrow(/the pid of the peer is that of a thread.*/);
    iface.close();
  });
});

describe('a copy', () => {
  it('of unmapped memory fails, and the interface returns the reason', () => {
    const iface = md.openIface(md.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const mapping = mapAnonymous(8192);
    const there = md.memReg(mapping.u8);
    const packed = new Uint8Array(md.attributes.rkeyPackedBytes);
    md.mkeyPack(there, packed, 0);
    const rkey = md.rkeyUnpack(packed);
    // Simulates that the owner has unmapped the memory, by an address that is never mapped.
    Object.defineProperty(rkey, 'location', { value: 8 });
    const here = md.memReg(new Uint8Array(64));
    const iov = [{ memory: here, offset: 0, byteLength: 64 }];
    expect(iface.errorOf(Status.INVALID_ADDR)).toBeUndefined();
    expect(endpoint.putZcopy(iov, 0, rkey, { count: 1, failure: 0, onComplete: () => undefined })).toBe(
      Status.INVALID_ADDR,
    );
    expect(iface.errorOf(Status.INVALID_ADDR)).toMatchObject({
      code: 'ERR_CMA_COPY',
      message: expect.stringContaining('EFAULT'),
    });
    expect(iface.errorOf(Status.UNREACHABLE)).toBeUndefined();
    mapping.close();
  });
});
