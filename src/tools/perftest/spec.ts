/**
 * Specification of one test: made from the options, checked, and sent to the other side. Also the tests of ucx_perftest by name, with operation, pattern and
 * table titles.
 */

import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** Byte limit of a message, with all elements of a list. */
const MESSAGE_BYTES_MAX = 2 ** 40;
/** Byte limit of a range of host memory: that of a Uint8Array. */
const HOST_BYTES_MAX = 2 ** 32;
const SIZES_MAX = 1024;
const ITERATIONS_MAX = 2 ** 40;
const WINDOW_MAX = 4096;
const HEADER_BYTES_MAX = 4096;
const THREADS_MAX = 64;
/** Header of an active message of a transport: the sequence number. */
export const UCT_HEADER_BYTES = 8;
/** Sequence numbers have 8 bits: a flow control window is less than half of their range. */
const FLOW_WINDOW_MAX = 127;

export const MEMORY_NAMES = ['host', 'gaudi'] as const;
export type MemoryName = (typeof MEMORY_NAMES)[number];
export const LAYOUTS = ['short', 'bcopy', 'zcopy'] as const;
export type Layout = (typeof LAYOUTS)[number];
export const DATATYPES = ['contig', 'iov'] as const;
export type Datatype = (typeof DATATYPES)[number];

/** Wait modes of a side: polling, or sleeping until its worker has an event. */
export const WAIT_MODES = ['poll', 'sleep'] as const;
export type WaitMode = (typeof WAIT_MODES)[number];

/** A test and its parameters. */
export interface TestSpec {
  readonly kind: TestKind;
  /** Bytes of the elements of a message. */
  readonly sizes: readonly number[];
  readonly iterations: number;
  readonly warmUp: number;
  /** True if the warm-up continues until the rate is steady; false if the user chose its iterations, which are then those of ucx_perftest. */
  readonly steady: boolean;
  /** Maximum number of outstanding operations. */
  readonly window: number;
  /** Bytes from the start of one element to the next; 0 for contiguous elements. */
  readonly stride: number;
  readonly sendMemory: MemoryName;
  readonly recvMemory: MemoryName;
  readonly percentile: number;
  /** The target of a one-sided test makes no progress. */
  readonly passive: boolean;
  /** Data is checked. */
  readonly verify: boolean;
  /** UCT: transport and device, layout, and flow control window in messages. */
  readonly transport: string;
  readonly device: string;
  readonly layout: Layout;
  readonly flowWindow: number;
  /** Bytes of the header of active messages. */
  readonly headerBytes: number;
  /** UCP. */
  readonly sendType: Datatype;
  readonly recvType: Datatype;
  readonly wildcard: boolean;
  readonly unexpected: boolean;
  readonly streamData: boolean;
  readonly errorHandling: boolean;
  /** Operations get memory handles, not bytes. */
  readonly mapped: boolean;
  readonly wait: WaitMode;
  /** Threads of each side. */
  readonly threads: number;
}

/** A test whose parameters are unchecked. */
export type UncheckedSpec = Pick<TestSpec, 'kind'> & { readonly [K in keyof TestSpec]?: unknown };

