/**
 * Session of one test: opens a side, connects it to the other side over the channel, and runs the loops in slices.
 */

import { setImmediate as afterEvents } from 'node:timers/promises';
import { schedYield } from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Channel, ChannelMessage, Place } from './channel.ts';
import { type Loop, type LoopOptions, PingPongLoop, ReceiverLoop, ResponderLoop, SenderLoop } from './loops.ts';
import { type Measurement, Meter, SpinBudget, Steadiness } from './measure.ts';
import { openSide, openTraffic, type Side } from './side/side.ts';
import type { Traffic } from './side/traffic.ts';
import { isOneSided, messageBytes, type TestSpec, warmUpOf } from './spec.ts';

/** Time between two turns of the event loop, which detects signals and the end of the peer. */
const SLICE_NS = 50e6;
/** The same for a side that only makes progress. */
const RESPONDER_SLICE_NS = 5e6;
const REPORT_NS = 1e9;

/**
 * Role of this side, its channel to the other one, and the address of the server. The server replies in streams and begins in ping-pongs, as in ucx_perftest.
 */
export type Meeting =
  | { readonly role: 'loopback'; readonly channel?: undefined; readonly place?: undefined }
  | { readonly role: 'server' | 'client'; readonly channel: Channel; readonly place: Place };

/** A test, and the side that runs it. */
export type SessionOptions = Meeting & SessionEnvironment;

/** Environment of a test. */
interface SessionEnvironment {
  readonly spec: TestSpec;
  /** Aborted when the user interrupts the test. */
  readonly interrupt: AbortSignal;
  /** Called when both sides are connected and the test begins. */
  readonly onStart: (side: Side) => void;
  /** Called with the number of completed iterations, in runs longer than a moment. @param isMeasured false for the warm-up */
  readonly onProgress?: (iterations: number, isMeasured: boolean) => void;
  /** Called with the results on the side that shows them. */
  readonly onReport: (measurement: Measurement, isFinal: boolean, carrier: string) => void;
}

/**
 * Runs a test.
 * @throws UcxError of the side, of the peer, of a message that failed; CANCELED when `interrupt` fires
 */
export async function runTest(options: SessionOptions): Promise<void> {
  const side = await openSide(options.spec);
  try {
    await meet(options, side);
    options.onStart(side);
    const traffic = openTraffic(side);
    try {
      await new Session(options, traffic).run();
    } finally {
      traffic.close();
    }
  } finally {
    await side.close();
  }
}

/** Sends address and key of this side to the other side, and connects to it. */
async function meet({ channel }: SessionOptions, side: Side): Promise<void> {
  const own = side.greet();
  if (channel === undefined) {
    side.connect({ ...own });
    return;
  }
  channel.send({ type: 'side', ...own });
  side.connect(await channel.receive('side'));
}

/** Iterations of a round, from a message of the other side. @throws UcxError ERR_INVALID_PARAM */
function countOf({ iterations }: ChannelMessage): number {
  const count = Number(iterations);
  if (!Number.isSafeInteger(count) || count < 0)
    throw invalidParam('warm-up of the peer', 'must be a count', iterations);
  return count;
}

/** The runs of one test. */
class Session {
  readonly #options: SessionOptions;
  readonly #traffic: Traffic;
  readonly #isPingPong: boolean;

  constructor(options: SessionOptions, traffic: Traffic) {
    this.#options = options;
    this.#traffic = traffic;
    this.#isPingPong = options.spec.kind.pattern === 'ping-pong';
  }

  async run(): Promise<void> {
    const { spec, role } = this.#options;
    await this.#warmUp(warmUpOf(spec));
    const meter = await this.#runOnce(spec.iterations, true);
    if (role !== 'server') this.#options.onReport(meter.result(), true, this.#traffic.carrier);
  }

