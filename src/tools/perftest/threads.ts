/** Test of several threads (`perftest -T`): starts the threads on both sides, connects each to its peer thread, and combines their results. */

import { once } from 'node:events';
import type { Worker } from 'node:worker_threads';
import { startWorker } from '../../sys/index.ts';
import { invalidParam, statusError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Channel, ChannelMessage, Place } from './channel.ts';
import type { Measurement } from './measure.ts';
import type { Meeting } from './session.ts';
import { packSpec, type TestSpec } from './spec.ts';

/** A test, and the side that runs it. */
export type ThreadedTest = Meeting & ThreadedEnvironment;

/** Environment of a test. */
interface ThreadedEnvironment {
  readonly spec: TestSpec;
  readonly interrupt: AbortSignal;
  /** Called when all threads are connected to their peers. */
  readonly onStart: (side: { readonly emulated: boolean }) => void;
  /** Measured iterations of all threads together. */
  readonly onProgress: (iterations: number) => void;
  /** Called with the results of a thread, or of all together: then `thread` is undefined. */
  readonly onReport: (measurement: Measurement, isFinal: boolean, carrier: string, thread: number | undefined) => void;
}

/**
 * Runs the test on all threads.
 * @throws UcxError of the first thread that failed; CANCELED when `interrupt` fires; the error of the channel
 */
export async function runThreads(test: ThreadedTest): Promise<void> {
  const { spec, interrupt } = test;
  const threads = new Threads(test);
  const stop = (): void => threads.stop();
  interrupt.addEventListener('abort', stop);
  // Otherwise, listening threads would wait for peers forever.
  const stopListening = test.channel?.onEnd(stop);
  try {
    if (test.role === 'server') await threads.serve(test.channel, test.place);
    else if (test.role === 'client') threads.start(partnersOf(await test.channel.receive('threads'), spec, test.place));
    else threads.start(Array.from({ length: spec.threads }, () => ({ role: 'loopback' })));
    await threads.end();
  } finally {
    interrupt.removeEventListener('abort', stop);
    stopListening?.();
  }
  if (interrupt.aborted) throw statusError(Status.CANCELED, 'perftest');
}

/** The threads of one side. */
class Threads {
  readonly #test: ThreadedTest;
  readonly #workers: Worker[] = [];
  readonly #places: Place[] = [];
  readonly #results: { readonly measurement: Measurement; readonly carrier: string }[] = [];
  /** Measured iterations, by thread. */
  readonly #iterations: number[] = [];
  #started = 0;
  #failure: Error | undefined;
  #isStopped = false;
  #onListening: () => void = () => {};
  #ended: Promise<unknown>[] = [];

  constructor(test: ThreadedTest) {
    this.#test = test;
  }

