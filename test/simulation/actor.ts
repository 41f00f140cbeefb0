/**
 * The hosts of a schedule, and its actors: workers on them, real contexts over simulated transports. A host has its own clock, so that its timers
 * end when it dies.
 */

import { Udmabuf } from '../../src/sys/index.ts';
import { Context } from '../../src/ucp/core/context.ts';
import type { Worker } from '../../src/ucp/core/worker.ts';
import { UCP_CONFIG_TABLE } from '../../src/ucp/resources/config.ts';
import { type Config, loadConfig } from '../../src/ucs/config/config.ts';
import { createLog, LogLevel } from '../../src/ucs/debug/log.ts';
import type { Clock, Timer } from '../../src/ucs/sys/clock.ts';
import { ContextDmabufs } from '../../src/uct/base/host/dmabufs.ts';
import { selfComponent } from '../../src/uct/self/md.ts';
import type { LaneOptions } from './lane.ts';
import { type SimulatedMd, simulatedComponent } from './memory-domain.ts';
import type { Network } from './network.ts';
import type { Variation } from './variation.ts';

const DEFAULTS: Config = loadConfig([UCP_CONFIG_TABLE]);

/** The time of a host, whose timers end with it. */
class HostClock implements Clock {
  readonly #clock: Clock;
  readonly #timers: Set<Timer> = new Set();
  #isStopped = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  nowNs(): number {
    return this.#clock.nowNs();
  }

  setTimer(delayNs: number, callback: () => void): Timer {
    const timer = this.#clock.setTimer(delayNs, () => {
      this.#timers.delete(timer);
      callback();
    });
    if (this.#isStopped) timer.cancel();
    else this.#timers.add(timer);
    return timer;
  }

  stop(): void {
    this.#isStopped = true;
    for (const timer of this.#timers) timer.cancel();
  }
}

/** A host: one process with one context. */
export class Host {
  readonly id: number;
  readonly context: Context;
  readonly mds: SimulatedMd[] = [];
  isDead = false;
  readonly #clock: HostClock;

  /** @param onWarning receives the warnings and errors that the context logs */
  constructor(id: number, network: Network, variation: Variation, onWarning: (message: string) => void) {
    this.id = id;
    this.#clock = new HostClock(network.clock);
    const place = { network, host: id, mds: this.mds };
    const mds = [...new Set(variation.lanes.map(({ md }) => md))];
    const lanesOf = (md: string): LaneOptions[] => variation.lanes.filter((lane) => lane.md === md);
    const simulated = mds.map((md) => simulatedComponent(place, lanesOf(md)));
    this.context = new Context({
      components: variation.hasSelf ? [...simulated, selfComponent()] : simulated,
      config: configOf(variation),
      log: createLog(`host${id}`, LogLevel.WARN, (_level, source, message) => onWarning(`${source}: ${message}`)),
      clock: this.#clock,
      engine: { name: 'native', version: '0', reason: 'a simulation' },
      emulated: true,
      cardNode: { kind: 'private', pid: undefined, socket: undefined },
      newSignal: () => ({ fd: -1, signal: () => {}, tryRead: () => 0, close: () => {} }),
      hostRange: () => {
        throw new TypeError('a schedule has no memory of others');
      },
      hostDmabufs: new ContextDmabufs(new Udmabuf()),
      distanceOf: () => undefined,
      deviceOf: () => {
        throw new TypeError('a schedule has no cards of hl-thunk');
      },
      onClose: () => {},
    });
  }

  /** The time of this host. */
  get clock(): Clock {
    return this.#clock;
  }

  die(): void {
    this.isDead = true;
    this.#clock.stop();
  }
}

/** An actor of the schedule: a worker, which starts operations and makes progress. */
export class Actor {
  readonly id: number;
  readonly host: Host;
  readonly worker: Worker;
  /** Its worker is being closed, or is closed. */
  isClosing = false;
  isClosed = false;
  /** Makes no progress until this step: a stopped process. */
  stalledUntil = 0;
  readonly serving: AbortController | undefined;

  constructor(id: number, host: Host, isServed: boolean) {
    this.id = id;
    this.host = host;
    this.worker = host.context.worker({ progress: 'manual' });
    if (!isServed) return;
    this.serving = new AbortController();
    void this.worker.serve(this.serving.signal);
  }

  /** Whether it can still start operations. */
  get isActive(): boolean {
    return !this.isClosing && !this.host.isDead;
  }

  /** Whether its progress may be called. */
  get isRunning(): boolean {
    return !this.isClosed && !this.host.isDead;
  }

  toString(): string {
    return `w${this.id}`;
  }
}

/** The defaults with the choices of the seed: also values that users cannot set, so that little data has many parts. */
function configOf(variation: Variation): Config {
  const { keepaliveNs, rendezvousThreshold, fragmentBytes, fragmentCount, unexpectedBytesMax } = variation;
  const values = {
    ...DEFAULTS.get(UCP_CONFIG_TABLE),
    PROGRESS_SPIN: 0,
    KEEPALIVE_INTERVAL: keepaliveNs,
    RNDV_THRESH: { default: rendezvousThreshold },
    UNEXP_MAX_BYTES: unexpectedBytesMax,
    RNDV_FRAG_SIZE: fragmentBytes,
    RNDV_FRAG_ALLOC_COUNT: fragmentCount,
  };
  return { ...DEFAULTS, get: <V>() => values as unknown as Readonly<V> };
}
