/** Detects ArrayBuffers whose memory can be released while its address is in use. */

/** True for an ArrayBuffer whose length can change (ES2024), also for a SharedArrayBuffer that grows. */
export function isResizable(buffer: ArrayBufferLike): boolean {
  const candidate = buffer as { readonly resizable?: boolean; readonly growable?: boolean };
  return candidate.resizable === true || candidate.growable === true;
}