  /** Starts one thread for each end. */
  start(ends: readonly ThreadEnd[]): void {
    // Each thread runs a test of one thread.
    const spec = packSpec({ ...this.#test.spec, threads: 1 });
    for (const [index, end] of ends.entries()) {
      const data: ThreadData = { spec, end };
      const worker = startWorker(import.meta.url, './perftest-thread', { workerData: data });
      this.#workers.push(worker);
      worker.on('message', (message: ThreadMessage) => this.#take(index, message));
      this.#ended.push(once(worker, 'exit').catch((error: Error) => this.#fail(error)));
    }
    if (this.#isStopped) this.stop();
  }

  /** Starts the threads, each with its own channel, and sends the addresses of the channels to the other side. */
  async serve(channel: Channel, place: Place): Promise<void> {
    const listening = new Promise<void>((resolve) => {
      this.#onListening = resolve;
    });
    this.start(
      Array.from({ length: this.#test.spec.threads }, (_, index) => {
        return { role: 'server', place: placeOfThread(place, index, 0) };
      }),
    );
    await Promise.race([listening, this.end()]);
    channel.send({ type: 'threads', places: this.#places });
  }

  /** Requests the end of the threads. */
  stop(): void {
    this.#isStopped = true;
    for (const worker of this.#workers) worker.postMessage('stop');
  }

  /** Waits until all have ended. @throws the error of the first that failed */
  async end(): Promise<void> {
    await Promise.all(this.#ended);
    if (this.#failure !== undefined) throw this.#failure;
  }

  #take(thread: number, message: ThreadMessage): void {
    const { spec, onStart, onProgress, onReport } = this.#test;
    switch (message.kind) {
      case 'listening':
        this.#places[thread] = message.place;
        if (Object.keys(this.#places).length === spec.threads) this.#onListening();
        break;
      case 'start':
        this.#started += 1;
        if (this.#started === spec.threads) onStart({ emulated: message.emulated });
        break;
      case 'progress':
        this.#iterations[thread] = message.iterations;
        onProgress(this.#iterations.reduce((sum, iterations) => sum + iterations, 0));
        break;
      case 'report':
        onReport(message.measurement, false, message.carrier, thread);
        if (!message.isFinal) break;
        this.#results.push(message);
        if (this.#results.length < spec.threads) break;
        onReport(combine(this.#results.map(({ measurement }) => measurement)), true, message.carrier, undefined);
        break;
      case 'failure':
        this.#fail(new UcxError({ code: message.code, status: message.status, message: message.text }));
        break;
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.stop();
  }
}

/** The channel address of a thread: on the host of the test, or next to its socket. */
function placeOfThread(place: Place, index: number, port: number): Place {
  return 'path' in place ? { path: `${place.path}.${index}` } : { ...place, port };
}

/** The thread ends of a client: they connect to the addresses in the server's message. @throws UcxError ERR_INVALID_PARAM */
function partnersOf({ places }: ChannelMessage, { threads }: TestSpec, place: Place): ThreadEnd[] {
  if (!Array.isArray(places) || places.length !== threads) {
    throw invalidParam('threads of the peer', `must have ${threads} addresses`, places);
  }
  return places.map((each: unknown, index) => {
    const port = 'path' in place ? 0 : portOf(each);
    return { role: 'client', place: placeOfThread(place, index, port) };
  });
}

function portOf(place: unknown): number {
  const port = typeof place === 'object' && place !== null && 'port' in place ? place.port : undefined;
  if (typeof port === 'number' && Number.isInteger(port) && port > 0 && port <= 65_535) return port;
  throw invalidParam('threads of the peer', 'must have ports', port);
}

/** Sums of iterations and rates, means of average times, and the maximum of each percentile. */
export function combine(all: readonly Measurement[]): Measurement {
  const sum = (name: keyof Measurement): number => all.reduce((total, each) => total + each[name], 0);
  const mean = (name: keyof Measurement): number => sum(name) / all.length;
  const most = (name: keyof Measurement): number => Math.max(...all.map((each) => each[name]));
  return {
    iterations: sum('iterations'),
    percentileNs: most('percentileNs'),
    medianNs: most('medianNs'),
    lowNs: most('lowNs'),
    highNs: most('highNs'),
    averageNs: mean('averageNs'),
    overallNs: mean('overallNs'),
    averageBytes: sum('averageBytes'),
    overallBytes: sum('overallBytes'),
    averageMessages: sum('averageMessages'),
    overallMessages: sum('overallMessages'),
  };
}

/** Side of a thread, and address of its channel; loopback has none. */
export type ThreadEnd = { readonly role: 'loopback' } | { readonly role: 'server' | 'client'; readonly place: Place };

/** Data of a thread. The test is in the form that is sent to the other side. */
export interface ThreadData {
  readonly spec: object;
  readonly end: ThreadEnd;
}

/** A message of a thread. */
export type ThreadMessage =
  | { readonly kind: 'listening'; readonly place: Place }
  | { readonly kind: 'start'; readonly emulated: boolean }
  /** Measured iterations so far. */
  | { readonly kind: 'progress'; readonly iterations: number }
  | { readonly kind: 'report'; readonly measurement: Measurement; readonly isFinal: boolean; readonly carrier: string }
  | { readonly kind: 'failure'; readonly code: string; readonly status: Status; readonly text: string };
