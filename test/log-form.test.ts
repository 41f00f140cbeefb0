/** The guide shows a line of the log as it is printed, and says what stands where UCX has the file and line of its source. */

import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { threadId } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { LogLevel, recordLine } from '../src/ucs/debug/log.ts';
import { ROOT } from './fixtures/tools/built.ts';

it('a line of the log is as the guide shows it', () => {
  const guide = readFileSync(join(ROOT, 'docs/guide/troubleshooting.md'), 'utf8');
  expect(guide).toContain('UCX prints a C file and line in place of the component');
  const line = recordLine(LogLevel.WARN, 'gaudi_ipc', 'peer 4712 has left', 1_795_349_709_511.553);
  const own = `[${hostname().split('.', 1)[0]}:${process.pid}:${threadId}]`;
  expect(guide).toContain(line.replace(own, '[node1:4711:0]'));
});
