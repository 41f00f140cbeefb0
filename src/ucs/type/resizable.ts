/** Whether the memory of an ArrayBuffer can go away while something else knows its address. */

/** True for an ArrayBuffer whose length can change while it lives (ES2024), also for a SharedArrayBuffer that grows. */
export function isResizable(buffer: ArrayBufferLike): boolean {
  const candidate = buffer as { readonly resizable?: boolean; readonly growable?: boolean };
  return candidate.resizable === true || candidate.growable === true;
}
