/**
 * What bounds tests of perftest on this machine, without any of the stack: two processes that exchange words in shared memory, copy, or send over a socket by
 * the calls that the transports use. A server and a client with the arguments and the CSV of perftest.
 */

import { parseArgs } from 'node:util';
import {
  AddressFamily,
  close as closeDescriptor,
  Errno,
  type MappedMemory,
  mapAnonymous,
  mapFile,
  mapShareable,
  OpenFlag,
  open,
  SocketOption,
  schedSetAffinity,
  setParentDeathSignal,
  setSocketOption,
  tcpAccept,
  tcpClose,
  tcpConnect,
  tcpError,
  tcpIsEstablished,
  tcpListen,
  tcpRecv,
  tcpSend,
  tcpSocket,
} from '../../src/sys/index.ts';

/** Fragments of host memory through which device memory is staged: as many, and as large, as UCX_RNDV_FRAG_SIZE and UCX_RNDV_FRAG_ALLOC_COUNT have them. */
const FRAGMENTS = 16;
const FRAGMENT_BYTES = 2 ** 19;
/** Memory that both processes map: a ring of messages, and fragments. */
const FRAGMENTS_AT = 2 ** 20;
const WINDOW_BYTES: number = FRAGMENTS_AT + FRAGMENTS * FRAGMENT_BYTES;
/** Slots of the ring, one cache line each: two words of data and the number of the message. */
const SLOTS = 1024;
const SLOT_WORDS = 16;
const SEQUENCE = 2;
/** Word with the number of messages that were taken, behind the ring. */
const TAKEN = SLOTS * SLOT_WORDS;
/** Words of the ping-pong: one for each direction, in lines that no processor fetches together. */
const PING = TAKEN + 64;
const PONG = PING + 64;
/** Words with the number of fragments that were filled, and taken. */
const FILLED = PONG + 64;
const EMPTIED = FILLED + 64;
const REQUEST_WORDS = 4;

/** The primitives, by what a test of perftest does most. */
export const PRIMITIVES = [
  'words',
  'ring',
  'stores',
  'atomics',
  'copy',
  'fragments',
  'socket-lat',
  'socket-bw',
  'socket-fragments',
] as const;
export type Primitive = (typeof PRIMITIVES)[number];

/** A socket, as the tcp transport uses it. */
class Wire {
  readonly #fd: number;
  /** What is sent and received. */
  readonly memory: MappedMemory;

  constructor(fd: number) {
    this.#fd = fd;
    this.memory = mapAnonymous(2 ** 20, { populate: true });
    setSocketOption(fd, SocketOption.NODELAY, 1);
  }

