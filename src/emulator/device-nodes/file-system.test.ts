/** The FUSE protocol of a device tree, against a kernel of this test: names, attributes, texts, and open control nodes. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FuseKernel, nameOf } from '../../../test/fixtures/driver/fuse-kernel.ts';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { allocateScratch, Errno } from '../../sys/index.ts';
import { DRM_IOCTLS, HL_INFO_ARGS, HL_INFO_OP } from '../../uapi/index.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { createEmulatedNode, type EmulatedNode } from '../emulated-node.ts';
import { DeviceFiles } from './device-file.ts';
import { DeviceTree } from './device-tree.ts';
import { TreeFileSystem } from './file-system.ts';
import {
  ATTR,
  ATTR_OUT,
  DIRENT,
  ENTRY_OUT,
  FUSE_VERSION,
  FuseOp,
  IN_HEADER,
  INIT_IN,
  INIT_OUT,
  InitFlag,
  InitFlag2,
  IOCTL_IN,
  IOCTL_OUT,
  OPEN_OUT,
  OpenedFlag,
  OUT_HEADER,
  READ_IN,
  WRITE_IN,
} from './fuse-channel.ts';

const ROOT = 1;
const [READ_ONLY, WRITE_ONLY, READ_WRITE] = [0, 1, 2];
const S_IFREG = 0o100000;
const O_LARGEFILE = 0o100000;

let node: EmulatedNode;
let kernel: FuseKernel;
let tree: DeviceTree;
let names: TreeFileSystem;
let files: DeviceFiles;
beforeEach(() => {
  node = createEmulatedNode({ cards: 2, asic: 'gaudi' });
  kernel = new FuseKernel();
  tree = new DeviceTree(node);
  names = new TreeFileSystem(tree, kernel.channel);
  const log = new LimitedLog(createTestLog().log, systemClock);
  files = new DeviceFiles({ node, channel: kernel.channel, log, yieldToEventLoop: () => {} });
});
afterEach(() => {
  files.close();
  kernel[Symbol.dispose]();
  node.close();
});

/** The answer to a request: its errno, or its data from the end of the header on. */
function ask(opcode: number, ino: number, data: Uint8Array = new Uint8Array(0)): Buffer | number {
  kernel.send(opcode, ino, data);
  expect(kernel.channel.read()).toBe(true);
  const device = tree.device(ino);
  if (!names.answer()) files.answer(device!);
  const answer = kernel.answer()!;
  return answer.error === 0 ? answer.data : answer.error;
}

function bytes(opcode: number, ino: number, data?: Uint8Array): Buffer {
  const answer = ask(opcode, ino, data);
  expect(answer).toBeInstanceOf(Buffer);
  return answer as Buffer;
}

const at = (offset: number): number => offset - OUT_HEADER.BYTES;

/** The number of the file at a path. */
function find(path: string): number {
  let ino = ROOT;
  for (const name of path.split('/')) {
    ino = Number(bytes(FuseOp.LOOKUP, ino, nameOf(name)).readBigUInt64LE(at(ENTRY_OUT.NODE)));
  }
  return ino;
}

function fields(byteLength: number, values: Readonly<Record<number, number>>): Buffer {
  const data = Buffer.alloc(byteLength - IN_HEADER.BYTES);
  for (const [offset, value] of Object.entries(values))
    data.writeUInt32LE(value >>> 0, Number(offset) - IN_HEADER.BYTES);
  return data;
}

const read = (ino: number, offset = 0, size = 4096): Buffer | number =>
  ask(FuseOp.READ, ino, fields(80, { [READ_IN.OFFSET]: offset, [READ_IN.SIZE]: size }));
const open = (ino: number, flags: number): Buffer | number => ask(FuseOp.OPEN, ino, fields(48, { 40: flags }));
const write = (ino: number, text: string): Buffer | number =>
  ask(FuseOp.WRITE, ino, Buffer.concat([fields(WRITE_IN.DATA, { [WRITE_IN.SIZE]: text.length }), Buffer.from(text)]));