/** Bytes of one message. */
export function messageBytes({ sizes }: Pick<TestSpec, 'sizes'>): number {
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** Bytes of memory from the first to the last byte of a message. */
export function messageExtent({ sizes, stride }: Pick<TestSpec, 'sizes' | 'stride'>): number {
  return stride === 0 ? messageBytes({ sizes }) : stride * (sizes.length - 1) + (sizes.at(-1) ?? 0);
}

/** Warm-up iterations: at most a tenth of the run, as in ucx_perftest. */
export function warmUpOf({ warmUp, iterations }: TestSpec): number {
  return Math.min(warmUp, Math.ceil(iterations / 10));
}

/** Encodes a test for the other side. */
export function packSpec(spec: TestSpec): object {
  return { ...spec, kind: spec.kind.name };
}

/**
 * Decodes a test of the other side.
 * @throws UcxError ERR_INVALID_PARAM that names the invalid field
 */
export function unpackSpec(value: unknown): TestSpec {
  if (typeof value !== 'object' || value === null) throw invalidParam('test', 'must be an object', value);
  const fields: Readonly<Record<string, unknown>> = { ...value };
  const kind = testNamed(String(fields['kind']));
  if (kind === undefined) throw invalidParam('test', 'must be a known test', fields['kind']);
  return checkSpec({ ...fields, kind });
}

/**
 * Checks everything that does not depend on a transport.
 * @throws UcxError ERR_INVALID_PARAM that names option, rule and value; ERR_UNSUPPORTED with the reason
 */
export function checkSpec(unchecked: UncheckedSpec): TestSpec {
  const spec = checkFields(unchecked);
  const { kind, sizes, stride } = spec;
  if (stride > 0 && sizes.some((size) => size > stride)) {
    throw invalidParam('-i', 'must be 0 or at least as long as every size', stride);
  }
  const bytes = messageBytes(spec);
  if (bytes > MESSAGE_BYTES_MAX) throw invalidParam('-s', `must be at most ${MESSAGE_BYTES_MAX} bytes`, bytes);
  checkHostBytes(spec);
  if (bytes < 1) throw invalidParam('-s', 'must be at least 1 byte', bytes);
  if (isAtomic(kind.operation) && bytes !== 4 && bytes !== 8) {
    throw invalidParam('-s', `must be 4 or 8 for ${kind.name}`, bytes);
  }
  if (spec.verify && spec.window > 1) throw invalidParam('-O', 'must be 1 if data is verified (-V)', spec.window);
  if (kind.api === 'UCT') checkUct(spec, bytes);
  else checkUcp(spec);
  return spec;
}

/** Checks that host memory can hold a message. Device memory is limited only by the card. */
function checkHostBytes(spec: TestSpec): void {
  if (spec.sendMemory !== 'host' && spec.recvMemory !== 'host') return;
  const rule = `must be at most ${HOST_BYTES_MAX} bytes in host memory`;
  const bytes = messageBytes(spec);
  if (bytes > HOST_BYTES_MAX) throw invalidParam('-s', rule, bytes);
  const extent = messageExtent(spec);
  if (extent > HOST_BYTES_MAX) throw invalidParam('-i', `(with the elements of a message) ${rule}`, extent);
}

function checkFields(spec: UncheckedSpec): TestSpec {
  return {
    kind: spec.kind,
    sizes: sizesOf(spec.sizes),
    iterations: integerOf('-n', spec.iterations, 1, ITERATIONS_MAX),
    warmUp: integerOf('-w', spec.warmUp, 0, ITERATIONS_MAX),
    window: integerOf('-O', spec.window, 1, WINDOW_MAX),
    stride: integerOf('-i', spec.stride, 0, MESSAGE_BYTES_MAX),
    headerBytes: integerOf('-H', spec.headerBytes, 0, HEADER_BYTES_MAX),
    flowWindow: integerOf('-W', spec.flowWindow, 1, FLOW_WINDOW_MAX),
    threads: integerOf('-T', spec.threads, 1, THREADS_MAX),
    percentile: percentOf(spec.percentile),
    sendMemory: oneOf('-m', spec.sendMemory, MEMORY_NAMES),
    recvMemory: oneOf('-m', spec.recvMemory, MEMORY_NAMES),
    layout: oneOf('-D', spec.layout, LAYOUTS),
    sendType: oneOf('-D', spec.sendType, DATATYPES),
    recvType: oneOf('-D', spec.recvType, DATATYPES),
    wait: oneOf('-E', spec.wait, WAIT_MODES),
    transport: textOf('transport', spec.transport),
    device: textOf('device', spec.device),
    steady: flagOf('steady', spec.steady),
    passive: flagOf('passive', spec.passive),
    verify: flagOf('verify', spec.verify),
    wildcard: flagOf('wildcard', spec.wildcard),
    unexpected: flagOf('unexpected', spec.unexpected),
    streamData: flagOf('streamData', spec.streamData),
    errorHandling: flagOf('errorHandling', spec.errorHandling),
    mapped: flagOf('mapped', spec.mapped),
  };
}

function checkUct(spec: TestSpec, bytes: number): void {
  const { kind, layout, sizes } = spec;
  const { operation, name } = kind;
  if (spec.threads > 1) throw unsupported(`-T ${spec.threads} for ${name}`, 'threads use UCP workers');
  if (spec.wait === 'sleep') throw unsupported(`-E sleep for ${name}`, 'transports are only polled');
  if (spec.transport === '') throw invalidParam('-x', `must name the transport for ${name}`, spec.transport);
  if (spec.device === '') throw invalidParam('-d', `must name the device for ${name}`, spec.device);
  if (isAtomic(operation) && layout !== 'short') throw invalidParam('-D', `must be short for ${name}`, layout);
  if (sizes.length > 1) throw unsupported('a list of sizes (-s)', 'transports take one range of memory');
  if (layout === 'bcopy' && operation !== 'am') {
    throw unsupported(
      `-D bcopy for ${name}`,
      'transports support bcopy only for active messages; use short, which copies too',
    );
  }
  if (spec.headerBytes !== UCT_HEADER_BYTES) {
    throw unsupported(
      `-H ${spec.headerBytes} for ${name}`,
      `the header is the sequence number, ${UCT_HEADER_BYTES} bytes`,
    );
  }
  if (operation === 'am' && bytes < UCT_HEADER_BYTES)
    throw invalidParam('-s', `must be at least ${UCT_HEADER_BYTES} for ${name}: the size includes the header`, bytes);
}

function checkUcp(spec: TestSpec): void {
  const { operation, name } = spec.kind;
  if (spec.wait === 'sleep' && isOneSided(operation)) {
    throw unsupported(`-E sleep for ${name}`, 'the other side gets no event for a put, get or atomic operation');
  }
  const takesIov = !isAtomic(operation);
  if (!takesIov && (spec.sendType === 'iov' || spec.recvType === 'iov')) {
    throw unsupported(`-D iov for ${name}`, 'an atomic operation has one word');
  }
  if (!takesIov && spec.sizes.length > 1)
    throw unsupported(`a list of sizes (-s) for ${name}`, 'an atomic operation has one word');
  if (isOneSided(operation) && spec.recvType === 'iov') {
    throw unsupported(`-D contig,iov for ${name}`, 'the remote memory is one range');
  }
}

function sizesOf(value: unknown): number[] {
  if (!Array.isArray(value)) throw invalidParam('sizes', 'must be a list', value);
  if (value.length === 0 || value.length > SIZES_MAX) {
    throw invalidParam('-s', `must have 1 to ${SIZES_MAX} sizes`, value.length);
  }
  return value.map((size) => integerOf('-s', size, 0, MESSAGE_BYTES_MAX));
}

function integerOf(option: string, value: unknown, min: number, max: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
  throw invalidParam(option, `must be an integer from ${min} to ${max}`, value);
}

function percentOf(value: unknown): number {
  if (typeof value === 'number' && value >= 0 && value <= 100) return value;
  throw invalidParam('-R', 'must be from 0 to 100', value);
}

function oneOf<T extends string>(option: string, value: unknown, names: readonly T[]): T {
  const found = names.find((name) => name === value);
  if (found === undefined) throw invalidParam(option, `must be one of ${names.join(', ')}`, value);
  return found;
}

function textOf(name: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw invalidParam(name, 'must be a string', value);
}

function flagOf(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw invalidParam(name, 'must be true or false', value);
}

/** Error for an option of ucx_perftest that this tool does not have. */
export function unsupported(what: string, reason: string): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: `${what} is not supported: ${reason}`,
  });
}

