/** Buffers of the program that are detached while a connection sends them: the operation fails, and the connection continues. */

import { describe, expect, it } from 'vitest';
import { CountingCompletion } from '../../../../test/contract/uct/uct-fixture.ts';
import { keyFile } from '../../../../test/fixtures/transports/key-files.ts';
import { keyed, keyOf, TcpInterfaces, type TcpSide } from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { UctEndpoint } from '../../api/iface.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import type { TcpEndpoint } from '../endpoint.ts';

/** More than the buffers of both sockets can hold. */
const LONG_BYTES = 8 * 2 ** 20;
const MESSAGE_BYTES = 30_001;
const HEADER = new Int32Array(8);
const BUFFERS = { SNDBUF: '16k' };

const net = new TcpInterfaces();

/** Returns a registered buffer, all of whose bytes are 7. */
function registered({ md }: TcpSide, byteLength: number): HostMemory {
  return md.memReg(new Uint8Array(new ArrayBuffer(byteLength)).fill(7)) as HostMemory;
}

function detach({ bytes }: HostMemory): void {
  const { buffer } = bytes;
  structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });
}

describe.each([
  ['plain', BUFFERS],
  ['encrypted', { ...BUFFERS, SECURITY: 'encrypt', KEY_FILE: keyFile() }],
])('over a %s connection', (_name, config) => {
  async function connected(): Promise<{ one: TcpSide; two: TcpSide; endpoint: UctEndpoint }> {
    const [one, two] = [net.open(config), net.open(config)];
    const endpoint = one.iface.connect(two.iface.address);
    await net.until([one, two], () => endpoint.amShort(1, HEADER, 2, undefined, 0, 0) === Status.OK);
    await net.until([one, two], () => two.messages.splice(0).length === 1);
    return { one, two, endpoint };
  }

  /** Checks that a message and a get succeed: the frames after a truncated one are parsed correctly. */
  async function expectAlive(one: TcpSide, two: TcpSide, endpoint: UctEndpoint): Promise<void> {
    expect([(endpoint as TcpEndpoint).link.state, one.failed, two.failed]).toEqual(['up', [], []]);
    two.messages.length = 0;
    const body = Uint8Array.of(3, 1, 4);
    await net.until([one, two], () => endpoint.amShort(2, HEADER, 0, body, 0, 3) === Status.OK);
    const target = keyed(one, 5000).memory;
    const source = registered(two, 5000);
    const get = new CountingCompletion();
    const iov = [{ memory: target, offset: 0, byteLength: 5000 }];
    expect(endpoint.getZcopy(iov, 0, keyOf(two.md, source), get)).toBe(Status.INPROGRESS);
    await net.until([one, two], () => get.calls === 1 && two.messages.length === 1);
    expect([get.failure, two.messages[0]!.bytes]).toEqual([Status.OK, body]);
    expect(target.bytes.every((byte) => byte === 7)).toBe(true);
  }

  it('a get fails if its source is detached after a part was sent', async () => {
    const { one, two, endpoint } = await connected();
    const source = registered(two, LONG_BYTES);
    const target = keyed(one, LONG_BYTES).memory;
    const get = new CountingCompletion();
    const iov = [{ memory: target, offset: 0, byteLength: LONG_BYTES }];
    expect(endpoint.getZcopy(iov, 0, keyOf(two.md, source), get)).toBe(Status.INPROGRESS);
    await net.until([one, two], () => target.bytes[0] === 7);
    expect(source.inFlight).toBe(1);
    detach(source);
    await net.until([one, two], () => get.calls === 1);
    expect([get.failure, target.bytes.at(-1)]).toEqual([Status.INVALID_ADDR, 0]);
    expect([source.inFlight, target.inFlight]).toEqual([0, 0]);
    await expectAlive(one, two, endpoint);
  });

  it('a put fails if its source is detached after a part was sent', async () => {
    const { one, two, endpoint } = await connected();
    const { memory, key } = keyed(two, LONG_BYTES);
    const source = registered(one, LONG_BYTES);
    const put = new CountingCompletion();
    const iov = [{ memory: source, offset: 0, byteLength: LONG_BYTES }];
    expect(endpoint.putZcopy(iov, 0, keyOf(two.md, memory), put)).toBe(Status.INPROGRESS);
    await net.until([one, two], () => memory.bytes[0] === 7);
    detach(source);
    await net.until([one, two], () => put.calls === 1);
    expect([put.failure, source.inFlight, key.live]).toEqual([Status.INVALID_ADDR, 0, true]);
    await expectAlive(one, two, endpoint);
  });

  it('queued messages fail, and exactly those that were sent arrive', async () => {
    const { one, two, endpoint } = await connected();
    const source = registered(one, MESSAGE_BYTES);
    const sent: CountingCompletion[] = [];
    const iov = [{ memory: source, offset: 0, byteLength: MESSAGE_BYTES }];
    for (;;) {
      const completion = new CountingCompletion();
      HEADER[0] = sent.length;
      if (endpoint.amZcopy!(3, HEADER, 2, iov, completion) !== Status.INPROGRESS) break;
      sent.push(completion);
    }
    const wasSent = sent.map(({ calls }) => calls === 1);
    expect(wasSent).toContain(false);
    detach(source);
    await net.until([one, two], () => sent.every(({ calls }) => calls === 1));
    const arrived = wasSent.filter(Boolean).length;
    const failures = sent.map(({ failure }) => failure);
    // An encrypted message may be complete in a record that is being sent.
    const good = failures.filter((failure) => failure === Status.OK).length;
    expect(good - arrived).toBeGreaterThanOrEqual(0);
    expect(good - arrived).toBeLessThanOrEqual(1);
    expect(failures.slice(good).every((failure) => failure === Status.INVALID_ADDR)).toBe(true);
    expect(failures.length).toBeGreaterThan(good);
    await net.until([one, two], () => two.messages.length === good);
    for (const [i, { bytes }] of two.messages.entries()) {
      expect([new Int32Array(bytes.slice(0, 4).buffer)[0], bytes.byteLength]).toEqual([i, MESSAGE_BYTES + 8]);
      expect(bytes.subarray(8).every((byte) => byte === 7)).toBe(true);
    }
    expect(source.inFlight).toBe(0);
    await expectAlive(one, two, endpoint);
    expect(two.messages).toHaveLength(1);
  });

  it('messages with a header of any length keep the alignment of later frames', async () => {
    const { one, two, endpoint } = await connected();
    const source = registered(one, 64);
    const lengths = Array.from({ length: 9 * 17 }, (_, i) => [i % 9, Math.floor(i / 9)] as const);
    for (const [words, byteLength] of lengths) {
      const completion = new CountingCompletion();
      const iov = [{ memory: source, offset: 0, byteLength }];
      expect(endpoint.amZcopy!(3, HEADER, words, iov, completion)).toBe(Status.INPROGRESS);
      await net.until([one, two], () => completion.calls === 1);
    }
    await net.until([one, two], () => two.messages.length === lengths.length);
    expect(two.messages.map(({ bytes }) => bytes.byteLength)).toEqual(
      lengths.map(([words, byteLength]) => words * 4 + byteLength),
    );
    await expectAlive(one, two, endpoint);
  });
});
