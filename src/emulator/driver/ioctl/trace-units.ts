/**
 * What the driver checks before it programs a trace unit of coresight. The units of an emulated card produce no trace: only the sinks have state.
 * Source: gaudi_debug_coresight of gaudi_coresight.c, gaudi2_debug_coresight of gaudi2_coresight.c, Linux 6.12.
 */

import { Errno } from '../../../sys/index.ts';
import { HL_DEBUG_OP, HL_DEBUG_PARAMS_ETR, HL_DEBUG_PARAMS_SPMU } from '../../../uapi/index.ts';

/** Units of each op, by generation: the lengths of the tables debug_*_regs. */
const UNITS: Readonly<Record<'gaudi' | 'gaudi2', ReadonlyMap<number, number>>> = {
  gaudi: new Map<number, number>([
    [HL_DEBUG_OP.ETF, 48],
    [HL_DEBUG_OP.STM, 46],
    [HL_DEBUG_OP.FUNNEL, 76],
    [HL_DEBUG_OP.BMON, 121],
    [HL_DEBUG_OP.SPMU, 40],
  ]),
  gaudi2: new Map<number, number>([
    [HL_DEBUG_OP.ETF, 141],
    [HL_DEBUG_OP.STM, 139],
    [HL_DEBUG_OP.FUNNEL, 141],
    [HL_DEBUG_OP.BMON, 385],
    [HL_DEBUG_OP.SPMU, 137],
  ]),
};

/** SPMU_MAX_COUNTERS. */
const SPMU_COUNTERS = 6;
/** The least number of event types on gaudi (gaudi_config_spmu). */
const GAUDI_SPMU_MIN_EVENTS = 3;
/** Words of an SPMU's output after its counters: the overflow and the cycle count. */
const SPMU_EXTRA_WORDS = 2;

/** The one sink that is not an ETF, in the keys of {@link TraceUnits}. */
const ETR = -1;

/** Arguments of an op, copied from the caller. */
export interface TraceRequest {
  readonly op: number;
  readonly unit: number;
  readonly enable: boolean;
  /** Undefined if the caller gave none. */
  readonly input: DataView | undefined;
  /** Bytes of the output; 0 if the caller wants none. */
  readonly outputBytes: number;
}

/** The trace units of a context. */
export class TraceUnits {
  readonly #asic: 'gaudi' | 'gaudi2';
  /** The sinks that are enabled. */
  readonly #sinks: Set<number> = new Set();

  constructor(asic: 'gaudi' | 'gaudi2') {
    this.#asic = asic;
  }

  /** The driver's answer to a request: 0 or a negative errno. */
  configure(request: TraceRequest): number {
    const { op, unit, enable, input } = request;
    const units = UNITS[this.#asic].get(op);
    if (units !== undefined && unit >= units) return -Errno.EINVAL;
    if (op === HL_DEBUG_OP.ETR) return this.#configureSink(ETR, request, hasBuffer);
    if (op === HL_DEBUG_OP.ETF) return this.#configureSink(unit, request, isGiven);
    if (op === HL_DEBUG_OP.SPMU) return this.#configureSpmu(request);
    const needsInput = op === HL_DEBUG_OP.STM || op === HL_DEBUG_OP.BMON;
    return needsInput && enable && input === undefined ? -Errno.EINVAL : 0;
  }

  /** Stops all sinks, at the end of debug mode (gaudi_halt_coresight, gaudi2_halt_coresight). */
  halt(): void {
    this.#sinks.clear();
  }

  /** A sink that is already in the state is left as it is, whatever the parameters. */
  #configureSink(sink: number, { enable, input }: TraceRequest, accepts: (input?: DataView) => boolean): number {
    if (this.#sinks.has(sink) === enable) return 0;
    if (!enable) this.#sinks.delete(sink);
    else if (accepts(input)) this.#sinks.add(sink);
    else return -Errno.EINVAL;
    return 0;
  }

  #configureSpmu({ enable, input, outputBytes }: TraceRequest): number {
    const isGaudi = this.#asic === 'gaudi';
    if (enable) {
      if (input === undefined) return -Errno.EINVAL;
      const events = input.getUint32(HL_DEBUG_PARAMS_SPMU.words.event_types_num * 4, true);
      return events > SPMU_COUNTERS || (isGaudi && events < GAUDI_SPMU_MIN_EVENTS) ? -Errno.EINVAL : 0;
    }
    // gaudi reads the counters whenever it stops a unit, and needs a place for them.
    const outputWords = Math.floor(outputBytes / 8);
    if (isGaudi && outputWords <= SPMU_EXTRA_WORDS) return -Errno.EINVAL;
    return outputWords > SPMU_EXTRA_WORDS + SPMU_COUNTERS ? -Errno.EINVAL : 0;
  }
}

function isGiven(input?: DataView): boolean {
  return input !== undefined;
}

function hasBuffer(input?: DataView): boolean {
  return input !== undefined && input.getBigUint64(HL_DEBUG_PARAMS_ETR.words.buffer_size * 4, true) !== 0n;
}