/** The operation of a test. */
export type Operation = 'am' | 'put' | 'get' | 'add' | 'fadd' | 'swap' | 'cswap' | 'tag' | 'tag_sync' | 'stream';

/** One test. */
interface TestKind {
  readonly name: string;
  /** UCT: over one interface. UCP: over an endpoint, which selects the transport. */
  readonly api: 'UCT' | 'UCP';
  readonly operation: Operation;
  /** Each side replies to the other, or one side sends continuously. */
  readonly pattern: 'ping-pong' | 'stream';
  readonly description: string;
  /** Title of the first columns. */
  readonly column: 'latency' | 'overhead';
  /** Default number of outstanding operations (-O). */
  readonly window: number;
}

type Row = readonly [TestKind['name'], Operation, TestKind['pattern'], string, TestKind['column'], number];

/** Names, titles and windows as in ucx_perftest. */
const UCT_ROWS: readonly Row[] = [
  ['am_lat', 'am', 'ping-pong', 'active message latency', 'latency', 1],
  ['put_lat', 'put', 'ping-pong', 'put latency', 'latency', 1],
  ['add_lat', 'add', 'ping-pong', 'atomic add latency', 'latency', 1],
  ['get', 'get', 'stream', 'get latency / bandwidth / message rate', 'latency', 1],
  ['fadd', 'fadd', 'stream', 'atomic fetch-and-add latency / rate', 'latency', 1],
  ['swap', 'swap', 'stream', 'atomic swap latency / rate', 'latency', 1],
  ['cswap', 'cswap', 'stream', 'atomic compare-and-swap latency / rate', 'latency', 1],
  ['am_bw', 'am', 'stream', 'active message bandwidth / message rate', 'overhead', 1],
  ['put_bw', 'put', 'stream', 'put bandwidth / message rate', 'overhead', 1],
  ['add_mr', 'add', 'stream', 'atomic add message rate', 'overhead', 1],
];

