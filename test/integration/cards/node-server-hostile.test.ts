/** Clients of a node server that violate the protocol, or request more than its bounds: the server logs it, disconnects them and stays usable. */

import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { ArgumentBlock } from '../../../src/driver/port.ts';
import { connectEmulatedNode, type RemoteNode } from '../../../src/emulator/index.ts';
import {
  ASYNC_SLOTS,
  announceRequest,
  MAILBOX_BYTES,
  NODE_PROTOCOL_VERSION,
  POSTED,
  postedCount,
  postSlot,
  REQUEST_COUNT,
  readReply,
  repliedSequence,
  requestWord,
  SERVER_SLEEPING,
  writeRequest,
} from '../../../src/emulator/server/mailbox.ts';
import { CLIENTS_MAX } from '../../../src/emulator/server/node-server.ts';
import { FILES_PER_CLIENT_MAX } from '../../../src/emulator/server/served-client.ts';
import {
  addSeals,
  allocateScratch,
  close,
  connectUnix,
  Errno,
  EventFd,
  ftruncate,
  type MappedMemory,
  mapAnonymous,
  mapFile,
  memfdCreate,
  PollEvent,
  pipe2,
  pollFor,
  pollNow,
  SealFlag,
  SocketType,
  type UnixSocket,
} from '../../../src/sys/index.ts';
import {
  DRM_IOCTLS,
  HL_CS_FLAGS,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  PacketOpcode,
  packetCtl,
  WAIT_CS_INTERRUPT_SHIFT,
  writeNop,
} from '../../../src/uapi/index.ts';
import { createRandom } from '../../../src/ucs/sys/random.ts';
import { DriverClient } from '../../contract/driver/driver-client.ts';
import { catches } from '../../fixtures/catches.ts';
import { RawNodeClient } from '../../fixtures/driver/raw-node-client.ts';
import { extent } from '../../fixtures/extent.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';

/** Of cases whose duration is configurable. */
const TIMEOUT_MS = 3_600_000;
const MESSAGES = extent('GAUDI_UCX_FUZZ_ROUNDS', 400, 100_000);
const MAILBOX_ROUNDS = extent('GAUDI_UCX_FUZZ_ROUNDS', 300, 100_000);

let server: TestNodeServer;
let node: RemoteNode;
beforeAll(async () => {
  server = await TestNodeServer.start({ cards: 2 });
  node = connectEmulatedNode(server.socketPath);
});
afterAll(async () => {
  // In all cases the server still works, holds nothing and has no internal error.
  expect(node.status().clients).toHaveLength(1);
  expect(server.errors).not.toContain('defect');
  node.close();
  await server.stop();
});

/** An open card whose mailbox the test writes itself. */
class RawFile extends RawNodeClient {
  readonly id: number;
  readonly mailbox: MappedMemory;
  readonly words: Int32Array;
  readonly mailboxFd: number;

  constructor(minor = 0) {
    super(server.socketPath);
    this.greet();
    this.id = 1;
    const opened = this.ask({ op: 'open', minor, control: false, file: this.id })!;
    this.mailboxFd = opened.fd;
    this.mailbox = mapFile(opened.fd, MAILBOX_BYTES, 0);
    this.words = new Int32Array(this.mailbox.buffer);
  }

  /** Posts a request, with another number of words than its block has if `count` is given. */
  post(slot: number, sequence: number, request: number, block: ArgumentBlock, count?: number): void {
    writeRequest(this.words, slot, request, block, false);
    if (count !== undefined) this.words[requestWord(slot) + REQUEST_COUNT] = count;
    if (slot === 0) announceRequest(this.words, sequence);
    else postSlot(this.words, postedCount(this.words), slot);
    this.socket.sendmsg(Uint8Array.of(0));
  }

  /** Result of the request of slot 0 with this sequence number. */
  async answer(sequence: number): Promise<number> {
    await vi.waitFor(() => expect(repliedSequence(this.words)).toBe(sequence));
    return readReply(this.words, 0, new Uint32Array(0));
  }

  override [Symbol.dispose](): void {
    super[Symbol.dispose]();
    this.mailbox.close();
    close(this.mailboxFd);
  }
}

