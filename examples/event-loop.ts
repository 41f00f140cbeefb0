/**
 * Who drives the progress of a worker: the worker itself, whenever the event loop runs; or the program, in a loop that sleeps, in one that polls, or
 * with a loop of another thread, which watches the event descriptor of the worker by poll(2). Each receives a message from a client.
 */

import { once } from 'node:events';
import { isMainThread, parentPort, Worker as Thread, workerData } from 'node:worker_threads';
import koffi from 'koffi';
import { Context, type Worker } from '../src/index.ts';

/** Id of the active messages. */
const LINE = 1;
const POLLIN = 1;

/** The loop of the other thread, which knows nothing of UCX. It sleeps until the descriptor is readable, and tells the thread of the worker. */
function foreignLoop(fd: number): void {
  const pollfd = koffi.struct({ fd: 'int', events: 'short', revents: 'short' });
  const poll = koffi.load('libc.so.6').func('poll', 'int', [koffi.pointer(pollfd), 'unsigned long', 'int']);
  parentPort!.on('message', () => {
    poll([{ fd, events: POLLIN, revents: 0 }], 1, -1); // blocks this thread, not that of the worker
    parentPort!.postMessage('readable');
  });
}

async function main(): Promise<void> {
  await using context = await Context.create();
  const client = context.worker();
  const lines: string[] = [];
  const stop = new AbortController();
  const senderTo = (receiver: Worker): ((line: string) => Promise<unknown>) => {
    receiver.setAmHandler(LINE, ({ header }) => {
      lines.push(Buffer.from(header).toString());
      stop.abort();
    });
    const endpoint = client.endpoint(receiver.address());
    return (line) => endpoint.amSend(LINE, new Uint8Array(0), { header: Buffer.from(line) });
  };

  // The worker drives itself. The process ends when nothing else keeps it alive: here serve does, until the signal fires.
  const server = context.worker();
  void senderTo(server)('served');
  await server.serve(stop.signal);

  // The program drives this one.
  const worker = context.worker({ progress: 'manual' });
  const send = senderTo(worker);

  // It sleeps in the event loop of Node.js.
  void send('waited');
  while (!lines.includes('waited')) {
    if (worker.progress() === 0) await worker.wait();
  }

  // It never sleeps. Nothing else of this thread runs meanwhile: no timer, no promise.
  void send('polled');
  while (!lines.includes('polled')) {
    client.progress();
    worker.progress();
  }

  // Another loop sleeps in place of this one. It has the descriptor.
  const thread = new Thread(new URL(import.meta.url), { workerData: worker.eventFd });
  void send('watched');
  for (;;) {
    while (worker.progress() > 0);
    if (lines.includes('watched')) break;
    worker.arm(); // unreadable from now on, readable at the next event
    thread.postMessage('sleep');
    await once(thread, 'message'); // the event loop of this thread runs meanwhile
  }
  await thread.terminate();
  console.log(lines.join(', '));
}

if (isMainThread) await main();
else foreignLoop(workerData as number);
