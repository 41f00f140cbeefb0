#!/usr/bin/env node
/** The command line `gaudi-ucx` as a program: its arguments, and the errors of its output. */

import { watchOutput } from './base/command-line.ts';
import { runCommandLine } from './commands.ts';

// Node.js makes a pipe non-blocking when its stream is made, which the program that run becomes would inherit.
if (process.argv[2] !== 'run') watchOutput();
await runCommandLine(process.argv.slice(2));
