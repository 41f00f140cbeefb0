/** All benchmarks of this release; prints one line per result and exits with 1 if a target is missed. `npm run bench`. */

import os from 'node:os';
import { benchCopyBandwidth } from './copy-bandwidth.ts';
import { benchEndpoints } from './endpoints.ts';
import { benchEngines } from './engines.ts';
import { benchInstrumentation } from './instrumentation.ts';
import { benchIoctl } from './ioctl.ts';
import { benchNodeServer } from './node-server.ts';
import { benchPerftestRatios } from './perftest-ratios.ts';
import { benchRegistrationCache } from './registration-cache.ts';
import { benchRegistrationClaims } from './registration-claims.ts';
import { benchSharedMemory } from './shared-memory.ts';
import { benchSmallPut } from './small-put.ts';
import { benchStartUp } from './start-up.ts';
import { formatResult, type Result } from './timing.ts';

console.log(`node ${process.version}, ${os.cpus().length} x ${os.cpus()[0]?.model}, ${os.release()}; emulated cards`);
const results: Result[] = [];
const benches: readonly (() => Result[] | Promise<Result[]>)[] = [
  benchStartUp,
  benchIoctl,
  benchNodeServer,
  benchSharedMemory,
  benchPerftestRatios,
  benchEngines,
  benchEndpoints,
  benchSmallPut,
  benchInstrumentation,
  benchCopyBandwidth,
  benchRegistrationClaims,
  // Last, because it fills the heap.
  benchRegistrationCache,
];
for (const bench of benches) {
  for (const result of await bench()) {
    results.push(result);
    console.log(formatResult(result));
  }
}
const missed = results.filter(({ met }) => !met).length;
console.log(`${results.length - missed} of ${results.length} targets met`);
process.exitCode = missed === 0 ? 0 : 1;
