/** Open files, and the MEMORY and CB ioctls, on a card without engines: errnos, framing, limits, what a close gives back. */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { DriverClient } from '../../../../test/contract/driver/driver-client.ts';
import { EmulatedCard } from '../../../../test/contract/driver/emulated-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { allocateScratch, close, Errno, EventFd, openFileDescriptors, SyscallError } from '../../../sys/index.ts';
import {
  HL_CB_FLAGS,
  HL_CB_OP,
  HL_INFO_DRAM_USAGE,
  HL_INFO_OP,
  HL_MAX_CB_SIZE,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  TS_MAX_ELEMENTS_NUM,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../../uapi/index.ts';
import { Notifier } from '../base/notifier.ts';
import { PrimaryFile } from './file.ts';

expectNoLeaks();

const { EINVAL, EFAULT, EBUSY, EBADF, ENODEV, ENOTTY, ENOMEM, EOPNOTSUPP, EIO } = Errno;

let card: EmulatedCard;
afterEach(() => card.close());

function primary(): PrimaryFile {
  const { file } = card.client;
  if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
  return file;
}

/** The request with another size of its arguments. */
const sized = (request: number, bytes: number): number => ((request & ~(0x3fff << 16)) | (bytes << 16)) >>> 0;

describe('an open file', () => {
  it('answers EBADF once it is closed, and ENODEV once its card is gone', () => {
    card = new EmulatedCard();
    const { client, node } = card;
    const file = primary();
    expect(client.allocate(64).result).toBe(0);
    node.inject(0, { kind: 'unplug' });
    expect([client.allocate(64).result, client.infoRaw({ op: HL_INFO_OP.DEVICE_STATUS })]).toEqual([-ENODEV, -ENODEV]);
    expect(() => file.mmap(4096, 0n)).toThrow(expect.objectContaining({ errno: ENODEV }));
    client.file.close();
    client.file.close();
    expect(client.allocate(64).result).toBe(-EBADF);
    expect(() => file.mmap(4096, 0n)).toThrow(expect.objectContaining({ errno: EBADF }));
  });

  it('has an injected errno once, and knows no other ioctls', () => {
    card = new EmulatedCard();
    const { client, node } = card;
    node.inject(0, { kind: 'ioctl', ioctl: 'MEMORY', errno: ENOMEM });
    expect([client.allocate(64).result, client.allocate(64).result]).toEqual([-ENOMEM, 0]);
    const { numbers } = client.file;
    expect(client.file.ioctl((numbers.MEMORY & ~0xff) | 0xff, client.block)).toBe(-EINVAL);
    expect(client.file.ioctl(numbers.MEMORY & ~0xff00, client.block)).toBe(-ENOTTY);
    expect(client.file.ioctl(sized(numbers.MEMORY, 8192), { address: 0, words: new Uint32Array(16) })).toBe(-EFAULT);
  });

  it('takes arguments that are too short as if zeros were behind them, and writes nothing there', () => {
    card = new EmulatedCard();
    const { client } = card;
    const block = allocateScratch(HL_MEM_ARGS.size);
    const pageBytes = Number(card.node.config.profile.dram.pageSize);
    HL_MEM_ARGS.in.encode({ op: HL_MEM_OP.ALLOC, alloc_mem_size: BigInt(pageBytes), ctx_id: 7, flags: 0 }, block.view);
    const { MEMORY } = client.file.numbers;
    const given = (HL_MEM_ARGS.in.words.op + 1) * 4;
    block.words.fill(0xdead, HL_MEM_ARGS.in.words.op + 1);
    expect(client.file.ioctl(sized(MEMORY, given), block)).toBe(0);
    expect(HL_MEM_ARGS.out.decode(block.view).handle).toBe(1n);
    expect([...block.words.subarray(HL_MEM_ARGS.in.words.op + 1)].every((word) => word === 0xdead)).toBe(true);
    block.free();
  });

  it('has zeros in place of words that the request does not give, such as flags', () => {
    card = new EmulatedCard();
    const { client } = card;
    const block = allocateScratch(HL_MEM_ARGS.size);
    const handle = client.allocate(64).out;
    const flags = HL_MEM.USERPTR | HL_MEM.FORCE_HINT;
    HL_MEM_ARGS.in.encode({ op: HL_MEM_OP.MAP, map_device_handle: handle, flags }, block.view);
    const { MEMORY } = client.file.numbers;
    expect(client.file.ioctl(sized(MEMORY, HL_MEM_ARGS.in.words.flags * 4), block)).toBe(0);
    block.free();
  });

  it('waits without a timer that is left, or a place of a multi-wait', async () => {
    card = new EmulatedCard();
    const { client, clock } = card;
    const timers = clock.pendingTimers;
    const block = allocateScratch(HL_WAIT_CS_ARGS.size);
    HL_WAIT_CS_ARGS.in.encode({ seq: 99n, timeout_us: 50n }, block.view);
    expect(await client.file.ioctlAsync(client.file.numbers.WAIT_CS, block)).toBe(-EINVAL);
    expect([clock.pendingTimers, primary().context.card.waiters.any]).toEqual([timers, false]);
    const seq = card.block(0);
    const before = clock.pendingTimers;
    HL_WAIT_CS_ARGS.in.encode({ seq, timeout_us: 50n }, block.view);
    const waiting = client.file.ioctlAsync(client.file.numbers.WAIT_CS, block);
    expect(clock.pendingTimers).toBe(before + 1);
    const { userMemory } = primary();
    const { caller } = userMemory;
    // Another process calls through the same file meanwhile.
    userMemory.caller = caller + 1;
    clock.advance(50_000);
    await waiting;
    expect([userMemory.caller, clock.pendingTimers]).toEqual([caller, before]);
    block.free();
  });

  it('that is closed ends its waits, and gives its event fd back', async () => {
    card = new EmulatedCard();
    const { client } = card;
    const event = new EventFd();
    const descriptors = openFileDescriptors();
    expect(client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(0);
    expect(openFileDescriptors()).toBe(descriptors + 1);
    const { notifiers } = primary().context.card;
    expect(notifiers.anyRegistered).toBe(true);
    const block = allocateScratch(HL_WAIT_CS_ARGS.size);
    const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | (50 << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
    const counter = { flags, addr: BigInt(card.host.address + 8192), target: 5n, interrupt_timeout_us: 1_000_000n };
    HL_WAIT_CS_ARGS.in.encode(counter, block.view);
    const waits = [
      card.waitAsync(card.block(0), 1_000_000n).then(({ result }) => result),
      client.file.ioctlAsync(client.file.numbers.WAIT_CS, block),
    ];
    client.file.close();
    expect(await Promise.all(waits)).toEqual([-EIO, -EIO]);
    expect(notifiers.anyRegistered).toBe(false);
    const raise = vi.spyOn(Notifier.prototype, 'raise');
    notifiers.raise(1);
    expect(raise).not.toHaveBeenCalled();
    raise.mockRestore();
    block.free();
    event.close();
  });

  it('of the control node answers INFO only, and keeps no notifications', () => {
    card = new EmulatedCard();
    const control = new DriverClient(card.node.openControl(0));
    expect(control.info(HL_INFO_OP.DRAM_USAGE, HL_INFO_DRAM_USAGE).result).toBe(0);
    expect(control.allocate(64).result).toBe(-ENOTTY);
    expect(control.infoRaw({ op: HL_INFO_OP.GET_EVENTS, return_size: 8 })).toBe(-EOPNOTSUPP);
    expect(() => control.file.mmap(4096, 0n)).toThrow(SyscallError);
    control.close();
    expect(control.file.ioctl(control.file.numbers.INFO, card.client.block)).toBe(-EBADF);
  });

  it('runs what can run before it answers', () => {
    card = new EmulatedCard();
    const service = vi.spyOn(primary().context.card, 'service');
    card.client.infoRaw({ op: HL_INFO_OP.DEVICE_STATUS, return_size: 4 });
    expect(service).toHaveBeenCalledTimes(1);
    service.mockRestore();
  });
});

describe('MEMORY', () => {
  it('refuses on a card in reset, and ops and sizes that are not there', () => {
    card = new EmulatedCard();
    const { client } = card;
    expect([client.memory({ op: 99 }).result, client.allocate(0).result]).toEqual([-EINVAL, -EINVAL]);
    expect(client.unmap(0x1234_5000n)).toBe(-EINVAL);
    expect(client.mapDevice(55n)).toEqual({ result: -EINVAL, out: 0n });
    const failed = client.exportDmabuf(0x1000n, 4096);
    expect([failed.result, failed.out]).toEqual([-EINVAL, -EBADF]);
    expect(client.importDmabuf(0, 4096).result).toBe(-EINVAL);
    card.node.inject(0, { kind: 'hard-reset' });
    expect([client.allocate(64).result, client.createCommandBuffer(64).result]).toEqual([-EBUSY, -EBUSY]);
  });

  it('makes timestamps of 8 bytes, up to their limit', () => {
    card = new EmulatedCard();
    const { client } = card;
    const make = (count: number) => client.memory({ op: HL_MEM_OP.TS_ALLOC, num_of_elements: count });
    expect([make(0).result, make(TS_MAX_ELEMENTS_NUM + 1).result]).toEqual([-ENOMEM, -EINVAL]);
    const { result, out } = make(513);
    expect(result).toBe(0);
    const mapping = client.file.mmap(513 * 8, out.handle);
    expect(mapping.byteLength).toBe(8192);
    mapping.close();
    expect(make(TS_MAX_ELEMENTS_NUM).result).toBe(0);
  });

  it('imports dma-bufs in the driver of the vendor only', () => {
    card = new EmulatedCard({ importDmabuf: false });
    const upstream = card.client.exportDmabuf(card.client.mapDevice(card.client.allocate(64).out).out, 4096).out;
    expect(card.client.importDmabuf(upstream, 4096)).toMatchObject({ result: -EINVAL });
    close(upstream);
    card.close();
    card = new EmulatedCard({ importDmabuf: true });
    const { client } = card;
    const { handle, bytes } = { handle: client.allocate(64).out, bytes: 8192 };
    const { out: fd } = client.exportDmabuf(client.mapDevice(handle).out, bytes);
    expect(client.importDmabuf(fd, bytes + 1)).toEqual({ result: -EINVAL, out: 0n });
    const { result, out } = client.importDmabuf(fd, bytes);
    expect([result, client.unmap(out), client.unmap(out)]).toEqual([0, 0, -EINVAL]);
    close(fd);
  });
});

describe('CB', () => {
  it('makes buffers of up to 2 MiB, each destroyed once', () => {
    card = new EmulatedCard();
    const { client } = card;
    const largest = client.createCommandBuffer(HL_MAX_CB_SIZE);
    expect([largest.result, client.createCommandBuffer(HL_MAX_CB_SIZE + 1).result]).toEqual([0, -EINVAL]);
    const mapping = client.file.mmap(HL_MAX_CB_SIZE, largest.out);
    expect([client.destroyCommandBuffer(largest.out), client.destroyCommandBuffer(largest.out)]).toEqual([0, -EINVAL]);
    mapping.close();
    const small = client.createCommandBuffer(0).out;
    const mapped = client.file.mmap(4096, small);
    mapped.close();
    expect(client.commandBuffer({ op: 77, cb_handle: small }).result).toBe(-EINVAL);
  });

  it('has an address only if it was asked for, and nothing is left of one that has none', () => {
    card = new EmulatedCard();
    const { client, node } = card;
    const address = (cb_handle: bigint) =>
      client.commandBuffer({ op: HL_CB_OP.INFO, cb_handle, flags: HL_CB_FLAGS.GET_DEVICE_VA });
    const plain = client.createCommandBuffer(64).out;
    expect(address(plain).result).toBe(-EINVAL);
    expect(client.commandBuffer({ op: HL_CB_OP.INFO, cb_handle: plain }).result).toBe(0);
    node.inject(0, { kind: 'exhausted', resource: 'va' });
    const { buffers } = primary().context;
    const { size } = buffers;
    expect(client.createCommandBuffer(64, HL_CB_FLAGS.MAP).result).toBe(-ENOMEM);
    expect(buffers.size).toBe(size);
    expect(address(client.createCommandBuffer(64, HL_CB_FLAGS.MAP).out).out.device_va).not.toBe(0n);
    card.close();
    card = new EmulatedCard({ asic: 'gaudi' });
    expect(card.client.createCommandBuffer(64, HL_CB_FLAGS.MAP).result).toBe(-ENOMEM);
  });
});