  /**
   * Runs as many iterations as the warm-up of ucx_perftest. Unless the user chose their number, further rounds follow until the rate is steady, so that
   * compiled code is measured. The side with the results decides.
   */
  async #warmUp(iterations: number): Promise<void> {
    const { channel, role, spec } = this.#options;
    const steadiness = new Steadiness();
    for (let next = iterations; next > 0; ) {
      const meter = await this.#runOnce(next, false);
      if (role === 'server') {
        next = countOf(await channel.receive('warm-up'));
      } else {
        const iterationNs = meter.result().overallNs * this.#messagesPerIteration;
        next = spec.steady ? steadiness.nextRound(iterationNs, next) : 0;
        channel?.send({ type: 'warm-up', iterations: next });
      }
    }
  }

  async #runOnce(iterations: number, isMeasured: boolean): Promise<Meter> {
    const { role, spec } = this.#options;
    const traffic = this.#traffic;
    const meter = this.#meter(iterations);
    traffic.reset();
    await this.#barrier();
    const isIdle = spec.passive && !this.#isPingPong && role === 'server';
    if (!isIdle) await this.#drive(this.#loop(meter, iterations), meter, isMeasured);
    // The target of one-sided operations has waited in its loop for this barrier message of the sender: its call returns at once.
    await this.#barrier();
    if (role !== 'server') traffic.checkSent();
    if (role !== 'client') traffic.checkReceived(iterations);
    await this.#barrier();
    return meter;
  }

  /** A ping-pong is one message in each direction. */
  get #messagesPerIteration(): number {
    return this.#isPingPong ? 2 : 1;
  }

  #meter(iterations: number): Meter {
    const { spec } = this.#options;
    return new Meter({
      clock: systemClock,
      iterations,
      bytesPerIteration: messageBytes(spec),
      messagesPerIteration: this.#messagesPerIteration,
      percentile: spec.percentile,
    });
  }

  #loop(meter: Meter, iterations: number): Loop {
    const { spec, role, channel } = this.#options;
    const { window } = spec;
    const options: LoopOptions = {
      clock: systemClock,
      traffic: this.#traffic,
      meter,
      iterations,
      window,
      progresses: !spec.passive,
      spin: new SpinBudget(schedYield),
      sleeps: spec.wait === 'sleep',
    };
    const isAccess = isOneSided(spec.kind.operation);
    if (this.#isPingPong) return new PingPongLoop(options, role !== 'client');
    if (role !== 'server') return new SenderLoop(options, role === 'loopback' && !isAccess);
    return isAccess ? new ResponderLoop(options, () => channel.hasMessage) : new ReceiverLoop(options);
  }

  async #drive(loop: Loop, meter: Meter, isMeasured: boolean): Promise<void> {
    const { onReport, role } = this.#options;
    const reports = isMeasured && role !== 'server';
    const sliceNs = loop instanceof ResponderLoop ? RESPONDER_SLICE_NS : SLICE_NS;
    while (!(await this.#slice(loop, sliceNs))) {
      if (loop.isIdle) {
        // The iteration continues after the sleep, which its time includes.
        await this.#sleep();
        if (meter.sinceReportNs < REPORT_NS) continue;
      } else {
        await this.#handleEvents();
        meter.interrupt();
      }
      this.#options.onProgress?.(meter.iterations, isMeasured);
      if (reports && meter.iterations > 0 && meter.sinceReportNs >= REPORT_NS) {
        onReport(meter.report(), false, this.#traffic.carrier);
      }
    }
  }

  /** A message may fail because the peer has ended; the channel then has the more precise error. */
  async #slice(loop: Loop, sliceNs: number): Promise<boolean> {
    try {
      return loop.slice(sliceNs);
    } catch (error) {
      await this.#handleEvents();
      throw error;
    }
  }

  /** Waits for the other side at a barrier and makes progress meanwhile, because the other side may need it. */
  async #barrier(): Promise<void> {
    const { channel, spec, role } = this.#options;
    if (channel === undefined) return;
    if (spec.passive && role === 'server') {
      await channel.barrier();
      return;
    }
    let hasMet = false;
    const meeting = channel.barrier().finally(() => {
      hasMet = true;
    });
    // The first failure ends the wait; a later one is ignored.
    meeting.catch(() => undefined);
    while (!hasMet) {
      this.#traffic.progress();
      await this.#handleEvents();
    }
    await meeting;
  }

  /** Sleeps until the worker has an event, the user interrupts the test, or the channel has a message. */
  async #sleep(): Promise<void> {
    const { interrupt, channel } = this.#options;
    const wake = new AbortController();
    const end = (): void => wake.abort();
    interrupt.addEventListener('abort', end);
    const stopListening = channel?.onEnd(end);
    try {
      if (!interrupt.aborted) await this.#traffic.sleep(wake.signal);
    } catch (error) {
      if (!wake.signal.aborted) throw error;
    } finally {
      interrupt.removeEventListener('abort', end);
      stopListening?.();
    }
    await this.#handleEvents();
  }

  /** Lets the event loop run. @throws UcxError CANCELED after an interruption; the error of the channel if it has ended */
  async #handleEvents(): Promise<void> {
    await afterEvents();
    const { interrupt, channel } = this.#options;
    if (interrupt.aborted) throw statusError(Status.CANCELED, 'perftest');
    channel?.check();
  }
}
