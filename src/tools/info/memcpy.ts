/** `info -M`: bandwidth of memory copies, as printed by ucx_info -M. */

import { allocateScratch, memcpy } from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';

const BYTES_MIN = 4096;
const BYTES_MAX = 64 * 2 ** 20;
/** Duration of the measurement of one size. */
const MEASURE_NS = 20e6;
const MEGABYTE = 1e6;

/** Bytes per second for sizes in bytes: powers of two. */
export function measureMemcpy(): { readonly byteLength: number; readonly bytesPerSecond: number }[] {
  const [source, target] = [allocateScratch(BYTES_MAX), allocateScratch(BYTES_MAX)];
  try {
    const results: { readonly byteLength: number; readonly bytesPerSecond: number }[] = [];
    for (let byteLength = BYTES_MIN; byteLength <= BYTES_MAX; byteLength *= 2) {
      // The first copy touches the pages.
      memcpy(target.address, source.address, byteLength);
      const startNs = systemClock.nowNs();
      let copied = 0;
      while (systemClock.nowNs() - startNs < MEASURE_NS) {
        memcpy(target.address, source.address, byteLength);
        copied += byteLength;
      }
      results.push({ byteLength, bytesPerSecond: (copied * 1e9) / (systemClock.nowNs() - startNs) });
    }
    return results;
  } finally {
    source.free();
    target.free();
  }
}

/** The text of the results. */
export function memcpyText(results: ReturnType<typeof measureMemcpy>): string {
  const lines = results.map(({ byteLength, bytesPerSecond }) => {
    return `# ${String(byteLength).padStart(14)} bytes: ${(bytesPerSecond / MEGABYTE).toFixed(3)} MB/s`;
  });
  return ['#', '# Memcpy bandwidth:', ...lines, '#'].join('\n');
}
