/**
 * `info -p`, `-w`, `-e` and `-m`: data of a context, a worker, an endpoint and an allocation of UCP in this process. `info -c -a`: the variables of C UCX
 * that this library does not read, in groups with the reason, as comments, so that the output can be read back as a configuration.
 */

import { readdirSync } from 'node:fs';
import type { Feature } from '../../api/contract/context.ts';
import { type Context, Context as ContextFactory } from '../../assembly/context.ts';
import { UCX_VARIABLE_GROUPS, UCX_VARIABLES_VERSION, type UcxVariableGroup } from '../../libucx/c/ucx-variables.ts';
import type { UnusedVariable } from '../../ucs/config/config.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { MEGABYTE } from '../base/text-table.ts';

/** The letters of -u; `w` and `e`, the modifiers of ucx_info, are always on here. */
const FEATURE_LETTERS: Readonly<Record<string, readonly Feature[]>> = {
  a: ['amo32', 'amo64'],
  r: ['rma'],
  t: ['tag'],
  s: ['stream'],
  m: ['am'],
  w: [],
  e: [],
};

/** The requested sections. */
export interface UcpInfoOptions {
  readonly features: readonly Feature[];
  readonly context: boolean;
  readonly worker: boolean;
  readonly endpoint: boolean;
  /** Bytes to allocate; undefined for none. */
  readonly memoryBytes: number | undefined;
}

/** Cost of creating an object in this process. */
interface Cost {
  readonly createMs: number;
  readonly memoryBytes: number;
  readonly descriptors: number;
}

/** The data; sections that were not requested are undefined. `text` is that of printInfo(). */
export interface UcpReport {
  readonly context?: Cost & {
    readonly text: string;
    readonly engine: string;
    readonly memoryTypes: readonly string[];
    readonly unavailable: readonly { readonly name: string; readonly reason: string }[];
  };
  readonly worker?: Cost & { readonly text: string; readonly addressBytes: number };
  /** Text, transports and devices of an endpoint to the worker itself. */
  readonly endpoint?: { readonly text: string; readonly transports: readonly string[] };
  readonly memory?: { readonly byteLength: number; readonly address: bigint; readonly memoryType: string };
}

/**
 * The features for a string of letters.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function featuresOf(letters: string): readonly Feature[] {
  const features = [...letters].flatMap((letter) => {
    if (!Object.hasOwn(FEATURE_LETTERS, letter)) {
      throw invalidParam('-u', `must have only the letters ${Object.keys(FEATURE_LETTERS).join(', ')}`, letters);
    }
    return FEATURE_LETTERS[letter]!;
  });
  if (features.length === 0) throw invalidParam('-u', 'must include at least one of a, r, t, s, m', letters);
  return features;
}

/** Opens a context and reads its data. Throws the errors of Context.create and memMap. */
export async function readUcp(options: UcpInfoOptions): Promise<UcpReport> {
  const opening = new CostMeter();
  await using context: Context = await ContextFactory.create({ features: options.features });
  const contextCost = opening.read();
  const { memoryTypes, unavailable } = context.query();
  const making = new CostMeter();
  const worker = context.worker();
  const addressBytes = worker.address().byteLength;
  const workerCost = making.read();
  return {
    ...(options.context && {
      context: {
        ...contextCost,
        text: context.printInfo(),
        engine: `${context.engine.name} ${context.engine.version}`,
        memoryTypes: memoryTypes.map(memoryTypeName),
        unavailable,
      },
    }),
    ...(options.worker && { worker: { ...workerCost, text: worker.printInfo(), addressBytes } }),
    ...(options.endpoint && { endpoint: endpointOf(worker) }),
    ...(options.memoryBytes !== undefined && { memory: allocated(context, options.memoryBytes) }),
  };
}

function endpointOf(worker: ReturnType<Context['worker']>): NonNullable<UcpReport['endpoint']> {
  const endpoint = worker.endpoint(worker.address());
  return { text: endpoint.printInfo(), transports: endpoint.transports };
}

function allocated(context: Context, bytes: number): NonNullable<UcpReport['memory']> {
  const { byteLength, address, memoryType } = context.memMap({ allocate: bytes });
  return { byteLength, address, memoryType: memoryTypeName(memoryType) };
}

/** Measures the cost of an object, from the creation of the meter to `read()`. */
class CostMeter {
  readonly #startNs: number = systemClock.nowNs();
  readonly #rss: number = process.memoryUsage.rss();
  readonly #descriptors: number = openDescriptors();

  read(): Cost {
    return {
      createMs: (systemClock.nowNs() - this.#startNs) / 1e6,
      memoryBytes: Math.max(0, process.memoryUsage.rss() - this.#rss),
      descriptors: openDescriptors() - this.#descriptors,
    };
  }
}

function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

/** The text of a report. */
export function ucpText({ context, worker, endpoint, memory }: UcpReport): string {
  return [
    ...(memory === undefined ? [] : memoryLines(memory)),
    ...(context === undefined
      ? []
      : [
          context.text.trimEnd(),
          `#      memory types: ${context.memoryTypes.join(', ')}`,
          ...context.unavailable.map(({ name, reason }) => `#          not used: ${name}: ${reason}`),
          '#',
          ...costLines(context),
        ]),
    ...(worker === undefined ? [] : [worker.text.trimEnd(), ...costLines(worker)]),
    ...(endpoint === undefined ? [] : [endpoint.text.trimEnd()]),
  ].join('\n');
}

function memoryLines({ byteLength, address, memoryType }: NonNullable<UcpReport['memory']>): string[] {
  const size = memorySizeType.print(byteLength);
  const what = `#  allocated ${size} of ${memoryType} memory at address 0x${address.toString(16)}`;
  return ['#', '# UCP memory allocation', '#', what, '#'];
}

/** Cost lines, as ucx_info prints them after a context and a worker. */
function costLines({ createMs, memoryBytes, descriptors }: Cost): string[] {
  const megabytes = (memoryBytes / MEGABYTE).toFixed(2);
  return [
    `# memory: ${megabytes}MB, file descriptors: ${descriptors}`,
    `# create time: ${createMs.toFixed(3)} ms`,
    '#',
  ];
}

const TITLES: Readonly<Record<UcxVariableGroup['use'], string>> = {
  none: 'without effect here',
  refused: 'rejected, except with a value that changes nothing',
};

/** The text. @param unused variables that are set; their values are shown @param filter only names that contain it */
export function ucxVariablesText(unused: readonly UnusedVariable[], filter = ''): string {
  const values = new Map(unused.map(({ variable, text }) => [variable, text]));
  const parts = UCX_VARIABLE_GROUPS.flatMap(({ use, reason, names }) => {
    const lines = names
      .map((name) => `UCX_${name}`)
      .filter((name) => name.includes(filter))
      .map((name) => `# ${name}${values.has(name) ? `=${values.get(name)}` : ''}`);
    return lines.length === 0
      ? []
      : ['#', `# variables of C UCX ${UCX_VARIABLES_VERSION} ${TITLES[use]}: ${reason}`, ...lines];
  });
  return parts.join('\n');
}
