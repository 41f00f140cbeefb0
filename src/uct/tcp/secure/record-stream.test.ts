import { afterEach, describe, expect, it } from 'vitest';
import {
  allocateScratch,
  Errno,
  scratchStatistics,
  tcpAccept,
  tcpClose,
  tcpConnect,
  tcpListen,
  tcpLocalAddress,
  tcpRecv,
  tcpSend,
  tcpSocket,
} from '../../../sys/index.ts';
import {
  RECORD_BYTES_MAX,
  RECORD_KEY_BYTES,
  RECORD_OVERHEAD_BYTES,
  RECORD_PLAIN_BYTES_MAX,
  RecordCipher,
  RecordStream,
} from './session.ts';

const SECRET = Buffer.from(Array.from({ length: RECORD_KEY_BYTES }, (_, i) => i));
const TEXT = Uint8Array.from({ length: 1000 }, (_, i) => i * 7);

function record(cipher: RecordCipher, plain: Uint8Array = TEXT): Uint8Array {
  const target = new Uint8Array(plain.byteLength + RECORD_OVERHEAD_BYTES);
  expect(cipher.seal(plain, target)).toBe(target.byteLength);
  return target;
}

describe('records', () => {
  it('open in their order, also when the key changes, and hide their plaintext', () => {
    const [sealing, opening] = [new RecordCipher(SECRET, 3), new RecordCipher(SECRET, 3)];
    const seen = new Set<string>();
    for (let i = 0; i < 20; i++) {
      const sealed = record(sealing);
      seen.add(Buffer.from(sealed).toString('hex'));
      expect(Buffer.from(sealed).includes(Buffer.from(TEXT.subarray(0, 8)))).toBe(false);
      expect(Buffer.from(opening.open(sealed)!).equals(TEXT)).toBe(true);
    }
    expect(seen.size).toBe(20);
  });

  it('change the key after a number of records', () => {
    const [sealing, opening] = [new RecordCipher(SECRET, 3), new RecordCipher(SECRET, 4)];
    for (let i = 0; i < 3; i++) expect(opening.open(record(sealing))).toBeDefined();
    expect(opening.open(record(sealing))).toBeUndefined();
  });

  it('do not open if changed, repeated, reordered or truncated', () => {
    const plain = TEXT.subarray(0, 16);
    const bits = (plain.byteLength + RECORD_OVERHEAD_BYTES) * 8;
    for (let bit = 0; bit < bits; bit++) {
      const changed = record(new RecordCipher(SECRET), plain);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      expect(new RecordCipher(SECRET).open(changed)).toBeUndefined();
    }
    const sealing = new RecordCipher(SECRET);
    const [first, second] = [record(sealing), record(sealing)];
    expect(new RecordCipher(SECRET).open(second)).toBeUndefined();
    const opening = new RecordCipher(SECRET);
    expect(opening.open(first)).toBeDefined();
    expect(opening.open(first)).toBeUndefined();
    expect(new RecordCipher(SECRET).open(first.subarray(0, -1))).toBeUndefined();
    expect(new RecordCipher(SECRET).open(first.subarray(0, 5))).toBeUndefined();
  });
});

describe('a socket of records', () => {
  const memory = allocateScratch(65_536);
  const sockets: number[] = [];
  const streams: RecordStream[] = [];
  afterEach(() => {
    for (const stream of streams.splice(0)) stream.close();
    for (const fd of sockets.splice(0)) tcpClose(fd);
  });

  /** Returns a socket, and a stream of records at its other end. */
  async function pair(): Promise<{ fd: number; stream: RecordStream; other: RecordStream }> {
    const listening = tcpListen({ address: '127.0.0.1', port: 0 }, 1);
    const fd = tcpSocket(2);
    tcpConnect(fd, tcpLocalAddress(listening));
    let accepted = -1;
    while (accepted < 0) {
      accepted = tcpAccept(listening);
      await new Promise(setImmediate);
    }
    sockets.push(listening, fd, accepted);
    const stream = new RecordStream(accepted, new RecordCipher(SECRET), new RecordCipher(SECRET));
    const other = new RecordStream(fd, new RecordCipher(SECRET), new RecordCipher(SECRET));
    streams.push(stream, other);
    return { fd, stream, other };
  }

  async function received(stream: RecordStream, target: Uint8Array): Promise<number> {
    for (;;) {
      const count = stream.receive(target, 8);
      if (count !== -Errno.EAGAIN) return count;
      await new Promise(setImmediate);
    }
  }

  it('has memory until it is closed', () => {
    const { liveBytes } = scratchStatistics();
    const stream = new RecordStream(-1, new RecordCipher(SECRET), new RecordCipher(SECRET));
    expect(scratchStatistics().liveBytes).toBeGreaterThan(liveBytes);
    stream.close();
    stream.close();
    expect(scratchStatistics().liveBytes).toBe(liveBytes);
  });

  it('delivers whole records, also if bytes arrive one by one', async () => {
    const { fd, stream } = await pair();
    const sealed = record(new RecordCipher(SECRET));
    const target = new Uint8Array(RECORD_BYTES_MAX);
    memory.u8.set(sealed);
    for (let i = 0; i < sealed.byteLength; i++) {
      expect(stream.receive(target, 8)).toBe(-Errno.EAGAIN);
      while (tcpSend(fd, memory.address + i, 1) !== 1);
    }
    expect(await received(stream, target)).toBe(TEXT.byteLength);
    expect(target.subarray(8, 8 + TEXT.byteLength)).toEqual(TEXT);
  });

  it.each([
    ['has length zero', 0],
    ['is too long', RECORD_PLAIN_BYTES_MAX + 1],
  ])('rejects a record that %s according to its header', async (_name, byteLength) => {
    const { fd, stream } = await pair();
    memory.view.setUint32(0, byteLength, true);
    tcpSend(fd, memory.address, 4);
    expect(await received(stream, new Uint8Array(RECORD_BYTES_MAX))).toBe(-Errno.EBADMSG);
    expect(stream.violation).toMatch(/with an invalid length/);
  });

  it('rejects a record that was changed', async () => {
    const { fd, stream } = await pair();
    const sealed = record(new RecordCipher(SECRET));
    sealed[500]! ^= 1;
    memory.u8.set(sealed);
    tcpSend(fd, memory.address, sealed.byteLength);
    expect(await received(stream, new Uint8Array(RECORD_BYTES_MAX))).toBe(-Errno.EBADMSG);
    expect(stream.violation).toMatch(/was changed/);
  });

  it('counts a record as sent when all of it is sent, and loses nothing while the socket is full', async () => {
    const { fd, stream, other } = await pair();
    const plain = memory.u8.subarray(0, RECORD_PLAIN_BYTES_MAX + 100);
    plain.fill(5);
    let sent = 0;
    while (!other.isPending) {
      expect(other.add(memory.address, plain.byteLength)).toBe(RECORD_PLAIN_BYTES_MAX);
      const count = other.flush();
      if (count > 0) sent += count;
      else expect([count, other.isPending]).toEqual([-Errno.EAGAIN, true]);
    }
    const target = new Uint8Array(RECORD_BYTES_MAX);
    let count = 0;
    while (count < sent + RECORD_PLAIN_BYTES_MAX) {
      if (other.isPending) other.flush();
      count += await received(stream, target);
      expect(target.subarray(8, 8 + RECORD_PLAIN_BYTES_MAX).every((byte) => byte === 5)).toBe(true);
    }
    expect([other.isPending, tcpRecv(fd, memory.address, 1)]).toEqual([false, -Errno.EAGAIN]);
  });
});
