/** `info -p`, `-w`, `-e` and `-m`: data of a context, a worker, an endpoint and an allocation of UCP in this process. */

import { type Context, Context as ContextFactory } from '../../assembly/context.ts';
import type { Feature } from '../../ucp/api/features.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../ucs/type/error.ts';

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

/** The requested parts. */
export interface UcpInfoOptions {
  readonly features: readonly Feature[];
  readonly context: boolean;
  readonly worker: boolean;
  readonly endpoint: boolean;
  /** Bytes to allocate; undefined for none. */
  readonly memoryBytes: number | undefined;
}

/** The data; parts that were not requested are undefined. */
export interface UcpReport {
  readonly context?: {
    readonly engine: string;
    readonly memoryTypes: readonly string[];
    readonly unavailable: readonly { readonly name: string; readonly reason: string }[];
  };
  readonly worker?: { readonly addressBytes: number };
  /** Transports and devices of an endpoint to the worker itself. */
  readonly endpoint?: { readonly transports: readonly string[] };
  readonly memory?: { readonly byteLength: number; readonly address: bigint; readonly memoryType: string };
}

/**
 * The features that letters name.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function featuresOf(letters: string): readonly Feature[] {
  const features = [...letters].flatMap((letter) => {
    if (!Object.hasOwn(FEATURE_LETTERS, letter)) {
      throw invalidParam('-u', `must have the letters ${Object.keys(FEATURE_LETTERS).join(', ')} only`, letters);
    }
    return FEATURE_LETTERS[letter]!;
  });
  if (features.length === 0) throw invalidParam('-u', 'must have one of a, r, t, s, m', letters);
  return features;
}

/** Opens a context and reads its data. Throws the errors of Context.create and memMap. */
export async function readUcp(options: UcpInfoOptions): Promise<UcpReport> {
  await using context: Context = await ContextFactory.create({ features: options.features });
  const { memoryTypes, unavailable } = context.query();
  const worker = context.worker();
  return {
    ...(options.context && {
      context: {
        engine: `${context.engine.name} ${context.engine.version}`,
        memoryTypes: memoryTypes.map(memoryTypeName),
        unavailable,
      },
    }),
    ...(options.worker && { worker: { addressBytes: worker.address().byteLength } }),
    ...(options.endpoint && { endpoint: { transports: worker.endpoint(worker.address()).transports } }),
    ...(options.memoryBytes !== undefined && { memory: allocated(context, options.memoryBytes) }),
  };
}

function allocated(context: Context, bytes: number): NonNullable<UcpReport['memory']> {
  const { byteLength, address, memoryType } = context.memMap({ allocate: bytes });
  return { byteLength, address, memoryType: memoryTypeName(memoryType) };
}

/** The text of a report. */
export function ucpText({ context, worker, endpoint, memory }: UcpReport): string {
  return [
    ...(context === undefined
      ? []
      : [
          '#',
          '# UCP context',
          '#',
          `#            engine: ${context.engine}`,
          `#      memory types: ${context.memoryTypes.join(', ')}`,
          ...context.unavailable.map(({ name, reason }) => `#          not used: ${name}: ${reason}`),
          '#',
        ]),
    ...(worker === undefined
      ? []
      : ['#', '# UCP worker', '#', `#           address: ${worker.addressBytes} bytes`, '#']),
    ...(endpoint === undefined
      ? []
      : [
          '#',
          '# UCP endpoint',
          '#',
          '#              peer: the same worker (gaudi-ucx explain --peer process: another process)',
          ...endpoint.transports.map((name, index) => `#           lane[${index}]: ${name}`),
          '#    protocols, from: gaudi-ucx explain',
          '#',
        ]),
    ...(memory === undefined
      ? []
      : [
          '#',
          '# UCP memory',
          '#',
          `#         allocated: ${memorySizeType.print(memory.byteLength)} of ${memory.memoryType} memory at 0x${memory.address.toString(16)}`,
          '#',
        ]),
  ].join('\n');
}
