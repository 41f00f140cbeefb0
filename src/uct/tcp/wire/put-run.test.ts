/** Puts of a list leave in runs: whatever their lengths, every byte arrives, and every put ends once. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { keyFile } from '../../../../test/fixtures/transports/key-files.ts';
import { keyed, TcpInterfaces, type TcpSide } from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, UctEndpoint } from '../../api/iface.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import type { TcpEndpoint } from '../endpoint.ts';
import type { TcpKey } from '../key.ts';
import { FrameType } from '../layout.ts';

const SOURCE_BYTES = 400_000;

interface Ends {
  readonly own: TcpSide;
  readonly peer: TcpSide;
  readonly endpoint: UctEndpoint;
}

/** Counts its end. */
class Counted implements Completion {
  count = 1;
  failure: Status = Status.OK;
  ends = 0;

  onComplete(): void {
    this.ends += 1;
  }
}

it('a put does not continue the rest of another frame, whatever that looks like', async () => {
  const net = new TcpInterfaces();
  const [own, peer] = [net.open({ SNDBUF: '64k' }), net.open()];
  const endpoint = own.iface.connect(peer.iface.address) as TcpEndpoint;
  await net.until([own, peer], () => endpoint.amShort(1, new Int32Array(2), 2, undefined, 0, 0) === Status.OK);
  const { memory: source } = keyed(own, 64);
  const { memory: target, key } = keyed(peer, 64);
  // Words that look like a run, wherever the kernel cuts the message at a word.
  const message = new Uint8Array(new Int32Array(10_000).fill(FrameType.PUT_RUN).buffer);
  const arrived = (): Uint8Array[] => peer.messages.filter(({ id }) => id === 2).map(({ bytes }) => bytes);
  let sent = 0;
  for (let round = 1; round <= 20; round++) {
    for (; !endpoint.link.transmitter.isBlocked; sent++)
      expect(endpoint.amShort(2, new Int32Array(2), 2, message, 0, message.byteLength)).toBe(Status.OK);
    source.bytes.fill(round);
    endpoint.cork();
    const completion = new Counted();
    const iov = [{ memory: source, offset: 0, byteLength: 64 }];
    expect(endpoint.putZcopy(iov, 0, key, completion)).toBe(Status.INPROGRESS);
    endpoint.uncork();
    await net.until([own, peer], () => completion.ends === 1);
    expect(target.bytes.every((byte) => byte === round)).toBe(true);
    expect(arrived()).toHaveLength(sent);
    for (const bytes of arrived()) expect(Buffer.compare(bytes.subarray(8), message)).toBe(0);
    peer.messages.length = 0;
    sent = 0;
  }
});

describe.each([
  ['in the clear', {}],
  ['encrypted', { SECURITY: 'encrypt', KEY_FILE: keyFile() }],
  ['with short buffers', { SNDBUF: '64k', RCVBUF: '64k', RX_SEG_SIZE: '1k', TX_SEG_SIZE: '1k' }],
] as const)('runs of puts %s', (_name, config) => {
  const net = new TcpInterfaces();

  async function connected(): Promise<Ends> {
    const [own, peer] = [net.open(config), net.open(config)];
    const endpoint = own.iface.connect(peer.iface.address);
    const greeting = new Int32Array(2);
    await net.until([own, peer], () => endpoint.amShort(1, greeting, 2, undefined, 0, 0) === Status.OK);
    return { own, peer, endpoint };
  }

  /** Starts puts together; those that find no room start later. */
  async function putAll(
    { own, peer, endpoint }: Ends,
    [source, key]: readonly [HostMemory, TcpKey],
    lengths: readonly number[],
  ): Promise<Counted[]> {
    const completions: Counted[] = [];
    let offset = 0;
    let next = 0;
    while (next < lengths.length) {
      endpoint.cork!();
      for (; next < lengths.length; next++) {
        const byteLength = lengths[next]!;
        const completion = new Counted();
        const iov = [{ memory: source, offset, byteLength }];
        const status = endpoint.putZcopy(iov, offset, key, completion);
        if (status === Status.NO_RESOURCE) break;
        expect(status).toBe(Status.INPROGRESS);
        completions.push(completion);
        offset += byteLength;
      }
      endpoint.uncork!();
      own.iface.progress();
      peer.iface.progress();
    }
    await net.until([own, peer], () => completions.every(({ ends }) => ends > 0));
    return completions;
  }

  it('bring every byte, and end every put once', { timeout: 60_000 }, async () => {
    const ends = await connected();
    const { memory: source } = keyed(ends.own, SOURCE_BYTES);
    for (let i = 0; i < SOURCE_BYTES; i++) source.bytes[i] = i * 31 + (i >> 8);
    const { memory: target, key } = keyed(ends.peer, SOURCE_BYTES);
    const length = fc.oneof(
      fc.integer({ min: 0, max: 40 }),
      fc.integer({ min: 0, max: 9000 }),
      fc.constantFrom(0, 8, 16_384, 131_072, 131_073),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(length, { maxLength: 200 }), async (lengths) => {
        const kept: number[] = [];
        let sum = 0;
        for (const byteLength of lengths) {
          if (sum + byteLength > SOURCE_BYTES) continue;
          kept.push(byteLength);
          sum += byteLength;
        }
        target.bytes.fill(0);
        const completions = await putAll(ends, [source, key], kept);
        expect(completions.every(({ ends: times, failure }) => times === 1 && failure === Status.OK)).toBe(true);
        expect(Buffer.compare(target.bytes.subarray(0, sum), source.bytes.subarray(0, sum))).toBe(0);
        expect(target.bytes.subarray(sum).every((byte) => byte === 0)).toBe(true);
      }),
      { numRuns: 40 },
    );
  });

  it('refuse the puts whose memory has gone, and no others', async () => {
    const ends = await connected();
    const { memory: source } = keyed(ends.own, 64);
    source.bytes.fill(5);
    const gone = keyed(ends.peer, 64);
    const { memory: target, key } = keyed(ends.peer, 64);
    const keys = [key, gone.key, key, key, gone.key];
    const completions = keys.map(() => new Counted());
    ends.endpoint.cork!();
    for (const [i, completion] of completions.entries()) {
      const iov = [{ memory: source, offset: 0, byteLength: 8 }];
      expect(ends.endpoint.putZcopy(iov, i * 8, keys[i]!, completion)).toBe(Status.INPROGRESS);
    }
    ends.endpoint.uncork!();
    ends.peer.md.memFree(gone.memory);
    await net.until([ends.own, ends.peer], () => completions.every(({ ends: times }) => times > 0));
    expect(completions.map(({ failure }) => failure)).toEqual(
      keys.map((each) => (each === key ? Status.OK : Status.INVALID_ADDR)),
    );
    const written = [0, 2, 3];
    for (let i = 0; i < 8; i++) {
      expect(target.bytes.subarray(i * 8, i * 8 + 8).every((byte) => byte === (written.includes(i) ? 5 : 0))).toBe(
        true,
      );
    }
  });
});
