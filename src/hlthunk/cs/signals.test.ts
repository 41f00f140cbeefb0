/** Signals between queues of the emulated cards: raised by the driver, and by packets. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import {
  fenceCfg,
  HL_CS_CHUNK_FLAGS,
  HL_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeMsgLong,
} from '../../uapi/index.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import {
  ALREADY_SIGNALED,
  type CommandChunk,
  commandSubmission,
  type Device,
  GaudiErrorCode,
  open,
  requestCommandBuffer,
  reserveEncapsSignals,
  signalSubmission,
  unreserveEncapsSignals,
  waitForCs,
  waitForReservedEncapsSignals,
  waitForSignal,
} from '../index.ts';

const fixture = useEmulatedDevice();
const BOTH = ['gaudi2', 'gaudi'] as const;
const ADD = 0x8000_0000;
/** A queue that is neither fenced nor waiting. */
const RAISING_QUEUE = 1;
const STAGED_FIRST = HL_CS_FLAGS.STAGED_SUBMISSION | HL_CS_FLAGS.STAGED_SUBMISSION_FIRST;
const refusal = (argument: string): unknown =>
  expect.objectContaining({
    code: GaudiErrorCode.INVALID_PARAMS,
    details: expect.objectContaining({ argument, rule: expect.any(String), value: expect.any(String) }),
  });
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });

/** A chunk with packets in a buffer of the kind that the card executes. */
function chunkOf(device: Device, queueIndex: number, write: (words: Uint32Array) => number): CommandChunk {
  const isUser = device.info.profile.capabilities.userCbOnly;
  const buffer = requestCommandBuffer(device, 4096, { mapped: isUser });
  const cbSize = write(buffer.words) * 4;
  const cbHandle = buffer.deviceAddress ?? buffer.handle;
  return { queueIndex, cbHandle, cbSize, flags: isUser ? HL_CS_CHUNK_FLAGS.USER_ALLOC_CB : 0 };
}

/** Blocks queue 0 until {@link raise}. */
function block(device: Device, more?: (words: Uint32Array, at: number) => number): CommandChunk {
  return chunkOf(device, 0, (words) => {
    const at = writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    return more === undefined ? at : more(words, at);
  });
}

function raise(device: Device): void {
  const { cfg, fences } = device.info.profile;
  const fence = cfg.start + BigInt(fences[0]!.fence0);
  const chunk = chunkOf(device, RAISING_QUEUE, (words) =>
    writeMsgLong(words, 0, msgLongCtl(), 1, lowWord(fence), highWord(fence)),
  );
  expect(commandSubmission(device, [chunk])).toBeGreaterThan(0n);
}

