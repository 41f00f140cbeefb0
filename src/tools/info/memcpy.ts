/** `info -M`: bandwidth of memory copies, as printed by ucx_info -M. */

import { allocateScratch, memcpy } from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { MEGABYTE } from '../base/text-table.ts';

const BYTES_MIN = 4096;
const BYTES_MAX = 64 * 2 ** 20;
/** Duration of the measurement of one size. */
const MEASURE_NS = 20e6;
/** Copies of the smallest size, after which V8 has compiled the call. */
const WARM_UP_COPIES = 50_000;

/** What is measured, and the clock. */
export interface MeasuredCopies {
  readonly copy: (target: number, source: number, byteLength: number) => void;
  readonly nowNs: () => number;
}

const MEMCPY: MeasuredCopies = { copy: memcpy, nowNs: () => systemClock.nowNs() };

/** Bytes per second for sizes in bytes: powers of two. */
export function measureMemcpy({
  copy,
  nowNs,
}: MeasuredCopies = MEMCPY): { readonly byteLength: number; readonly bytesPerSecond: number }[] {
  const [source, target] = [allocateScratch(BYTES_MAX), allocateScratch(BYTES_MAX)];
  /** Time of a number of copies. */
  const timeNs = (byteLength: number, copies: number): number => {
    const startNs = nowNs();
    for (let count = 0; count < copies; count++) copy(target.address, source.address, byteLength);
    return nowNs() - startNs;
  };
  try {
    // Touches the pages.
    timeNs(BYTES_MAX, 1);
    timeNs(BYTES_MIN, WARM_UP_COPIES);
    const results: { readonly byteLength: number; readonly bytesPerSecond: number }[] = [];
    for (let byteLength = BYTES_MIN; byteLength <= BYTES_MAX; byteLength *= 2) {
      let copies = 1;
      let elapsedNs = timeNs(byteLength, copies);
      while (elapsedNs < MEASURE_NS) {
        copies *= 2;
        elapsedNs = timeNs(byteLength, copies);
      }
      results.push({ byteLength, bytesPerSecond: (copies * byteLength * 1e9) / elapsedNs });
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
