#!/usr/bin/env node
/** Program `gaudi-ucx`: runs the command line of the process. */

import { watchOutput } from './base/command-line.ts';
import { runCommandLine } from './commands.ts';

// Node.js makes a pipe non-blocking when it creates the stream. `run` executes another program in this process, which would inherit that.
if (process.argv[2] !== 'run') watchOutput();
await runCommandLine(process.argv.slice(2));
