/**
 * Mutated messages between clients and listeners, also with valid checksums: they are refused with a reason, or read as valid messages. Never a
 * crash,
 * never more memory than a frame may have.
 */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { WireupCode, writeWireup } from '../../src/api/layout/control.ts';
import { NO_ENDPOINT } from '../../src/api/layout/frame.ts';
import { MessageId } from '../../src/api/layout/message.ts';
import { isUcxError, Status } from '../../src/index.ts';
import { packAcceptData, packConnectData, unpackAcceptData, unpackConnectData } from '../../src/ucp/wireup/sockets.ts';
import { createRandom, type Random } from '../../src/ucs/sys/random.ts';
import { CmFrameType, FRAME_BYTES_MAX, FrameReader, packFrame } from '../../src/uct/tcp/cm/layout.ts';
import { catches } from '../fixtures/catches.ts';
import { extent, timeLimit } from '../fixtures/extent.ts';
import { nativeWorker } from '../fixtures/libucp/native-engine.ts';
import { messageFrame } from '../fixtures/messages/message-frame.ts';
import { connectionKind, driveIdle, usePairs } from '../fixtures/pair.ts';

const SEED = Number(process.env['GAUDI_UCX_FUZZ_SEED'] ?? 20_240);
const ROUNDS = extent('GAUDI_UCX_FUZZ_ROUNDS', 3000, 100_000);
const TIMEOUT_MS = timeLimit(ROUNDS);
const AT_CHECKSUM = 12;

function mutated(random: Random, packed: Uint8Array): Uint8Array {
  let bytes = packed.slice();
  for (let changes = 1 + random.below(3); changes > 0; changes--) {
    const at = random.below(Math.max(1, bytes.byteLength));
    const kind = random.below(5);
    if (kind <= 1) bytes[at]! ^= 1 << random.below(8);
    else if (kind === 2) bytes[at] = random.below(2) * 255;
    else if (kind === 3) bytes = bytes.slice(0, at);
    else bytes = Buffer.concat([bytes.subarray(0, at), random.bytes(random.below(20)), bytes.subarray(at)]);
  }
  return bytes;
}

/** Updates the checksum of a mutated frame. */
function sealed(frame: Uint8Array): Uint8Array {
  if (frame.byteLength < AT_CHECKSUM + 4) return frame;
  const bytes = frame.slice();
  const checksum = crc32(bytes.subarray(AT_CHECKSUM + 4), crc32(bytes.subarray(0, AT_CHECKSUM)));
  new DataView(bytes.buffer).setUint32(AT_CHECKSUM, checksum, true);
  return bytes;
}

/** Feeds bytes as a socket would, in pieces; returns the number of consumed bytes. */
function feed(reader: FrameReader, bytes: Uint8Array, random: Random): number {
  let at = 0;
  while (reader.missing > 0 && at < bytes.byteLength) {
    const length = Math.min(reader.missing, 1 + random.below(64), bytes.byteLength - at);
    reader.take(bytes.subarray(at, at + length));
    at += length;
  }
  return at;
}