describe.each(BOTH)('signals of %s', (asic) => {
  it('make a queue wait for the earlier work of another one', () => {
    const device = fixture.setUp({ asic });
    commandSubmission(device, [block(device)]);
    const signal = signalSubmission(device, 0)!;
    expect(signal).toMatchObject({ seq: 2n, sobCountBeforeSubmission: 1 });
    expect(signalSubmission(device, 0, { timeoutSeconds: 60 })).toMatchObject({
      sobBaseAddrOffset: signal.sobBaseAddrOffset,
      sobCountBeforeSubmission: 2,
    });
    const waiting = waitForSignal(device, signal.seq, 4)!;
    expect(waitForCs(device, waiting, 0).status).toBe(HL_WAIT_CS_STATUS.BUSY);
    raise(device);
    expect(waitForCs(device, waiting, 1e7).status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    expect(waitForSignal(device, signal.seq, 4)).toBe(ALREADY_SIGNALED);
  });

  it('are released in the reverse order, once', () => {
    const device = fixture.setUp({ asic });
    const [one, two] = [reserveEncapsSignals(device, 0, 4)!, reserveEncapsSignals(device, 0, 3)!];
    expect([one.count, two.count]).toEqual([5, 8]);
    expect(() => unreserveEncapsSignals(device, one)).toThrow(INVALID);
    expect(one.live).toBe(true);
    expect([unreserveEncapsSignals(device, two), unreserveEncapsSignals(device, one)]).toEqual([true, true]);
    expect(() => unreserveEncapsSignals(device, one)).toThrow(refusal('signals'));
  });

  it('are undefined while the driver has no room', () => {
    const device = fixture.setUp({ asic });
    const full = (): void => fixture.node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: 11 });
    full();
    expect(signalSubmission(device, 0)).toBeUndefined();
    full();
    expect(reserveEncapsSignals(device, 0, 1)).toBeUndefined();
    const reserved = reserveEncapsSignals(device, 0, 1)!;
    full();
    expect(unreserveEncapsSignals(device, reserved)).toBe(false);
    expect(unreserveEncapsSignals(device, reserved)).toBe(true);
  });

  it('reject invalid values, with their names', () => {
    const device = fixture.setUp({ asic, cards: 2 });
    using other = open(fixture.node, { minor: 1 }, { log: fixture.log.log });
    const foreign = reserveEncapsSignals(other, 0, 1)!;
    const nop = block(device);
    expect(() => commandSubmission(device, [nop], { encapsSignals: foreign })).toThrow(refusal('encapsSignals'));
    expect(() => unreserveEncapsSignals(device, foreign)).toThrow(refusal('signals'));
    const own = reserveEncapsSignals(device, 0, 1)!;
    const both = { encapsSignals: own, stagedSeq: 1n, flags: STAGED_FIRST };
    expect(() => commandSubmission(device, [nop], both)).toThrow(refusal('encapsSignals'));
    for (const count of [0, -1, 0.5, 0x8000]) {
      expect(() => reserveEncapsSignals(device, 0, count)).toThrow(refusal('count'));
    }
    expect(() => signalSubmission(device, -1)).toThrow(refusal('queueIndex'));
    expect(() => signalSubmission(device, 5000)).toThrow(INVALID);
    expect(() => waitForSignal(device, -1n, 0)).toThrow(refusal('signalSeq'));
    expect(() => waitForSignal(device, 999n, 0)).toThrow(INVALID);
    other.close();
    expect(() => signalSubmission(other, 0)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });
});

describe('encapsulated signals', () => {
  it('are reserved, raised by packets of a staged submission, and waited for one by one', () => {
    const device = fixture.setUp({ asic: 'gaudi' });
    const reserved = reserveEncapsSignals(device, 0, 2)!;
    expect(reserved.count).toBe(3);
    const sob = device.info.profile.cfg.start + BigInt(reserved.sobBaseAddrOffset);
    const chunk = block(device, (words, at) =>
      writeMsgLong(words, at, msgLongCtl(), ADD | 2, lowWord(sob), highWord(sob)),
    );
    expect(() => commandSubmission(device, [chunk], { encapsSignals: reserved })).toThrow(refusal('flags'));
    const flags = STAGED_FIRST | HL_CS_FLAGS.STAGED_SUBMISSION_LAST;
    const seq = commandSubmission(device, [chunk], { flags, encapsSignals: reserved })!;
    expect(reserved.live).toBe(false);
    expect(() => waitForReservedEncapsSignals(device, seq, 3, 4)).toThrow(INVALID);
    const waiting = [1, 2].map((offset) => waitForReservedEncapsSignals(device, seq, offset, 4)!);
    expect(waiting.map((each) => waitForCs(device, each, 0).status)).toEqual([1, 1]);
    raise(device);
    for (const each of waiting) expect(waitForCs(device, each, 1e7).status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    expect(() => commandSubmission(device, [chunk], { encapsSignals: reserved })).toThrow(refusal('encapsSignals'));
    expect(() => unreserveEncapsSignals(device, reserved)).toThrow(refusal('signals'));
  });

  it('need staged submissions, which gaudi2 does not have', () => {
    const device = fixture.setUp({ asic: 'gaudi2' });
    const reserved = reserveEncapsSignals(device, 0, 2)!;
    const options = { flags: STAGED_FIRST, encapsSignals: reserved };
    expect(() => commandSubmission(device, [block(device)], options)).toThrow(
      expect.objectContaining({ code: GaudiErrorCode.PERMISSION_DENIED }),
    );
    expect(reserved.live).toBe(true);
    expect(unreserveEncapsSignals(device, reserved)).toBe(true);
  });
});
