/**
 * The benchmarks; prints one line per result and exits with 1 when a target is missed. `npm run bench` runs all, `npm run bench -- NAME...` those that are named; the
 * comparison with C UCX at every size takes an hour, or a quarter of one with short runs, and runs only by its name: c-ucx, c-ucx-sizes.
 */

import os from 'node:os';
import { benchCUcx, SIZES_ONCE, TABLE_ONLY } from './c-ucx/c-ucx.ts';
import { benchContended } from './c-ucx/contended.ts';
import { benchPrimitives } from './c-ucx/primitives.ts';
import { benchCollectives } from './collectives.ts';
import { benchCopyBandwidth } from './copy-bandwidth.ts';
import { benchDeviceMemory } from './device-memory.ts';
import { benchDeviceNodes } from './device-nodes.ts';
import { benchEndpoints } from './endpoints.ts';
import { benchEngines } from './engines.ts';
import { benchGarbage, benchGarbageOfTransports } from './garbage.ts';
import { benchGenerations } from './generations.ts';
import { benchInstrumentation } from './instrumentation.ts';
import { benchIoctl } from './ioctl.ts';
import { benchLists } from './lists.ts';
import { benchNodeServer } from './node-server.ts';
import { benchRegistrationCache } from './registration-cache.ts';
import { benchRegistrationClaims } from './registration-claims.ts';
import { benchScale } from './scale.ts';
import { benchSharedMemory } from './shared-memory.ts';
import { benchSmallPut } from './small-put.ts';
import { benchStartUp } from './start-up.ts';
import { formatResult, type Result } from './timing.ts';
import { benchVerbs } from './verbs.ts';

type Bench = () => Result[] | Promise<Result[]> | AsyncIterable<Result>;

const ALL: Readonly<Record<string, Bench>> = {
  'start-up': benchStartUp,
  ioctl: benchIoctl,
  'node-server': benchNodeServer,
  'device-nodes': benchDeviceNodes,
  'shared-memory': benchSharedMemory,
  'c-ucx-table': () => benchCUcx(TABLE_ONLY),
  'c-ucx-contended': benchContended,
  primitives: benchPrimitives,
  'device-memory': benchDeviceMemory,
  lists: benchLists,
  collectives: benchCollectives,
  engines: benchEngines,
  endpoints: benchEndpoints,
  verbs: benchVerbs,
  scale: benchScale,
  'small-put': benchSmallPut,
  generations: benchGenerations,
  garbage: benchGarbage,
  'garbage-of-transports': benchGarbageOfTransports,
  instrumentation: benchInstrumentation,
  'copy-bandwidth': benchCopyBandwidth,
  'registration-claims': benchRegistrationClaims,
  // The last one: it fills the heap.
  'registration-cache': benchRegistrationCache,
};
const BY_NAME: Readonly<Record<string, Bench>> = {
  ...ALL,
  'c-ucx': () => benchCUcx(),
  'c-ucx-sizes': () => benchCUcx(SIZES_ONCE),
};

// Every line of the benchmarks says so.
process.env['UCX_GAUDI_DRIVER'] ??= 'emulator';
const names = process.argv.slice(2);
const unknown = names.find((name) => BY_NAME[name] === undefined);
if (unknown !== undefined) {
  console.error(`no benchmark ${unknown}: there are ${Object.keys(BY_NAME).join(', ')}`);
  process.exit(2);
}
console.log(`node ${process.version}, ${os.cpus().length} x ${os.cpus()[0]?.model}, ${os.release()}; emulated cards`);
const results: Result[] = [];
for (const name of names.length > 0 ? names : Object.keys(ALL)) {
  for await (const result of await BY_NAME[name]!()) {
    results.push(result);
    console.log(formatResult(result));
  }
}
const aimed = results.filter(({ met }) => met !== undefined);
const missed = aimed.filter(({ met }) => met === false).length;
console.log(`${aimed.length - missed} of ${aimed.length} targets met`);
process.exitCode = missed === 0 ? 0 : 1;