/** An argument block of zeros. */
function blockOf(count: number): ArgumentBlock {
  return { address: 0, words: new Uint32Array(count) };
}

/** Number of descriptors that the server has open. */
function openDescriptors(): number {
  return readdirSync(`/proc/${server.pid}/fd`).length;
}

function expectServes(of: RemoteNode = node): void {
  const client = new DriverClient(of.open(1));
  const { result } = client.allocate(1);
  client.close();
  expect(result).toBe(0);
}

/** Expects that the server does not answer a message, but disconnects. */
function expectDisconnects(raw: RawNodeClient, message: object, fds: readonly number[] = []): void {
  expect(raw.ask(message, fds)).toBeUndefined();
}

/** Expects that the server closes the descriptors of a client that has gone. */
async function expectClosed(before: number): Promise<void> {
  await vi.waitFor(() => expect(openDescriptors()).toBe(before));
}

describe('a client of a node server', () => {
  expectNoLeaks();

  it.each<readonly [string, Uint8Array]>([
    ['no JSON', Buffer.from('hello')],
    ['a list', Buffer.from('[]')],
    ['no id', Buffer.from('{"op":"cards"}')],
    ['a request before hello', Buffer.from('{"id":1,"op":"cards"}')],
    ['bytes of nothing', new Uint8Array(65536)],
    ['a wrong proof', Buffer.from(`{"id":1,"op":"hello","version":${NODE_PROTOCOL_VERSION},"address":0,"value":"x"}`)],
  ])('that sends %s is disconnected', (_what, bytes) => {
    using raw = new RawNodeClient(server.socketPath);
    const answer = raw.sendBytes(bytes);
    // An unreadable proof is answered and refused, but is not a violation.
    if (answer !== undefined) expect(answer.reply).toMatchObject({ access: false });
    expectServes();
  });

  it('of another version is refused with the reason', () => {
    using raw = new RawNodeClient(server.socketPath);
    const { reply } = raw.ask({ op: 'hello', version: NODE_PROTOCOL_VERSION + 1, address: 4096, value: 0 })!;
    expect(reply['error']).toMatchObject({ code: 'ERR_NODE_REFUSED', message: expect.stringContaining('version') });
  });

  it('is disconnected after malformed requests, which the server survives', { timeout: TIMEOUT_MS }, () => {
    const random = createRandom(11);
    const ops =
      'ioctl open close mmap munmap cards attribute temperature status fault nonsense attachments attach detach'.split(
        ' ',
      );
    const values = [
      0,
      1,
      -1,
      99,
      1.5,
      2 ** 53,
      2 ** 31,
      '',
      'x',
      null,
      [],
      {},
      [1, 2, 3],
      true,
      '18446744073709551616',
    ];
    const names = 'minor file request address words byteLength offset mapping name control attachment'.split(' ');
    const pick = <T>(list: readonly T[]): T => list[random.below(list.length)]!;
    let raw = new RawNodeClient(server.socketPath).greet();
    for (let round = 0; round < MESSAGES; round++) {
      const message: Record<string, unknown> = { op: pick(ops) };
      for (const name of names) if (random.below(2) === 0) message[name] = pick(values);
      if (message['op'] === 'fault')
        message['fault'] = { kind: pick(['ioctl', 'status', 'x', 7]), errno: pick(values) };
      const answer = raw.ask(message, random.below(4) === 0 ? [0] : []);
      if (answer !== undefined) {
        if (answer.fd >= 0) close(answer.fd);
        continue;
      }
      raw.socket.close();
      raw = new RawNodeClient(server.socketPath).greet();
    }
    raw.socket.close();
    expectServes();
  });

  it('that sends too many descriptors is disconnected', () => {
    using raw = new RawNodeClient(server.socketPath).greet();
    expectDisconnects(raw, { op: 'cards' }, [0, 1, 2]);
    expectServes();
  });

  it.each([
    ['devices', 'that cannot be polled', () => [memfdCreate('other')]],
    ['devices', 'of another kind', () => pipe2()],
  ] as const)(
    'that asks for %s with a descriptor %s is disconnected, and the server keeps nothing',
    async (op, _, make) => {
      const before = openDescriptors();
      const fds = make();
      using raw = new RawNodeClient(server.socketPath).greet();
      expectDisconnects(raw, { op }, fds.slice(-1));
      for (const fd of fds) close(fd);
      await expectClosed(before);
      expectServes();
    },
  );

  it('that asks for devices without their number is disconnected, and the server keeps nothing', async () => {
    const before = openDescriptors();
    using raw = new RawNodeClient(server.socketPath).greet();
    const fuse = memfdCreate('other');
    expectDisconnects(raw, { op: 'devices' }, [fuse]);
    close(fuse);
    await expectClosed(before);
  });

  it('cannot shrink its mailbox', () => {
    using raw = new RawFile();
    expect(() => ftruncate(raw.mailboxFd, 0)).toThrow(/EPERM/);
  });

  it('cannot name descriptors of the server', async () => {
    const { MEMORY, INFO } = DRM_IOCTLS;
    for (const fd of [3, 10, 20]) {
      using raw = new RawFile();
      const block = blockOf(10);
      const { words } = block;
      words[HL_MEM_ARGS.in.words.op] = HL_MEM_OP.REG_DMABUF_FD;
      words[HL_MEM_ARGS.in.words.reg_dmabuf_fd_fd] = fd;
      raw.post(0, 1, MEMORY, block);
      await raw.hungUp();
    }
    using raw = new RawFile();
    const block = blockOf(6);
    block.words[HL_INFO_ARGS.words.op] = HL_INFO_OP.REGISTER_EVENTFD;
    raw.post(0, 1, INFO, block);
    await raw.hungUp();
    expectServes();
  });

  it.each([
    ['an empty block', 0, -Errno.EFAULT],
    ['a block shorter than the arguments', 3, -Errno.EFAULT],
  ])('gets an errno for %s', async (_what, count, errno) => {
    using raw = new RawFile();
    raw.post(0, 1, DRM_IOCTLS.MEMORY, blockOf(10), count);
    expect(await raw.answer(1)).toBe(errno);
  });

  it.each([-1, 4097, 2 ** 31 - 1])('that posts a block of %s words is disconnected', async (count) => {
    using raw = new RawFile();
    raw.post(0, 1, DRM_IOCTLS.INFO, blockOf(6), count);
    await raw.hungUp();
    expectServes();
  });

  it.each([
    ['more requests than a ring holds', 1, ASYNC_SLOTS + 1],
    ['slot 0 in the ring', 0, 1],
    ['a slot that does not exist', ASYNC_SLOTS + 1, 1],
  ])('that posts %s is disconnected', async (_what, slot, count) => {
    using raw = new RawFile();
    postSlot(raw.words, 0, slot);
    Atomics.store(raw.words, POSTED, count);
    raw.socket.sendmsg(Uint8Array.of(0));
    await raw.hungUp();
    expectServes();
  });

  it('that posts twice into a waiting slot is disconnected', async () => {
    using raw = new RawFile();
    // A wait for an interrupt that never occurs, at its own counter.
    const counter = allocateScratch(8);
    const block = blockOf(14);
    const { words } = block;
    const at = HL_WAIT_CS_ARGS.in.words;
    words[at.addr] = counter.address | 0;
    words[at.addr + 1] = Math.floor(counter.address / 2 ** 32);
    words[at.target] = 1;
    words[at.flags] = HL_WAIT_CS_FLAGS.INTERRUPT | (0xfff << WAIT_CS_INTERRUPT_SHIFT);
    words[at.interrupt_timeout_us] = 2 ** 30;
    raw.post(1, 1, DRM_IOCTLS.WAIT_CS, block);
    await vi.waitFor(() => expect(node.status().clients.map(({ ioctls }) => ioctls)).toEqual([0, 1]));
    raw.post(1, 2, DRM_IOCTLS.WAIT_CS, block);
    await vi.waitFor(() => expect(node.status().clients).toHaveLength(1));
    counter.free();
    expectServes();
  });

  it('that fills its mailbox with noise is answered or disconnected', { timeout: TIMEOUT_MS }, async () => {
    const random = createRandom(5);
    let raw = new RawFile();
    for (let round = 1; round <= MAILBOX_ROUNDS; round++) {
      const request = [DRM_IOCTLS.INFO, DRM_IOCTLS.MEMORY, DRM_IOCTLS.CS, DRM_IOCTLS.CB, random.nextU32()][
        random.below(5)
      ]!;
      const words = Uint32Array.from({ length: 16 }, () =>
        random.below(2) === 0 ? random.below(40) : random.nextU32(),
      );
      const address = random.nextU32() + random.below(2 ** 15) * 2 ** 32;
      raw.words[SERVER_SLEEPING] = random.below(3);
      raw.post(0, round, request | 0, { address, words }, random.below(20) === 0 ? random.nextU32() | 0 : undefined);
      const answered = (): boolean => repliedSequence(raw.words) === round;
      const gone = (): boolean => (pollFor(raw.socket.fd, PollEvent.IN, 0) & PollEvent.HUP) !== 0;
      await vi.waitFor(() => expect(answered() || gone()).toBe(true), { interval: 1 });
      if (!gone()) continue;
      raw[Symbol.dispose]();
      await vi.waitFor(() => expect(node.status().clients).toHaveLength(1), { interval: 1 });
      raw = new RawFile();
    }
    raw[Symbol.dispose]();
    await vi.waitFor(() => expect(node.status().clients).toHaveLength(1));
    expectServes();
  });

  it('that passes a file that can shrink is disconnected', () => {
    for (const seals of [0, SealFlag.GROW]) {
      using raw = new RawFile();
      const fd = memfdCreate('hostile', { sealing: true });
      ftruncate(fd, 65536);
      if (seals !== 0) addSeals(fd, seals);
      expectDisconnects(raw, pinMessage(raw.id, 65536), [fd]);
      close(fd);
    }
    using raw = new RawFile();
    const [reading, writing] = pipe2();
    expectDisconnects(raw, pinMessage(raw.id, 65536), [reading]);
    for (const fd of [reading, writing]) close(fd);
    expectServes();
  });

  it('that passes a file that is too short is disconnected', () => {
    using raw = new RawFile();
    const fd = memfdCreate('short', { sealing: true });
    ftruncate(fd, 4096);
    addSeals(fd, SealFlag.SHRINK);
    expectDisconnects(raw, pinMessage(raw.id, 8192), [fd]);
    close(fd);
    expectServes();
  });

  it('that disconnects during operations leaves nothing behind', async () => {
    for (const delay of [0, 1, 2, 5]) {
      const raw = new RawFile();
      raw.post(0, 1, DRM_IOCTLS.INFO, blockOf(6));
      await new Promise((resolve) => setTimeout(resolve, delay));
      raw[Symbol.dispose]();
    }
    await vi.waitFor(() => expect(node.status().cards.every(({ owner }) => owner === null)).toBe(true));
    expectServes();
  });
});

