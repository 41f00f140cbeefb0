/** Frames of bytes over a stream socket, for exchanges: a length before each. Lengths and numbers of frames are bounded. */

import type { Socket } from 'node:net';

/** The longest frame. */
const FRAME_BYTES_MAX = 64 * 1024;
const LENGTH_BYTES = 4;

/** Sends a frame. */
export function sendFrame(socket: Socket, bytes: Uint8Array): void {
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32LE(bytes.byteLength);
  socket.write(length);
  socket.write(bytes);
}

/**
 * Reads frames until a number of them has arrived.
 * @param onFrames called once, with all of them
 * @param onBad called once for a frame that is too long, or the end of the connection before that
 */
export function readFrames(
  socket: Socket,
  count: number,
  onFrames: (frames: Uint8Array[]) => void,
  onBad: (why: string) => void,
): void {
  let pending = Buffer.alloc(0);
  let isOver = false;
  const frames: Uint8Array[] = [];
  const end = (why: string): void => {
    if (isOver) return;
    isOver = true;
    onBad(why);
  };
  socket.on('data', (bytes: Buffer) => {
    if (isOver) return;
    pending = Buffer.concat([pending, bytes]);
    while (pending.byteLength >= LENGTH_BYTES) {
      const length = pending.readUInt32LE();
      if (length > FRAME_BYTES_MAX) {
        end(`a frame of ${length} bytes`);
        return;
      }
      if (pending.byteLength < LENGTH_BYTES + length) return;
      frames.push(new Uint8Array(pending.subarray(LENGTH_BYTES, LENGTH_BYTES + length)));
      pending = pending.subarray(LENGTH_BYTES + length);
      if (frames.length < count) continue;
      isOver = true;
      onFrames(frames);
      return;
    }
  });
  socket.on('error', (error) => end(error.message));
  socket.on('close', () => end('the connection has ended'));
}
