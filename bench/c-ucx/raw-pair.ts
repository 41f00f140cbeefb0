/**
 * What bounds tests of perftest on this machine, without any of the stack: two processes that exchange words in shared memory, copy, or send over a socket by
 * the calls that the transports use. A server and a client with the arguments and the CSV of perftest.
 */

import { parseArgs } from 'node:util';
import {
  close,
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
  tcpIsEstablished,
  tcpListen,
  tcpRecv,
  tcpSend,
  tcpSocket,
} from '../../src/sys/index.ts';
import { AddressFamily } from '../../src/sys/socket/inet-address.ts';

/** Bytes of the memory that both processes map: a ring, and the range that is copied. */
const WINDOW_BYTES = 2 ** 21;
const COPIED = 2 ** 20;
/** Slots of the ring, one cache line each: two words of data and the number of the message. */
const SLOTS = 1024;
const SLOT_WORDS = 16;
const SEQUENCE = 2;
/** Word with the number of messages that were taken, behind the ring. */
const TAKEN = SLOTS * SLOT_WORDS;
/** Words of the ping-pong: one for each direction, in lines that no processor fetches together. */
const PING = TAKEN + 64;
const PONG = PING + 64;
const REQUEST_WORDS = 4;

/** The primitives, by what a test of perftest does most. */
export const PRIMITIVES = ['words', 'ring', 'stores', 'copy', 'socket-lat', 'socket-bw'] as const;
export type Primitive = (typeof PRIMITIVES)[number];

/** A socket, as the tcp transport uses it. */
class Wire {
  readonly #fd: number;
  readonly memory: MappedMemory;

  constructor(fd: number, byteLength: number) {
    this.#fd = fd;
    this.memory = mapAnonymous(Math.max(4096, byteLength), { populate: true });
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

/** One side of a primitive: `count` operations of `byteLength` bytes. */
function run(name: Primitive, isClient: boolean, wire: Wire, window: MappedMemory, bytes: number, count: number): void {
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
    case 'copy':
      if (isClient) copyOften(window, wire.memory.u8.subarray(0, bytes), count);
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
      // What was sent counts when it has arrived.
      if (isClient) wire.receive(1);
      else wire.send(1);
  }
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

function copyOften(window: MappedMemory, target: Uint8Array, count: number): void {
  const source = window.u8.subarray(COPIED, COPIED + target.byteLength);
  for (let i = 0; i < count; i++) target.set(source);
}

/** Waits for a client, which says what to run, and runs it twice: the warm-up, and what is timed. */
function serve(port: number): void {
  const listener = tcpListen({ address: '127.0.0.1', port }, 1);
  let fd = tcpAccept(listener);
  while (fd === -Errno.EAGAIN) fd = tcpAccept(listener);
  tcpClose(listener);
  const shared = mapShareable(WINDOW_BYTES);
  const window = mapFile(shared.fd, WINDOW_BYTES, 0);
  const wire = new Wire(fd, COPIED);
  const message = new Int32Array(wire.memory.buffer, 0, REQUEST_WORDS);
  message.set([process.pid, shared.fd]);
  wire.send(REQUEST_WORDS * 4);
  wire.receive(REQUEST_WORDS * 4);
  const [name, bytes, warmUp, count] = [...message] as [number, number, number, number];
  for (const each of [warmUp, count]) run(PRIMITIVES[name]!, false, wire, window, bytes, each);
  wire.receive(1);
  wire.close();
  window.close();
  shared.close();
}

/** Seconds of `count` operations, after a warm-up. */
function time(port: number, name: Primitive, bytes: number, warmUp: number, count: number): number {
  const fd = tcpSocket(AddressFamily.INET);
  tcpConnect(fd, { address: '127.0.0.1', port });
  while (!tcpIsEstablished(fd));
  const wire = new Wire(fd, COPIED);
  const message = new Int32Array(wire.memory.buffer, 0, REQUEST_WORDS);
  wire.receive(REQUEST_WORDS * 4);
  const file = open(`/proc/${message[0]}/fd/${message[1]}`, OpenFlag.RDWR);
  const window = mapFile(file, WINDOW_BYTES, 0);
  close(file);
  window.u8.fill(1, COPIED);
  message.set([PRIMITIVES.indexOf(name), bytes, warmUp, count]);
  wire.send(REQUEST_WORDS * 4);
  run(name, true, wire, window, bytes, warmUp);
  const begin = process.hrtime.bigint();
  run(name, true, wire, window, bytes, count);
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  wire.send(1);
  wire.close();
  window.close();
  return seconds;
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
