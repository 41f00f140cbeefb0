/**
 * Program of the supervisor that `gaudi-ucx run` starts for a program (emulator/device-nodes/supervisor.ts). It gets its work through descriptor 3, and ends
 * with the last process that the program has started.
 */

import { superviseProgram } from '../../assembly/device-run.ts';
import { avoidOomKiller } from '../../sys/index.ts';

avoidOomKiller();
superviseProgram(3);
