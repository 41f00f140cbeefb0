import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { useErrnoRecord } from '../../test/fixtures/driver/errno-record.ts';
import { Errno, EventFd, isSyscallError, mapAnonymous } from '../sys/index.ts';
import {
  fenceCfg,
  HL_DEVICE_STATUS,
  HL_INFO_ARGS,
  HL_INFO_CS_TIMEOUT_EVENT,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  HL_INFO_RAZWI_EVENT,
  HL_INFO_RESET_COUNT,
  HL_INFO_UNDEFINED_OPCODE_EVENT,
  HL_NOTIFIER_EVENT,
  HL_PAGE_FAULT_INFO,
  linDmaCtl,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeLinDma,
  writeNop,
  writeShortPacket,
} from '../uapi/index.ts';
import { ManualClock } from '../ucs/sys/clock.ts';
import { createEmulatedNode } from './index.ts';

useErrnoRecord();

const COMMANDS_OFFSET = 65536;

/** A node with one gaudi2 card and a clock that stands still, an open file and mapped host memory. */
function setUp(dmaThreads = 0) {
  const clock = new ManualClock(1e9);
  const node = createEmulatedNode({ cards: 1, dmaThreads, clock });
  const host = mapAnonymous(2 * COMMANDS_OFFSET);
  const commands = new Uint32Array(host.buffer, COMMANDS_OFFSET);
  const client = new DriverClient(node.open(0));
  const hostVa = client.mapHost(host.address, host.byteLength).out;
  const submit = (byteLength: number, cs_flags = 0, timeout = 0, offset = 0, queue = 0) => {
    const cb = hostVa + BigInt(COMMANDS_OFFSET + offset);
    return client.submit([{ queue, cb, byteLength }], { cs_flags, timeout });
  };
  const status = () => client.info(HL_INFO_OP.DEVICE_STATUS, HL_INFO_DEVICE_STATUS).out.status;
  const done = () => {
    client.close();
    host.close();
    node.close();
  };
  const block = () => writeFence(commands, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
  const nop = () => writeNop(commands, 0, packetCtl(PacketOpcode.NOP));
  return { clock, node, host, commands, client, hostVa, submit, status, done, block, nop };
}

function errnoOf(call: () => unknown): number {
  try {
    call();
  } catch (error) {
    if (isSyscallError(error)) return error.errno;
  }
  return 0;
}

describe('time-outs', () => {
  it('reset the card: the submission ETIMEDOUT, the others EIO, the file dead until it is closed', () => {
    const { clock, node, client, submit, status, done, block } = setUp();
    block();
    const one = submit(8).out.seq;
    const two = submit(8).out.seq;
    clock.advance(29e9);
    expect(client.wait(one).out.status).toBe(1);
    clock.advance(1e9);
    expect(status()).toBe(HL_DEVICE_STATUS.IN_RESET);
    expect(client.wait(one).result).toBe(-Errno.EBUSY);
    expect(submit(8).result).toBe(-Errno.EBUSY);
    expect(client.allocate(1).result).toBe(-Errno.EBUSY);
    expect(client.createCommandBuffer(1).result).toBe(-Errno.EBUSY);
    expect(client.debug({ op: 7, enable: 1 })).toBe(-Errno.EBUSY);
    expect(client.infoRaw({ op: HL_INFO_OP.HW_IDLE, return_size: 40 })).toBe(-Errno.EBUSY);
    expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 304 })).toBe(0);
    const record = client.info(HL_INFO_OP.CS_TIMEOUT_EVENT, HL_INFO_CS_TIMEOUT_EVENT).out;
    expect(record).toEqual({ seq: one, timestamp: BigInt(clock.nowNs()) });
    expect(client.info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out.hard_reset_cnt).toBe(1);
    expect(two).toBe(2n);
    expect(errnoOf(() => node.open(0))).toBe(Errno.EAGAIN);
    client.close();
    node.open(0).close();
    done();
  });

  it('end non-blocking waits with the result of the submission', async () => {
    const { clock, client, submit, done, block } = setUp();
    block();
    const seqs = [submit(8).out.seq, submit(8).out.seq];
    const waits = seqs.map((seq) => {
      const other = new DriverClient(client.file);
      other.block.view.setBigUint64(0, seq, true);
      other.block.view.setBigUint64(8, 100_000_000n, true);
      return { other, result: client.file.ioctlAsync(client.file.numbers.WAIT_CS, other.block) };
    });
    clock.advance(30e9);
    expect(await Promise.all(waits.map(({ result }) => result))).toEqual([-Errno.ETIMEDOUT, -Errno.EIO]);
    expect(waits.map(({ other }) => other.block.words[0])).toEqual([2, 3]);
    for (const { other } of waits) other.close();
    done();
  });

  it('give a user with an event fd 30 s to close the file', () => {
    const { clock, client, submit, status, done, block } = setUp();
    const event = new EventFd();
    client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd });
    block();
    const { out } = submit(8);
    clock.advance(30e9);
    expect(event.tryRead()).toBe(1);
    client.infoRaw({ op: HL_INFO_OP.GET_EVENTS, return_size: 8 });
    expect(client.answer.words[0]).toBe(HL_NOTIFIER_EVENT.CS_TIMEOUT | HL_NOTIFIER_EVENT.DEVICE_RESET);
    expect(status()).toBe(HL_DEVICE_STATUS.OPERATIONAL);
    expect(client.wait(out.seq).result).toBe(-Errno.EBUSY);
    clock.advance(30e9);
    expect(status()).toBe(HL_DEVICE_STATUS.IN_RESET);
    event.close();
    done();
  });
});

