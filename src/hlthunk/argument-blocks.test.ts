/**
 * The argument blocks of calls, byte by byte, as a C program would pass them with the structs of the kernel header. The golden bytes were made by a C
 * compiler; pointers, which differ between runs, are written as {@link POINTER}.
 */

import { afterEach, expect, it } from 'vitest';
import { expectNoLeaks } from '../../test/fixtures/leak-check.ts';
import type { ArgumentBlock, DriverFile } from '../driver/port.ts';
import { viewAt } from '../sys/index.ts';
import { DRM_IOCTLS, HL_CS_FLAGS, HL_ENGINE_COMMAND, HL_INFO_OP } from '../uapi/index.ts';
import { CardFile } from './base/card-file.ts';
import { CommandBuffer } from './cs/command-buffer.ts';
import { EncapsSignals } from './cs/command-submission.ts';
import {
  ANY_CQ_INTERRUPT,
  allocateTimestampElements,
  commandSubmission,
  csFlushPciHbwWrites,
  engineCoresSetMode,
  enginesCommand,
  getDevInfoSigned,
  getInfo,
  getSecAttestInfo,
  registerTimestampInterrupt,
  reserveEncapsSignals,
  signalSubmission,
  TimestampBuffer,
  unreserveEncapsSignals,
  waitForInterrupt,
  waitForReservedEncapsSignals,
  waitForSignal,
} from './index.ts';

expectNoLeaks();

const POINTER = '8877665544332211';
const CHUNK_BYTES = 64;
const COMMANDS_HANDLE = 0x1000000000001000n;
const STAMPS_HANDLE = 0x8000000000002000n;

/** The last argument block, and the memory that its pointer refers to. */
let block = '';
let behind = '';