describe('fuzzed', () => {
  const fixture = usePairs();

  function checkFrames(open: () => FrameReader): void {
    const random = createRandom(SEED);
    let read = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const type = (1 + random.below(5)) as CmFrameType;
      const hasPayload = type <= CmFrameType.REJECT;
      const status = type === CmFrameType.REJECT ? Status.REJECTED : Status.OK;
      const frame = packFrame(type, status, hasPayload ? random.bytes(random.below(300)) : undefined);
      const isChanged = random.below(4) > 0;
      const changed = isChanged ? mutated(random, frame) : frame;
      const bytes = random.below(2) === 0 ? sealed(changed) : changed;
      const reader = open();
      const wanted = feed(reader, bytes, random);
      expect(wanted).toBeLessThanOrEqual(FRAME_BYTES_MAX);
      expect(reader.missing).toBeLessThanOrEqual(FRAME_BYTES_MAX);
      const outcomes = [reader.frame !== undefined, reader.fault !== undefined, reader.missing > 0];
      expect(outcomes.filter(Boolean), Buffer.from(bytes).toString('hex')).toHaveLength(1);
      if (!isChanged) expect(reader.frame).toMatchObject({ type, status });
      if (reader.frame !== undefined) {
        read += 1;
        expect(packFrame(reader.frame.type, reader.frame.status, reader.frame.payload)).toEqual(
          new Uint8Array(bytes.subarray(0, wanted)),
        );
      }
    }
    expect(read).toBeGreaterThan(ROUNDS / 10);
  }

  it('frames are refused or read', { timeout: TIMEOUT_MS }, () => checkFrames(() => new FrameReader()));

  it('frames of a reader that cuts them, or does not tell its fault, are noticed', async () => {
    class CuttingReader extends FrameReader {
      override get frame() {
        const frame = super.frame;
        return frame && { ...frame, payload: frame.payload.subarray(1) };
      }
    }
    class SilentReader extends FrameReader {
      override get fault() {
        return undefined;
      }
    }
    await catches(checkFrames, () => new CuttingReader(), /deeply equal/);
    await catches(checkFrames, () => new SilentReader(), /length of 1/);
  });

  type Unpack = (bytes: Uint8Array) => { readonly workerAddress: Uint8Array };

  async function checkData([unpackRequest, unpackAcceptance]: readonly [Unpack, Unpack]): Promise<void> {
    const { one } = await fixture.pair(connectionKind('posix'));
    const random = createRandom(SEED);
    const workerAddress = one.worker.address();
    const shapes = [
      [packConnectData({ clientId: 5n, workerAddress }), unpackRequest],
      [packAcceptData({ connectionId: 65_537, windowBytes: 4096, workerAddress }), unpackAcceptance],
    ] as const;
    for (let round = 0; round < ROUNDS; round++) {
      const [packed, unpack] = shapes[round % 2]!;
      const bytes = mutated(random, packed);
      try {
        const read = unpack(bytes);
        expect(read.workerAddress).toEqual(workerAddress);
      } catch (error) {
        const isOwn = isUcxError(error) && /^ERR_(CONNECT|ADDRESS)_MALFORMED$/.test(error.code);
        if (!isOwn) throw error;
      }
    }
  }

  it('requests and acceptances are refused or read', { timeout: TIMEOUT_MS }, () =>
    checkData([unpackConnectData, unpackAcceptData]),
  );

  it('requests read without their checksum, and acceptances read beyond their end, are noticed', async () => {
    const withoutChecksum: Unpack = (bytes) => ({ workerAddress: bytes.subarray(16) });
    const beyondEnd: Unpack = (bytes) => ({ ...unpackAcceptData(bytes), first: new DataView(bytes.buffer, 1 << 20) });
    await catches(checkData, [withoutChecksum, unpackAcceptData], /deeply equal/);
    await catches(checkData, [unpackConnectData, beyondEnd], /outside the bounds/);
  });

  it('attaching to an unaccepted connection, or as another worker, has no effect', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const { one, two } = pair;
    fixture.allow(/connection request (ignored|rejected)|left out/);
    const worker = nativeWorker(one.worker);
    const address = two.worker.address();
    const accepted = worker.connections.accept(address);
    const connections = worker.connections.all.length;
    const [ownSource] = accepted.sources;
    const send = (code: number, to: number, from: number, payload: Uint8Array, source: string): void => {
      const header = writeWireup(to, { code, from, number: 0, windowBytes: 0 });
      worker.protocols.onMessage(MessageId.WIREUP, messageFrame(header, payload, source));
    };
    const { ATTACH, REPLY } = WireupCode;
    const random = createRandom(SEED);
    for (let round = 0; round < ROUNDS; round++) {
      const isNear = random.below(2) === 0;
      const to = isNear ? accepted.id : random.nextU32() | 0;
      const payload = random.below(2) === 0 ? address : mutated(random, address);
      send(ATTACH, to, random.nextU32() | 0, payload, Buffer.from(random.bytes(32)).toString('hex'));
      if (!isNear) send(ATTACH, to, random.nextU32() | 0, mutated(random, address), ownSource!);
    }
    send(ATTACH, accepted.id, 0, address, ownSource!);
    send(ATTACH, accepted.id, -5, address, ownSource!);
    // A reply does not attach.
    send(REPLY, accepted.id, 77, new Uint8Array(0), ownSource!);
    await driveIdle(pair, 300);
    expect([accepted.remoteId, worker.connections.all.length]).toEqual([NO_ENDPOINT, connections]);
    send(ATTACH, accepted.id, 77, address, ownSource!);
    expect(accepted.remoteId).toBe(77);
    send(ATTACH, accepted.id, 78, address, ownSource!);
    expect(accepted.remoteId).toBe(77);
    accepted.fail(Status.CONNECTION_RESET);
    worker.connections.drop(accepted);
  });
});