describe('fault records', () => {
  it('keep the first page fault and the mappings at that time', () => {
    const { client, commands, submit, hostVa, done, host } = setUp();
    writeLinDma(
      commands,
      0,
      linDmaCtl('gaudi2'),
      64,
      Number(hostVa & 0xffff_ffffn),
      Number(hostVa >> 32n),
      0x1000,
      0x2,
    );
    const { out } = submit(24);
    expect(client.wait(out.seq).out.status).toBe(0);
    const fault = client.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out;
    expect(fault.addr).toBe(0x2_0000_1000n);
    expect(client.info(HL_INFO_OP.RAZWI_EVENT, HL_INFO_RAZWI_EVENT).out).toMatchObject({ addr: 0x2_0000_1000n });
    expect(client.infoRaw({ op: HL_INFO_OP.USER_MAPPINGS, return_size: 8 })).toBe(-Errno.ENOMEM);
    expect(client.block.words[HL_INFO_ARGS.words.array_size]).toBe(1);
    expect(client.infoRaw({ op: HL_INFO_OP.USER_MAPPINGS, return_size: 16 })).toBe(0);
    expect(client.answer.view.getBigUint64(0, true)).toBe(hostVa);
    expect(client.answer.view.getBigUint64(8, true)).toBe(BigInt(host.byteLength));
    done();
  });

  it('name the engine of an undefined opcode, whose stream stops', () => {
    const { client, commands, submit, done } = setUp();
    writeShortPacket(commands, 0, packetCtl(0x1e), 0);
    const { out } = submit(8, 0, 0, 0, 1);
    expect(client.wait(out.seq).out.status).toBe(1);
    const record = client.info(HL_INFO_OP.UNDEFINED_OPCODE_EVENT, HL_INFO_UNDEFINED_OPCODE_EVENT).out;
    expect(record).toMatchObject({ engine_id: 45, stream_id: 1 });
    done();
  });

  it('stop a stream whose command buffer was unmapped while it waited', () => {
    const { client, submit, hostVa, done, block } = setUp();
    block();
    const { out } = submit(8);
    expect(client.unmap(hostVa)).toBe(0);
    expect(client.wait(out.seq).out.status).toBe(1);
    done();
  });
});

