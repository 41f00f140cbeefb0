/** A test of several threads (perftest -T): starts them on both sides, lets each meet its partner, and combines their results. */

import { once } from 'node:events';
import type { Worker } from 'node:worker_threads';
import { startWorker } from '../../../sys/index.ts';
import { invalidParam, statusError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Channel, Place } from '../channel.ts';
import type { Measurement } from '../meter.ts';
import { packSpec, type TestSpec } from '../options/spec.ts';
import type { Role } from '../session.ts';
import { combine } from './combine.ts';
import type { ThreadData, ThreadMessage } from './thread-messages.ts';

/** A test. */
export interface ThreadedTest {
  readonly spec: TestSpec;
  readonly role: Role;
  readonly channel: Channel | undefined;
  /** Where this side listens, or the other one does; undefined for loopback. */
  readonly place: Place | undefined;
  readonly interrupt: AbortSignal;
  /** All threads have met their partners. */
  readonly onStart: (side: { readonly emulated: boolean }) => void;
  /** Measured iterations of all threads together. */
  readonly onProgress: (iterations: number) => void;
  /** Results of a thread, or of all together: `thread` is undefined then. */
  readonly onReport: (measurement: Measurement, isFinal: boolean, carrier: string, thread: number | undefined) => void;
}

/**
 * Runs the test on all threads.
 * @throws UcxError of the first thread that failed; CANCELED when `interrupt` fires; the error of the channel
 */
export async function runThreads(test: ThreadedTest): Promise<void> {
  const { role, channel, interrupt } = test;
  const threads = new Threads(test);
  const stop = (): void => threads.stop();
  interrupt.addEventListener('abort', stop);
  // Threads that listen would wait for partners that never come.
  const stopListening = channel?.onEnd(stop);
  try {
    if (role === 'server') await threads.serve(channel!);
    else threads.start(role === 'client' ? placesOf(await channel!.receive('threads'), test) : undefined);
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

  /** Starts them all. @param places of the channels, one for each thread; undefined for loopback */
  start(places: readonly Place[] | undefined): void {
    const { spec, role } = this.#test;
    // Each thread runs a test of one thread.
    const packed = packSpec({ ...spec, threads: 1 });
    for (let index = 0; index < spec.threads; index++) {
      const data: ThreadData = { spec: packed, role, place: places?.[index] };
      const worker = startWorker(import.meta.url, './perftest-thread', { workerData: data });
      this.#workers.push(worker);
      worker.on('message', (message: ThreadMessage) => this.#take(index, message));
      this.#ended.push(once(worker, 'exit').catch((error: Error) => this.#fail(error)));
    }
    if (this.#isStopped) this.stop();
  }

  /** Starts them with channels of their own, and tells the other side where these are. */
  async serve(channel: Channel): Promise<void> {
    const { spec, place } = this.#test;
    const listening = new Promise<void>((resolve) => {
      this.#onListening = resolve;
    });
    this.start(
      Array.from({ length: spec.threads }, (_, index) => {
        return 'path' in place! ? { path: `${place.path}.${index}` } : { ...place!, port: 0 };
      }),
    );
    await Promise.race([listening, this.end()]);
    channel.send({ type: 'threads', places: this.#places });
  }

  /** Asks them to end. */
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

/** The places of the other side's channels: on its host, or beside its socket. @throws UcxError ERR_INVALID_PARAM */
function placesOf(message: { readonly [field: string]: unknown }, { spec, place }: ThreadedTest): Place[] {
  const { places } = message;
  if (!Array.isArray(places) || places.length !== spec.threads) {
    throw invalidParam('threads of the peer', `must have ${spec.threads} places`, places);
  }
  return places.map((each: unknown, index) => {
    const { port } = (each ?? {}) as { readonly port?: unknown };
    if ('path' in place!) return { path: `${place.path}.${index}` };
    if (Number.isInteger(port) && (port as number) > 0 && (port as number) <= 65_535)
      return { ...place!, port: port as number };
    throw invalidParam('threads of the peer', 'must have ports', port);
  });
}