describe('is noticed if the server', () => {
  it('keeps a client that it has to disconnect', async () => {
    using raw = new RawNodeClient(server.socketPath).greet();
    await catches((client: RawNodeClient) => expectDisconnects(client, { op: 'cards' }), raw, /to be undefined/);
    await catches((client: RawNodeClient) => client.hungUp(), raw, /to include -11/);
  });

  it('keeps a descriptor', async () => {
    await vi.waitFor(() => expect(node.status().clients).toHaveLength(1));
    const before = openDescriptors();
    using _raw = new RawFile();
    await catches(expectClosed, before, /expected \d+ to be \d+/);
  });

  it('does not serve others any more', async () => {
    node.inject(1, { kind: 'ioctl', ioctl: 'MEMORY', errno: Errno.ENOMEM });
    await catches(expectServes, node, /expected -12 to be/);
    expectServes();
    const other = await TestNodeServer.start({ cards: 2 });
    const client = connectEmulatedNode(other.socketPath);
    await other.stop();
    await catches(expectServes, client, /node server/);
    client.close();
  });
});

describe('the bounds of a node server', () => {
  it('has a bounded number of clients, and refuses the next with the reason', async () => {
    const clients: RemoteNode[] = [];
    // The client of this file counts.
    for (let i = 1; i < CLIENTS_MAX; i++) clients.push(connectEmulatedNode(server.socketPath));
    expect(() => connectEmulatedNode(server.socketPath)).toThrow(
      expect.objectContaining({ code: 'ERR_NODE_REFUSED', message: expect.stringContaining(`${CLIENTS_MAX} clients`) }),
    );
    clients.pop()!.close();
    await vi.waitFor(() => clients.push(connectEmulatedNode(server.socketPath)));
    for (const client of clients) client.close();
    await vi.waitFor(() => expect(node.status().clients).toHaveLength(1));
  });

  it('evict the oldest silent connections, and others are served', async () => {
    const silent: UnixSocket[] = [];
    const connectSilent = (): void => {
      const socket = connectUnix(server.socketPath, SocketType.SEQPACKET);
      silent.push(socket);
    };
    const hasEnded = ({ fd }: UnixSocket): boolean => (pollNow(fd, PollEvent.IN) & PollEvent.HUP) !== 0;
    for (let i = 0; i < 2 * CLIENTS_MAX; i++) {
      connectSilent();
      // Also while they connect.
      if (i % 16 === 0) connectEmulatedNode(server.socketPath).close();
    }
    connectEmulatedNode(server.socketPath).close();
    // This process has half of the places.
    await vi.waitFor(() => expect(silent.filter(hasEnded).length).toBeGreaterThanOrEqual(1.5 * CLIENTS_MAX));
    expect(hasEnded(silent.at(-1)!)).toBe(false);
    for (const socket of silent) socket.close();
    await vi.waitFor(() => expect(node.status().clients).toHaveLength(1));
  });

  it('opens a bounded number of files for a client, then EMFILE', () => {
    const files = Array.from({ length: FILES_PER_CLIENT_MAX }, () => node.openControl(0));
    expect(() => node.openControl(0)).toThrow(/EMFILE.*64 open files/);
    for (const file of files) file.close();
    node.openControl(0).close();
  });
});

