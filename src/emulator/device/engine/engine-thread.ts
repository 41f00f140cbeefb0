/** Entry point of one engine thread: serves every channel, spins while there is work, then sleeps. */

import { parentPort, workerData } from 'node:worker_threads';
import { addressOf, EventFd, gettid, schedYield } from '../../../sys/index.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import {
  CHANNELS,
  CONTROL_CHANNELS,
  CONTROL_DOORBELL,
  CONTROL_SLEEPING,
  CONTROL_STATE,
  CONTROL_STOP,
  CONTROL_THREAD,
  CONTROL_WAKE,
  EngineState,
  Wake,
} from './dma-ring.ts';
import { EngineProgram } from './engine-program.ts';

/** Parameters from the owner of the thread. */
export interface EngineThreadData {
  readonly region: SharedArrayBuffer;
  /** Counter of requested progress, shared by all engines of the node. */
  readonly progress: SharedArrayBuffer;
  /** Written if `Wake.EVENT` was requested. */
  readonly eventFd: number;
  /** Idle time before the thread sleeps. Waking it costs tens of microseconds, spinning costs a core. */
  readonly spinNs: number;
}

/** Idle rounds between two readings of the clock. */
const ROUNDS_PER_CLOCK_READ = 256;

function tellProgress(words: Int32Array, progress: Int32Array, event: EventFd): void {
  const wake = Atomics.exchange(words, CONTROL_WAKE, Wake.NONE);
  if ((wake & Wake.EVENT) !== 0) event.signal();
  if ((wake & Wake.NOTIFY) === 0) return;
  Atomics.add(progress, 0, 1);
  Atomics.notify(progress, 0);
}

/** Sleeps until the doorbell rings. The flag is set before the last check, so that no ring is lost. */
function sleep(words: Int32Array, hasWork: () => boolean): void {
  const doorbell = Atomics.load(words, CONTROL_DOORBELL);
  Atomics.store(words, CONTROL_SLEEPING, 1);
  if (!hasWork() && Atomics.load(words, CONTROL_STOP) === 0) Atomics.wait(words, CONTROL_DOORBELL, doorbell);
  Atomics.store(words, CONTROL_SLEEPING, 0);
}

function run(data: EngineThreadData, words: Int32Array): void {
  const progress = new Int32Array(data.progress);
  // The owner of the thread closes the descriptor after the thread has ended.
  const event = new EventFd(data.eventFd);
  const program = new EngineProgram(words, addressOf(words), CHANNELS, systemClock);
  const round = (): boolean => {
    const channels = Atomics.load(words, CONTROL_CHANNELS);
    let worked = false;
    for (let channel = 0; channel < channels; channel++) {
      const result = program.serve(channel);
      worked ||= result !== 0;
      if (result === 2 && Atomics.load(words, CONTROL_WAKE) !== Wake.NONE) tellProgress(words, progress, event);
    }
    return worked;
  };
  let idleRounds = 0;
  let idleSinceNs = 0;
  while (Atomics.load(words, CONTROL_STOP) === 0) {
    if (round()) {
      idleRounds = 0;
      continue;
    }
    idleRounds += 1;
    if (idleRounds % ROUNDS_PER_CLOCK_READ !== 0) continue;
    // The thread that produces the next work may need this processor.
    schedYield();
    const now = systemClock.nowNs();
    if (idleRounds === ROUNDS_PER_CLOCK_READ) idleSinceNs = now;
    else if (now - idleSinceNs > data.spinNs) {
      sleep(words, round);
      idleRounds = 0;
    }
  }
}

const data = workerData as EngineThreadData;
const words = new Int32Array(data.region);
Atomics.store(words, CONTROL_THREAD, gettid());
Atomics.store(words, CONTROL_STATE, EngineState.RUNNING);
Atomics.notify(words, CONTROL_STATE);
parentPort!.postMessage('loaded');
try {
  run(data, words);
} finally {
  // Also on failure: a submitting thread that blocks does not receive the error event.
  Atomics.store(words, CONTROL_STATE, EngineState.ENDED);
  Atomics.notify(words, CONTROL_STATE);
}