  send(byteLength: number): void {
    const { address } = this.memory;
    for (let done = 0; done < byteLength; ) done += moved(tcpSend(this.#fd, address + done, byteLength - done));
  }

  receive(byteLength: number): void {
    const { address } = this.memory;
    for (let done = 0; done < byteLength; ) done += moved(tcpRecv(this.#fd, address + done, byteLength - done));
  }

  close(): void {
    tcpClose(this.#fd);
    this.memory.close();
  }
}

function moved(result: number): number {
  if (result > 0) return result;
  if (result !== -Errno.EAGAIN) throw new Error(`socket: ${result}`);
  return 0;
}

/** One of the two processes. */
interface Side {
  readonly isClient: boolean;
  readonly wire: Wire;
  /** Memory that both map. */
  readonly window: MappedMemory;
  /** Memory of this process in the place of that of a card. */
  readonly device: MappedMemory;
}

/** One side of a primitive: `count` operations of `byteLength` bytes. */
function run(side: Side, name: Primitive, bytes: number, count: number): void {
  const { isClient, wire, window } = side;
  const words = new Int32Array(window.buffer);
  switch (name) {
    case 'words':
      exchangeWords(words, isClient, count);
      break;
    case 'ring':
      if (isClient) fillRing(words, count);
      else drainRing(words, count);
      break;
    case 'stores':
      if (isClient) for (let i = 0; i < count; i++) storeTwo(words, i);
      break;
    case 'atomics':
      if (isClient) addOften(new BigInt64Array(window.buffer), count);
      break;
    case 'copy':
      if (isClient) copyOften(window, wire.memory.u8.subarray(0, bytes), count);
      break;
    case 'fragments':
      if (isClient) fillFragments(side, bytes, count);
      else drainFragments(side, bytes, count);
      break;
    case 'socket-lat':
      for (let i = 0; i < count; i++) {
        if (isClient) wire.send(bytes);
        wire.receive(bytes);
        if (!isClient) wire.send(bytes);
      }
      break;
    case 'socket-bw':
      for (let i = 0; i < count; i++) {
        if (isClient) wire.send(bytes);
        else wire.receive(bytes);
      }
      confirm(side);
      break;
    case 'socket-fragments':
      moveStaged(side, bytes, count);
      confirm(side);
  }
}

/** Waits until the sent bytes have arrived: only then do they count. */
function confirm({ isClient, wire }: Side): void {
  if (isClient) wire.receive(1);
  else wire.send(1);
}

function exchangeWords(words: Int32Array, isClient: boolean, count: number): void {
  const [own, other] = isClient ? [PING, PONG] : [PONG, PING];
  const base = Atomics.load(words, own);
  for (let i = base + 1; i <= base + count; i++) {
    if (isClient) Atomics.store(words, own, i);
    while (Atomics.load(words, other) !== i);
    if (!isClient) Atomics.store(words, own, i);
  }
}

function fillRing(words: Int32Array, count: number): void {
  const base = Atomics.load(words, TAKEN);
  for (let i = base + 1; i <= base + count; i++) {
    while (i - Atomics.load(words, TAKEN) > SLOTS);
    const slot = (i % SLOTS) * SLOT_WORDS;
    words[slot] = i;
    words[slot + 1] = i;
    Atomics.store(words, slot + SEQUENCE, i);
  }
  while (Atomics.load(words, TAKEN) !== base + count);
}

function drainRing(words: Int32Array, count: number): void {
  const base = Atomics.load(words, TAKEN);
  let sum = 0;
  for (let i = base + 1; i <= base + count; i++) {
    const slot = (i % SLOTS) * SLOT_WORDS;
    while (Atomics.load(words, slot + SEQUENCE) !== i);
    sum = (sum + words[slot]! + words[slot + 1]!) | 0;
    if (i % (SLOTS / 4) === 0 || i === base + count) Atomics.store(words, TAKEN, i);
  }
  words[PONG + 1] = sum;
}

function storeTwo(words: Int32Array, value: number): void {
  words[PING] = value;
  words[PING + 1] = value;
}

function addOften(words: BigInt64Array, count: number): void {
  let sum = 0n;
  for (let i = 0; i < count; i++) sum = Atomics.add(words, PING / 2, 1n);
  words[PONG / 2] = sum;
}

function copyOften(window: MappedMemory, target: Uint8Array, count: number): void {
  const source = window.u8.subarray(FRAGMENTS_AT, FRAGMENTS_AT + target.byteLength);
  for (let i = 0; i < count; i++) target.set(source);
}

/** Views of the fragments of a message, in memory of this process. */
function piecesOf({ device }: Side, bytes: number): readonly Uint8Array[] {
  const each = Math.min(bytes, FRAGMENT_BYTES);
  return Array.from({ length: bytes / each }, (_, i) => device.u8.subarray(i * each, (i + 1) * each));
}

/** The fragments, as long as the message if that is shorter. */
function fragmentsOf({ window }: Side, bytes: number): readonly Uint8Array[] {
  const each = Math.min(bytes, FRAGMENT_BYTES);
  return Array.from({ length: FRAGMENTS }, (_, i) =>
    window.u8.subarray(FRAGMENTS_AT + i * FRAGMENT_BYTES, FRAGMENTS_AT + i * FRAGMENT_BYTES + each),
  );
}

function fillFragments(side: Side, bytes: number, count: number): void {
  const words = new Int32Array(side.window.buffer);
  const [pieces, fragments] = [piecesOf(side, bytes), fragmentsOf(side, bytes)];
  let filled = Atomics.load(words, FILLED);
  for (let i = 0; i < count; i++) {
    for (const piece of pieces) {
      while (filled - Atomics.load(words, EMPTIED) === FRAGMENTS);
      fragments[filled % FRAGMENTS]!.set(piece);
      filled += 1;
      Atomics.store(words, FILLED, filled);
    }
  }
  while (Atomics.load(words, EMPTIED) !== filled);
}

function drainFragments(side: Side, bytes: number, count: number): void {
  const words = new Int32Array(side.window.buffer);
  const [pieces, fragments] = [piecesOf(side, bytes), fragmentsOf(side, bytes)];
  let emptied = Atomics.load(words, EMPTIED);
  for (let i = 0; i < count; i++) {
    for (const piece of pieces) {
      while (Atomics.load(words, FILLED) === emptied);
      piece.set(fragments[emptied % FRAGMENTS]!);
      emptied += 1;
      Atomics.store(words, EMPTIED, emptied);
    }
  }
}

/** Sends or receives messages by fragments, with the copy between each and the memory of a card. */
function moveStaged(side: Side, bytes: number, count: number): void {
  const { isClient, wire } = side;
  const fragment = wire.memory.u8.subarray(0, FRAGMENT_BYTES);
  const pieces = piecesOf(side, bytes);
  for (let i = 0; i < count; i++) {
    for (const piece of pieces) {
      if (isClient) {
        fragment.set(piece);
        wire.send(FRAGMENT_BYTES);
      } else {
        wire.receive(FRAGMENT_BYTES);
        piece.set(fragment);
      }
    }
  }
}

/** Waits for a client, which says what to run, and runs it twice: the warm-up, and what is timed. */
function serve(port: number): void {
  const listener = tcpListen({ address: '127.0.0.1', port }, 1);
  let fd = tcpAccept(listener);
  while (fd === -Errno.EAGAIN) fd = tcpAccept(listener);
  tcpClose(listener);
  const shared = mapShareable(WINDOW_BYTES);
  const window = mapFile(shared.fd, WINDOW_BYTES, 0);
  const wire = new Wire(fd);
  const message = new Int32Array(wire.memory.buffer, 0, REQUEST_WORDS);
  message.set([process.pid, shared.fd]);
  wire.send(REQUEST_WORDS * 4);
  wire.receive(REQUEST_WORDS * 4);
  const [name, bytes, warmUp, count] = [...message] as [number, number, number, number];
  const side = { isClient: false, wire, window, device: deviceMemory(bytes) };
  for (const each of [warmUp, count]) run(side, PRIMITIVES[name]!, bytes, each);
  wire.receive(1);
  close(side);
  shared.close();
}

/** Seconds of `count` operations, after a warm-up. */
function time(port: number, name: Primitive, bytes: number, warmUp: number, count: number): number {
  const fd = tcpSocket(AddressFamily.INET);
  tcpConnect(fd, { address: '127.0.0.1', port });
  while (!tcpIsEstablished(fd)) {
    const errno = tcpError(fd);
    if (errno !== 0) throw new Error(`no server at port ${port}: ${errno}`);
  }
  const wire = new Wire(fd);
  const message = new Int32Array(wire.memory.buffer, 0, REQUEST_WORDS);
  wire.receive(REQUEST_WORDS * 4);
  const file = open(`/proc/${message[0]}/fd/${message[1]}`, OpenFlag.RDWR);
  const window = mapFile(file, WINDOW_BYTES, 0);
  closeDescriptor(file);
  window.u8.fill(1, FRAGMENTS_AT);
  const side = { isClient: true, wire, window, device: deviceMemory(bytes) };
  message.set([PRIMITIVES.indexOf(name), bytes, warmUp, count]);
  wire.send(REQUEST_WORDS * 4);
  run(side, name, bytes, warmUp);
  const begin = process.hrtime.bigint();
  run(side, name, bytes, count);
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  wire.send(1);
  close(side);
  return seconds;
}

function deviceMemory(bytes: number): MappedMemory {
  const device = mapAnonymous(Math.max(4096, bytes), { populate: true });
  device.u8.fill(2);
  return device;
}

function close({ wire, window, device }: Side): void {
  for (const each of [wire, window, device]) each.close();
}

/** Run as a process of `runPair`. */
if (import.meta.filename === process.argv[1]) {
  setParentDeathSignal();
  const { values, positionals } = parseArgs({
    options: {
      p: { type: 'string', short: 'p' },
      c: { type: 'string', short: 'c' },
      t: { type: 'string', short: 't' },
      s: { type: 'string', short: 's' },
      n: { type: 'string', short: 'n' },
      w: { type: 'string', short: 'w' },
      f: { type: 'boolean', short: 'f' },
      v: { type: 'boolean', short: 'v' },
    },
    allowPositionals: true,
  });
  const port = Number(values.p);
  if (values.c !== undefined) schedSetAffinity(0, [Number(values.c)]);
  if (positionals.length === 0) serve(port);
  else {
    const [bytes, count] = [Number(values.s), Number(values.n)];
    const seconds = time(port, values.t as Primitive, bytes, Number(values.w), count);
    const rate = count / seconds;
    const isPingPong = values.t === 'words' || values.t === 'socket-lat';
    const latencyUs = (seconds / count / (isPingPong ? 2 : 1)) * 1e6;
    // The columns of perftest's CSV that are read.
    console.log([count, 0, 0, latencyUs, 0, (rate * bytes) / 2 ** 20, 0, rate].join(','));
  }
}