const UCP_ROWS: readonly Row[] = [
  ['tag_lat', 'tag', 'ping-pong', 'tag match latency', 'latency', 1],
  ['tag_bw', 'tag', 'stream', 'tag match bandwidth', 'overhead', 32],
  ['tag_sync_lat', 'tag_sync', 'ping-pong', 'tag sync match latency', 'latency', 1],
  ['tag_sync_bw', 'tag_sync', 'stream', 'tag sync match bandwidth', 'overhead', 32],
  ['ucp_put_lat', 'put', 'ping-pong', 'put latency', 'latency', 1],
  ['ucp_put_bw', 'put', 'stream', 'put bandwidth', 'overhead', 32],
  ['ucp_get', 'get', 'stream', 'get latency / bandwidth / message rate', 'latency', 1],
  ['ucp_add', 'add', 'stream', 'atomic add bandwidth / message rate', 'overhead', 1],
  ['ucp_fadd', 'fadd', 'stream', 'atomic fetch-and-add latency / bandwidth / rate', 'latency', 1],
  ['ucp_swap', 'swap', 'stream', 'atomic swap latency / bandwidth / rate', 'latency', 1],
  ['ucp_cswap', 'cswap', 'stream', 'atomic compare-and-swap latency / bandwidth / rate', 'latency', 1],
  ['stream_bw', 'stream', 'stream', 'stream bandwidth', 'overhead', 1],
  ['stream_lat', 'stream', 'ping-pong', 'stream latency', 'latency', 1],
  ['ucp_am_lat', 'am', 'ping-pong', 'am latency', 'latency', 1],
  ['ucp_am_bw', 'am', 'stream', 'am bandwidth / message rate', 'overhead', 32],
];

function kindsOf(api: TestKind['api'], rows: readonly Row[]): TestKind[] {
  return rows.map(([name, operation, pattern, description, column, window]) => {
    return { name, api, operation, pattern, description, column, window };
  });
}

/** All tests, in the order of the help. */
export const TESTS: readonly TestKind[] = [...kindsOf('UCT', UCT_ROWS), ...kindsOf('UCP', UCP_ROWS)];

/** The test with a name; undefined for none. */
export function testNamed(name: string): TestKind | undefined {
  return TESTS.find((test) => test.name === name);
}

/** An operation on one word of remote memory. */
export type WordOperation = 'add' | 'fadd' | 'swap' | 'cswap';

/** True for operations on one word of remote memory. */
export function isAtomic(operation: Operation): operation is WordOperation {
  return operation === 'add' || operation === 'fadd' || operation === 'swap' || operation === 'cswap';
}

/** Whether the remote side only makes progress. */
export function isOneSided(operation: Operation): boolean {
  return operation === 'put' || operation === 'get' || isAtomic(operation);
}
