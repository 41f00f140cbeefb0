#!/usr/bin/env node
/** The command line `gaudi-ucx`: arguments in, text out, exit codes. What the commands do is in the file of each. */

import { reportFailure, reportUsage, watchOutput } from './base/command-line.ts';
import { loadProgram } from './commands.ts';

// Node.js makes a pipe non-blocking when its stream is made, which the program that run becomes would inherit.
if (process.argv[2] !== 'run') watchOutput();
try {
  const program = await loadProgram(process.argv[2] ?? '');
  reportUsage(program);
  if (process.argv.length === 2) program.error('no command is given');
  await program.parseAsync();
} catch (error) {
  reportFailure(error);
}