describe('a restore phase', () => {
  it('that hangs does not block others, and ends with ENOEXEC', () => {
    node.inject(0, { kind: 'hang' });
    const client = new DriverClient(node.open(0));
    const host = mapAnonymous(4096);
    const va = client.mapHost(host.address, 4096).out;
    writeNop(new Uint32Array(host.buffer), 0, packetCtl(PacketOpcode.NOP));
    client.writeChunks([{ queue: 0, cb: va, byteLength: 8 }]);
    const chunks = BigInt(client.dataAddress);
    const restore = { chunks_restore: chunks, num_chunks_restore: 1, cs_flags: HL_CS_FLAGS.FORCE_RESTORE };
    expect(client.cs({ ...restore, chunks_execute: chunks, num_chunks_execute: 1 }).result).toBe(-Errno.ENOEXEC);
    expectServes();
    client.close();
    host.close();
  });
});

describe('an event fd', () => {
  it('of a client is signalled by the server, and closed with the file', async () => {
    const client = new DriverClient(node.open(0));
    const event = new EventFd();
    expect(client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(0);
    expect(client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(-Errno.EINVAL);
    node.inject(0, { kind: 'hard-reset' });
    await vi.waitFor(() => expect(event.tryRead()).toBeGreaterThan(0));
    client.close();
    event.close();
  });
});

/** MAP of host memory that is backed by a file. */
function pinMessage(file: number, byteLength: number): object {
  const words = new Uint32Array(10);
  words[HL_MEM_ARGS.in.words.map_host_host_virt_addr] = 0x10000;
  words[HL_MEM_ARGS.in.words.map_host_mem_size] = byteLength;
  words[HL_MEM_ARGS.in.words.op] = HL_MEM_OP.MAP;
  words[HL_MEM_ARGS.in.words.flags] = HL_MEM.USERPTR;
  return { op: 'ioctl', file, request: DRM_IOCTLS.MEMORY, address: 4096, words: [...words], offset: 0 };
}
