/** Frames of connection managers: the fields that a reader accepts. */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { Status } from '../../../ucs/type/status.ts';
import { PRIVATE_DATA_BYTES_MAX, REASON_BYTES_MAX } from '../../api/connection-manager.ts';
import { CmFrameType, FRAME_HEADER_BYTES, FrameReader, NONCE_BYTES, packFrame } from './layout.ts';

/** What a reader makes of a frame: its error, or the frame. */
function readOf(packed: Uint8Array): unknown {
  const reader = new FrameReader();
  for (let at = 0; reader.missing > 0; ) {
    const bytes = packed.subarray(at, at + reader.missing);
    at += bytes.byteLength;
    reader.take(bytes);
  }
  return reader.fault ?? reader.frame;
}

/** A frame with any status, and a right checksum. */
function withStatus(type: CmFrameType, status: number): Uint8Array {
  const packed = packFrame(type, Status.OK);
  const view = new DataView(packed.buffer);
  view.setInt16(6, status, true);
  view.setUint32(12, crc32(packed.subarray(FRAME_HEADER_BYTES), crc32(packed.subarray(0, 12))), true);
  return packed;
}

describe('a frame', () => {
  it.each([
    ['REQUEST', NONCE_BYTES + PRIVATE_DATA_BYTES_MAX, Status.OK],
    ['ACCEPT', PRIVATE_DATA_BYTES_MAX, Status.OK],
    ['REJECT', REASON_BYTES_MAX, Status.BUSY],
    ['CONFIRM', 0, Status.OK],
    ['HELLO', NONCE_BYTES, Status.OK],
  ] as const)('%s has at most %i bytes', (name, bytesMax, status) => {
    const type = CmFrameType[name];
    const payload = Uint8Array.from({ length: bytesMax }, (_, i) => i);
    expect(readOf(packFrame(type, status, payload))).toEqual({ type, status, payload });
    const longer = packFrame(type, status, new Uint8Array(bytesMax + 1));
    expect(readOf(longer)).toBe(`has ${bytesMax + 1} bytes, more than ${bytesMax}`);
  });

  it.each([
    ['REJECT', [Status.ENDPOINT_TIMEOUT, Status.BUSY], [Status.OK, Status.INPROGRESS, Status.ENDPOINT_TIMEOUT - 1]],
    ['CONFIRM', [Status.OK, Status.ENDPOINT_TIMEOUT], [Status.INPROGRESS, Status.ENDPOINT_TIMEOUT - 1]],
    ['ACCEPT', [Status.OK], [Status.INPROGRESS, Status.BUSY]],
  ] as const)('%s has one of its statuses', (name, good, bad) => {
    const type = CmFrameType[name];
    for (const status of good) expect(readOf(withStatus(type, status))).toMatchObject({ type, status });
    for (const status of bad) expect(readOf(withStatus(type, status))).toMatch(new RegExp(`the status ${status}$`));
  });
});
