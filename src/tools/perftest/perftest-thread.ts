/** Program of one thread of `perftest -T`: runs a complete test over its own channel. A message from its parent ends it. */

import { parentPort, workerData } from 'node:worker_threads';
import { asError, invalidParam, isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { acceptChannel, type Channel, connectChannel } from './channel.ts';
import { type Meeting, runTest } from './session.ts';
import { unpackSpec } from './spec.ts';
import type { ThreadData, ThreadEnd, ThreadMessage } from './threads.ts';

const { spec, end }: ThreadData = workerData;
if (parentPort === null) throw invalidParam('program', 'must run in a worker thread', 'the main thread');
const parent = parentPort;
const post = (message: ThreadMessage): void => parent.postMessage(message);
const interruption = new AbortController();
parent.once('message', () => interruption.abort());
// The listener for messages must not keep the thread alive.
parent.unref();

let channel: Channel | undefined;
try {
  const meeting = await meet(end);
  channel = meeting.channel;
  await runTest({
    ...meeting,
    spec: unpackSpec(spec),
    interrupt: interruption.signal,
    onStart: ({ emulated }) => post({ kind: 'start', emulated }),
    onProgress: (iterations, isMeasured) => {
      if (isMeasured) post({ kind: 'progress', iterations });
    },
    onReport: (measurement, isFinal, carrier) => post({ kind: 'report', measurement, isFinal, carrier }),
  });
} catch (error) {
  const isEnd = error instanceof Error && (error.name === 'AbortError' || 'syscall' in error);
  if (!isUcxError(error) && !isEnd) throw error;
  const { code, status, message } = isUcxError(error) ? error : statusError(Status.IO_ERROR, asError(error).message);
  channel?.sendError(error);
  post({ kind: 'failure', code, status, text: message });
} finally {
  await channel?.close();
}

async function meet(at: ThreadEnd): Promise<Meeting> {
  if (at.role === 'loopback') return at;
  const { role, place } = at;
  const met =
    role === 'client'
      ? await connectChannel(place)
      : await acceptChannel(place, interruption.signal, (own) => post({ kind: 'listening', place: own }));
  return { role, place, channel: met };
}