describe('the FUSE file system of a device tree', () => {
  it('agrees on a version and on flags', () => {
    for (const minor of [30, 99]) {
      const offered = {
        [INIT_IN.MAJOR]: 7,
        [INIT_IN.MINOR]: minor,
        [INIT_IN.FLAGS]: 0xffff_ffff,
        [INIT_IN.FLAGS2]: 0xff,
      };
      const answer = bytes(FuseOp.INIT, 0, fields(104, offered));
      expect(answer.byteLength).toBe(at(INIT_OUT.END));
      expect(answer.readUInt32LE(at(INIT_OUT.MAJOR))).toBe(FUSE_VERSION.MAJOR);
      expect(answer.readUInt32LE(at(INIT_OUT.MINOR))).toBe(Math.min(minor, FUSE_VERSION.MINOR));
      const flags = InitFlag.ASYNC_READ | InitFlag.BIG_WRITES | InitFlag.PARALLEL_DIROPS | InitFlag.EXT;
      expect(answer.readUInt32LE(at(INIT_OUT.FLAGS))).toBe(flags);
      expect(answer.readUInt32LE(at(INIT_OUT.FLAGS2))).toBe(InitFlag2.PASSTHROUGH | InitFlag2.RESEND);
    }
  });

  it('answers each request by its number, and none to FORGET', () => {
    kernel.send(FuseOp.FORGET, ROOT, new Uint8Array(8));
    kernel.send(FuseOp.GETATTR, ROOT, new Uint8Array(16));
    for (let request = 0; request < 2; request++) {
      expect(kernel.channel.read()).toBe(true);
      expect(names.answer()).toBe(true);
    }
    expect(kernel.channel.read()).toBe(false);
    expect(kernel.answer()).toMatchObject({ error: 0, unique: 4n });
    expect(kernel.answer()).toBeUndefined();
  });

  it('finds names, and refuses others', () => {
    const card = find('dev/accel/accel1');
    const attributes = bytes(FuseOp.GETATTR, card, new Uint8Array(16));
    expect(attributes.byteLength).toBe(at(ATTR_OUT.END));
    expect(attributes.readUInt32LE(at(ATTR_OUT.ATTR) + ATTR.MODE)).toBe(S_IFREG | 0o666);
    expect(ask(FuseOp.LOOKUP, ROOT, nameOf('accel'))).toBe(-Errno.ENOENT);
    expect(ask(FuseOp.LOOKUP, ROOT, nameOf('__proto__'))).toBe(-Errno.ENOENT);
    expect(ask(FuseOp.LOOKUP, card, nameOf('x'))).toBe(-Errno.ENOENT);
    expect(ask(FuseOp.GETATTR, 99_999)).toBe(-Errno.ENOENT);
    expect(ask(1234, ROOT)).toBe(-Errno.ENOSYS);
    expect(ask(FuseOp.READDIR, find('sys/module/habanalabs/version'))).toBe(-Errno.ENOTDIR);
    expect(ask(FuseOp.READLINK, ROOT)).toBe(-Errno.EINVAL);
    expect(String(ask(FuseOp.READLINK, find('sys/class/accel/accel0')))).toMatch(/^\.\.\/\.\.\/devices\/.*\/accel0$/);
  });

  it('lists a folder in pieces', () => {
    const folder = find('sys/kernel/debug/habanalabs/hl0');
    const listed: string[] = [];
    for (let offset = 0; ; ) {
      const piece = bytes(FuseOp.READDIR, folder, fields(80, { [READ_IN.OFFSET]: offset, [READ_IN.SIZE]: 100 }));
      if (piece.byteLength === 0) break;
      expect(piece.byteLength).toBeLessThanOrEqual(100);
      for (let from = 0; from < piece.byteLength; ) {
        const length = piece.readUInt32LE(from + DIRENT.NAME_LENGTH);
        listed.push(piece.toString('latin1', from + DIRENT.NAME, from + DIRENT.NAME + length));
        offset = Number(piece.readBigUInt64LE(from + DIRENT.OFFSET));
        from += Math.ceil((DIRENT.NAME + length) / 8) * 8;
      }
    }
    expect(listed).toEqual([
      '.',
      '..',
      ...node
        .debugFs(0)
        .entries()
        .map(({ name }) => name),
    ]);
  });

  it('reads texts from any offset, and opens none of sysfs for writing', () => {
    const { busId } = node.cards()[1]!;
    const text = find(`sys/devices/${node.card(1).place.pciPath}/pci_addr`);
    expect(open(text, READ_ONLY)).toBeInstanceOf(Buffer);
    expect(String(read(text))).toBe(`${busId}\n`);
    expect(String(read(text, 5, 2))).toBe(busId.slice(5, 7));
    expect(String(read(text, 1000))).toBe('');
    for (const flags of [WRITE_ONLY, READ_WRITE]) expect(open(text, flags)).toBe(-Errno.EACCES);
    expect(write(text, '1')).toBe(-Errno.EINVAL);
    expect(ask(FuseOp.IOCTL, text)).toBe(-Errno.ENOTTY);
    node.inject(1, { kind: 'unplug' });
    expect(read(text)).toBe(-Errno.ENODEV);
    expect(ask(FuseOp.LOOKUP, find('dev/accel'), nameOf('accel1'))).toBe(-Errno.ENOENT);
  });

  it('writes to files that take it', () => {
    const addr = find('sys/kernel/debug/habanalabs/hl0/addr');
    expect(open(addr, READ_WRITE)).toBeInstanceOf(Buffer);
    expect((write(addr, '0x123\n') as Buffer).readUInt32LE(0)).toBe(6);
    expect(String(read(addr))).toBe('0x0000000000000123\n');
    expect(write(addr, 'x')).toBe(-Errno.EINVAL);
    expect(write(addr, `0x1${'0'.repeat(16)}`)).toBe(-Errno.ERANGE);
    // The kernel sends no more bytes than it says.
    expect(ask(FuseOp.WRITE, addr, fields(WRITE_IN.DATA, { [WRITE_IN.SIZE]: 4096 }))).toBe(-Errno.EINVAL);
    node.inject(0, { kind: 'unplug' });
    expect(write(addr, '0')).toBe(-Errno.ENODEV);
  });

  it('runs ioctls of an open control node in memory of the caller', () => {
    const control = find('dev/accel/accel_controlD0');
    const opened = bytes(FuseOp.OPEN, control, fields(48, { 40: READ_WRITE }));
    expect(opened.readUInt32LE(at(OPEN_OUT.FLAGS)) & OpenedFlag.DIRECT_IO).toBe(OpenedFlag.DIRECT_IO);
    const handle = opened.readUInt32LE(at(OPEN_OUT.HANDLE));
    using answer = allocateScratch(8);
    answer.words.fill(0xffff_ffff);
    const block = Buffer.alloc(HL_INFO_ARGS.size);
    const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
    HL_INFO_ARGS.encode({ op: HL_INFO_OP.DEVICE_STATUS, return_pointer: BigInt(answer.address), return_size: 8 }, view);
    const ioctl = (given: number, request = DRM_IOCTLS.INFO): Buffer | number => {
      const sizes = { [IOCTL_IN.IN_SIZE]: block.byteLength, [IOCTL_IN.OUT_SIZE]: block.byteLength };
      const header = fields(IOCTL_IN.DATA, { [IOCTL_IN.HANDLE]: given, [IOCTL_IN.REQUEST]: request, ...sizes });
      return ask(FuseOp.IOCTL, control, Buffer.concat([header, block]));
    };
    const answered = ioctl(handle) as Buffer;
    expect(answered.readInt32LE(at(IOCTL_OUT.RESULT))).toBe(0);
    expect(answered.byteLength).toBe(at(IOCTL_OUT.DATA) + block.byteLength);
    expect([...answer.words]).toEqual([0, 0]);
    expect((ioctl(handle, DRM_IOCTLS.MEMORY) as Buffer).readInt32LE(0)).toBe(-Errno.ENOTTY);
    expect(ioctl(handle + 1)).toBe(-Errno.EBADF);
    for (const opcode of [FuseOp.READ, FuseOp.WRITE])
      expect(ask(opcode, control, new Uint8Array(40))).toBe(-Errno.EINVAL);
    expect(ask(FuseOp.RELEASE, control, fields(64, { 40: handle }))).toEqual(Buffer.alloc(0));
    expect(ioctl(handle)).toBe(-Errno.EBADF);
  });
});

describe('a primary node on a kernel without passthrough', () => {
  it('is refused, and the card stays free', () => {
    const primary = find('dev/accel/accel0');
    expect(open(primary, READ_WRITE | O_LARGEFILE)).toBe(-Errno.ENOTTY);
    expect(node.ownerOf(0)).toBeUndefined();
    node.open(0).close();
  });

  it('is opened, without mappings, for a 32-bit program', () => {
    const primary = find('dev/accel/accel0');
    const answer = open(primary, READ_WRITE) as Buffer;
    expect(answer.readUInt32LE(at(OPEN_OUT.FLAGS)) & OpenedFlag.PASSTHROUGH).toBe(0);
    expect(node.ownerOf(0)).toBe(process.pid);
  });
});
