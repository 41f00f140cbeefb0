/** Detects ArrayBuffers whose memory can be released while its address is in use. */

/** True for an ArrayBuffer whose length can change (ES2024), also for a SharedArrayBuffer that grows. */
export function isResizable(buffer: ArrayBufferLike): boolean {
  return ('resizable' in buffer && buffer.resizable === true) || ('growable' in buffer && buffer.growable === true);
}
