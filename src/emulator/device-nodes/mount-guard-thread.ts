/** Entry point of the thread of a supervisor that takes the place of an ended node server. */

import { workerData } from 'node:worker_threads';
import { guardMount, type MountGuard } from './orphaned-mount.ts';

guardMount(workerData as MountGuard);