describe('injected faults', () => {
  it('fail the nth ioctl of a kind, and an open', () => {
    const { node, client, done } = setUp();
    node.inject(0, { kind: 'ioctl', ioctl: 'MEMORY', nth: 2, errno: Errno.ENOMEM });
    expect([1, 2, 3].map(() => client.allocate(1).result)).toEqual([0, -Errno.ENOMEM, 0]);
    expect(node.card(0).faults.fired.length).toBe(1);
    client.close();
    node.inject(0, { kind: 'open', errno: Errno.EAGAIN });
    expect(errnoOf(() => node.open(0))).toBe(Errno.EAGAIN);
    expect(() => node.inject(0, { kind: 'open', errno: 0 })).toThrow('errno');
    expect(() => node.inject(0, { kind: 'open', errno: 5, nth: 0 })).toThrow('nth');
    done();
  });

  it('delay and drop completions', () => {
    const { clock, node, client, submit, status, done, nop } = setUp();
    nop();
    node.inject(0, { kind: 'completion', nth: 2, delayNs: 5000 });
    const [one, two] = [submit(8).out.seq, submit(8).out.seq];
    expect([one, two].map((seq) => client.wait(seq).out.status)).toEqual([0, 1]);
    clock.advance(5000);
    expect(client.wait(two).out.status).toBe(0);
    node.inject(0, { kind: 'completion' });
    const { out } = submit(8);
    clock.advance(29e9);
    expect(client.wait(out.seq).out.status).toBe(1);
    // The time-out is checked at the time when the previous submission would have expired.
    clock.advance(31e9);
    expect(status()).toBe(HL_DEVICE_STATUS.IN_RESET);
    done();
  });

  it('run out of memory, addresses and descriptors', () => {
    const { node, client, host, done } = setUp();
    for (const resource of ['hbm', 'va', 'fd'] as const) node.inject(0, { kind: 'exhausted', resource });
    expect(client.allocate(1).result).toBe(-Errno.ENOMEM);
    expect(client.mapHost(host.address, 4096).result).toBe(-Errno.ENOMEM);
    const address = client.mapDevice(client.allocate(1).out).out;
    expect(client.exportDmabuf(address, 4096).result).toBe(-Errno.EMFILE);
    expect(node.card(0).faults.waiting).toBe(0);
    done();
  });

  it('unplug a card: ENODEV everywhere', () => {
    const { node, client, submit, done, block } = setUp();
    block();
    submit(8);
    node.inject(0, { kind: 'unplug' });
    expect(client.wait(1n).result).toBe(-Errno.ENODEV);
    expect(client.infoRaw({ op: HL_INFO_OP.DEVICE_STATUS, return_size: 8 })).toBe(-Errno.ENODEV);
    for (const request of Object.values(client.file.numbers)) {
      expect(client.file.ioctl(request, client.block)).toBe(-Errno.ENODEV);
    }
    expect(errnoOf(() => client.file.mmap(4096, 0n))).toBe(Errno.ENODEV);
    expect(errnoOf(() => node.openControl(0))).toBe(Errno.ENODEV);
    expect(node.cards()).toEqual([]);
    client.close();
    expect(errnoOf(() => node.open(0))).toBe(Errno.ENODEV);
    done();
  });

  it('break a card until it recovers', () => {
    const { node, client, submit, done, nop } = setUp();
    node.inject(0, { kind: 'malfunction' });
    expect(submit(8).result).toBe(-Errno.EBUSY);
    expect(errnoOf(() => node.openControl(0))).toBe(Errno.EPERM);
    expect(node.attribute(0, 'status')).toBe('Disabled');
    client.close();
    expect(errnoOf(() => node.open(0))).toBe(Errno.EPERM);
    node.inject(0, { kind: 'recover' });
    node.open(0).close();
    nop();
    done();
  });

  it('put a card into every status: opens are rejected, ioctls that need the device return EBUSY', () => {
    const { node, client, status, submit, nop, done } = setUp();
    const refusals = [
      [HL_DEVICE_STATUS.IN_RESET, Errno.EAGAIN],
      [HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE, Errno.EAGAIN],
      [HL_DEVICE_STATUS.NEEDS_RESET, Errno.EPERM],
      [HL_DEVICE_STATUS.IN_DEVICE_CREATION, Errno.EPERM],
    ] as const;
    for (const [value, errno] of refusals) {
      node.inject(0, { kind: 'status', status: value });
      expect(status()).toBe(value);
      expect(client.infoRaw({ op: 99 })).toBe(-Errno.EBUSY);
      expect(submit(nop() * 4).result).toBe(-Errno.EBUSY);
      let refusal: unknown;
      try {
        node.open(0);
      } catch (error) {
        refusal = error;
      }
      expect(isSyscallError(refusal, errno), `status ${value}`).toBe(true);
      node.openControl(0).close();
    }
    node.inject(0, { kind: 'recover' });
    expect(submit(nop() * 4).result).toBe(0);
    client.close();
    node.open(0).close();
    done();
  });

  it('reset a card under load', () => {
    const { node, client, submit, status, done, block } = setUp();
    block();
    submit(8);
    node.inject(0, { kind: 'hard-reset' });
    expect(status()).toBe(HL_DEVICE_STATUS.IN_RESET);
    client.close();
    node.open(0).close();
    done();
  });
});
