/** Writes the manual pages of the command line into dist/man, from the tables by which it parses its arguments. */

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadProgram } from '../src/tools/commands.ts';
import { tableOf } from '../src/tools/completion/table.ts';
import { packageVersion } from '../src/ucs/sys/package.ts';
import { manPages } from './man-page.ts';

const FOLDER = 'dist/man';

rmSync(FOLDER, { recursive: true, force: true });
mkdirSync(FOLDER, { recursive: true });
for (const { file, text } of manPages(tableOf(await loadProgram('')), packageVersion())) {
  writeFileSync(join(FOLDER, file), text);
}