/** Byte offset, in a block of the given length, of the address of the program's memory; -1 for none. */
function pointerAt(view: DataView, base: number, byteLength: number): number {
  for (let at = 0; at < byteLength; at += 8) {
    const offset = view.getBigUint64(at, true) - BigInt(base);
    // In the block itself, behind the arguments; INFO uses separate memory.
    if (offset > 0n && offset < 4096n) return at;
  }
  return byteLength === 24 ? 0 : -1;
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

/** Records the block, with the size from the request number, and returns 0. */
function record(request: number, args: ArgumentBlock): number {
  const byteLength = (request >>> 16) & 0x3fff;
  const bytes = new Uint8Array(args.words.buffer, args.words.byteOffset, byteLength);
  const view = new DataView(args.words.buffer, args.words.byteOffset, byteLength);
  const at = pointerAt(view, args.address, byteLength);
  block = hexOf(bytes);
  behind = '';
  if (at >= 0) {
    const address = Number(view.getBigUint64(at, true));
    block = block.slice(0, at * 2) + POINTER + block.slice(at * 2 + 16);
    if (byteLength !== 24) behind = hexOf(new Uint8Array(viewAt(address, CHUNK_BYTES)));
  }
  return 0;
}

const file: DriverFile = {
  numbers: DRM_IOCTLS,
  ioctl: record,
  ioctlAsync: (request, args) => Promise.resolve(record(request, args)),
  mmap: (byteLength) => ({ address: 4096, byteLength, buffer: new ArrayBuffer(byteLength), close: () => undefined }),
  mapRegisters: () => expect.unreachable(),
  close: () => undefined,
};

let card = new CardFile(file, { index: 0, minor: 0, busId: '0000:00:00.0' });
afterEach(() => {
  card.close();
  card = new CardFile(file, { index: 0, minor: 0, busId: '0000:00:00.0' });
});
const mapping = (): ReturnType<DriverFile['mmap']> => file.mmap(4096, 0n);
const counters = (): CommandBuffer =>
  new CommandBuffer(card, { handle: COMMANDS_HANDLE, byteLength: 4096, address: undefined }, mapping());

it('signals', () => {
  signalSubmission({ card }, 5, { flags: HL_CS_FLAGS.TIMESTAMP, timeoutSeconds: 9 });
  expect(block).toBe(
    '000000000000000088776655443322110000000000000000000000000100000009000000220200000000000000000000',
  );
  expect(behind).toBe(
    '00000000000000000500000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000',
  );
});

it('waits for a signal, whose number the chunk points to', () => {
  waitForSignal({ card }, 77n, 4);
  expect(block).toBe(
    '000000000000000088776655443322110000000000000000000000000100000000000000040000000000000000000000',
  );
  expect(behind.slice(16)).toBe(
    '88776655443322110400000001000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'.slice(
      16,
    ),
  );
});

it('reserves signals and releases them', () => {
  reserveEncapsSignals({ card }, 6, 3);
  expect(block).toBe(
    '000000000000000000000000000000000300000006000000000000000100000000000000001000000000000000000000',
  );
  unreserveEncapsSignals({ card }, new EncapsSignals(card, 7, 0, 3));
  expect(block).toBe(
    '000000000000000000000000000000000700000000000000000000000100000000000000002000000000000000000000',
  );
});

it('submits packets that raise reserved signals, and waits for them', () => {
  const flags = HL_CS_FLAGS.STAGED_SUBMISSION | HL_CS_FLAGS.STAGED_SUBMISSION_FIRST;
  const chunk = { queueIndex: 0, cbHandle: COMMANDS_HANDLE, cbSize: 24 };
  commandSubmission({ card }, [chunk], { flags, encapsSignals: new EncapsSignals(card, 7, 0, 3) });
  expect(block).toBe(
    '000000000000000088776655443322110700000000000000000000000100000000000000c00800000000000000000000',
  );
  expect(behind).toBe(
    '00100000000000100000000018000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000',
  );
  waitForReservedEncapsSignals({ card }, 0x123456789an, 2, 4);
  expect(block).toBe(
    '000000000000000088776655443322110000000000000000000000000100000000000000040800000000000000000000',
  );
  expect(behind).toBe(
    '9a785634120000000400000002000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000',
  );
});

it('commands cores and engines, and flushes', () => {
  engineCoresSetMode({ card }, [1, 258], HL_ENGINE_COMMAND.CORE_HALT);
  expect([block, behind.slice(0, 16)]).toEqual([
    '887766554433221102000000010000000000000000000000000000000000000000000000004000000000000000000000',
    '0100000002010000',
  ]);
  enginesCommand({ card }, [1, 258], HL_ENGINE_COMMAND.STALL);
  expect([block, behind.slice(0, 16)]).toEqual([
    '887766554433221102000000030000000000000000000000000000000000000000000000000001000000000000000000',
    '0100000002010000',
  ]);
  csFlushPciHbwWrites({ card });
  expect(block).toBe(
    '000000000000000000000000000000000000000000000000000000000000000000000000008000000000000000000000',
  );
});

it('waits for interrupts, by an address and by a handle', () => {
  waitForInterrupt({ card }, 0x7f0000001008, 0x0102030405060708n, 50, 5_000_000_000);
  expect(block).toBe(
    '08100000007f00000807060504030201000000000200200300f2052a01000000000000000000000000000000000000000000000000000000',
  );
  waitForInterrupt({ card }, { buffer: counters(), index: 3 }, 4n, ANY_CQ_INTERRUPT, 10);
  expect(block).toBe(
    '00100000000000100400000000000000000000001200f0ff0a00000000000000030000000000000000000000000000000000000000000000',
  );
});

it('allocates timestamps and registers them', () => {
  allocateTimestampElements({ card }, 2);
  expect(block).toBe('00000000000000000000000000000000000000000000000006000000000000000000000002000000');
  const timestamps = new TimestampBuffer(card, STAMPS_HANDLE, 2, mapping());
  registerTimestampInterrupt({ card }, 50, { buffer: counters(), index: 3 }, 4n, timestamps, 1);
  expect(block).toBe(
    '001000000000001004000000000000000000000032002003ff00000000000000030000000000000000200000000000800100000000000000',
  );
});

it('sends requests to the firmware, and INFO unchanged', () => {
  getSecAttestInfo({ card }, 0xdeadbeef);
  expect(block).toBe('8877665544332211080e00001b000000efbeadde00000000');
  getDevInfoSigned({ card }, 0xdeadbeef);
  expect(block).toBe('8877665544332211081f000028000000efbeadde00000000');
  getInfo({ card }, HL_INFO_OP.SYNC_MANAGER, new Uint8Array(16), 2);
  expect(block).toBe('8877665544332211100000000e0000000200000000000000');
});
