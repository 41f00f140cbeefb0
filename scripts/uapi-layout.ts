/**
 * Regenerates a golden table of test/fixtures/uapi from a kernel header, for a new field or a new header.
 * The test only reads the tables.
 *
 *     npx tsx scripts/uapi-layout.ts 6.12 [directory that holds drm/habanalabs_accel.h]
 *     npx tsx scripts/uapi-layout.ts 6.1  [directory that holds misc/habanalabs.h]
 */

import { writeFileSync } from 'node:fs';
import { compileLayout, type KernelHeader } from '../test/fixtures/uapi/compiled-layout.ts';

const [header, includeDirectory] = process.argv.slice(2);
if (header !== '6.1' && header !== '6.12') {
  console.error('usage: uapi-layout.ts 6.1|6.12 [include directory]');
  process.exit(2);
}
const version: KernelHeader = header;
const target = new URL(`../test/fixtures/uapi/layout-${version}.json`, import.meta.url);
writeFileSync(target, `${JSON.stringify(compileLayout(version, includeDirectory).table, undefined, 2)}\n`);
