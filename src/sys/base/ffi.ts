/**
 * Keeps the FFI in memory for as long as the process lives. Node.js unloads an addon with the last thread that uses it, and afterwards runs the callbacks of
 * what the thread had open, such as descriptors that the addon polls: where only worker threads use the FFI, the end of one would end the process.
 */

import { readFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { koffi } from './koffi.ts';

const ADDON = /\/.*\/koffi\.node$/gm;
const RTLD_NOW = 2;

if (!isMainThread) {
  const dlopen = koffi.load(null).func('dlopen', 'int64_t', ['str', 'int']);
  // Never closed: the loader counts it.
  for (const path of new Set(readFileSync('/proc/self/maps', 'utf8').match(ADDON))) dlopen(path, RTLD_NOW);
}
