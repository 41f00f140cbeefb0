/**
 * First half of the demonstration: transfers a file host -> HBM -> HBM -> host, compares its SHA-256, and measures every hop next to a memcpy of the same
 * bytes in the same run.
 */

import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { Explanation } from '../../api/contract/explanation.ts';
import type { MemoryHandle, RemoteKey } from '../../api/contract/memory.ts';
import type { Request } from '../../api/contract/request.ts';
import type { Worker } from '../../api/contract/worker.ts';
import { Context } from '../../assembly/context.ts';
import { memcpy } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import {
  type BarStream,
  EMULATED_NOTE,
  formatBytes,
  formatRate,
  formatTable,
  formatTime,
  ProgressBar,
} from '../base/text-table.ts';

const SEGMENT_BYTES_MAX = 128 * 2 ** 20;
/** Bytes of one put or get, and number of operations in flight. */
const CHUNK_BYTES = 4 * 2 ** 20;
const WINDOW = 8;

/** Options of the demonstration. */
export interface OneCardOptions {
  readonly file: string;
  /** Stream of the progress bar, which is shown on a terminal only. */
  readonly output: BarStream;
  /** Size limit of the memory: larger files are sent in segments. */
  readonly segmentBytesMax?: number;
}

/** The result. */
export interface OneCardResult {
  readonly file: string;
  readonly byteLength: number;
  readonly emulated: boolean;
  /** Three hops, and the reference copy. Times in nanoseconds. */
  readonly hops: readonly Omit<Hop, 'explanation'>[];
  /** SHA-256 of the bytes sent and of the bytes received. */
  readonly before: string;
  readonly after: string;
}

/** One hop of the file. */
interface Hop {
  readonly name: string;
  bytes: number;
  ns: number;
  transport: string;
  protocol: string;
  readonly explanation: Explanation | undefined;
  /** Reasons for the protocol, one per line; none for the reference. */
  readonly why: readonly string[];
}

/** Memory of the demonstration: two host buffers, one for the reference copy, and two buffers in HBM. */
interface Stage {
  readonly source: MemoryHandle;
  readonly sourceBytes: Uint8Array;
  readonly target: MemoryHandle;
  readonly targetBytes: Uint8Array;
  readonly reference: MemoryHandle;
  readonly first: MemoryHandle;
  readonly firstKey: RemoteKey;
  readonly secondKey: RemoteKey;
}

/** Runs the demonstration on one card. */
export async function runOneCard(options: OneCardOptions): Promise<OneCardResult> {
  const file = await open(options.file, 'r');
  try {
    const { size } = await file.stat();
    if (size === 0) throw invalidParam('file', 'must not be empty', options.file);
    await using context = await Context.create();
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const stage = openStage(context, endpoint, Math.min(size, options.segmentBytesMax ?? SEGMENT_BYTES_MAX));
    const hops = openHops(endpoint, stage);
    const bar = new ProgressBar(options.output, size * 3);
    let digests: Digests;
    try {
      digests = await stream(file, size, { worker, endpoint, stage, hops, bar });
    } finally {
      bar.clear();
    }
    const shown = hops.map(({ explanation, ...hop }) => ({ ...hop, why: whyLines({ ...hop, explanation }) }));
    return { file: options.file, byteLength: size, emulated: context.emulated, hops: shown, ...digests };
  } finally {
    await file.close();
  }
}

function openStage(context: Context, endpoint: Endpoint, bytes: number): Stage {
  // Not allocated by a memory domain, whose memory is in /dev/shm, which is small in containers.
  const host = (buffer: Uint8Array): MemoryHandle => context.memMap({ buffer });
  const device = (): MemoryHandle => context.memMap({ allocate: bytes, memoryType: MemoryType.GAUDI });
  const [first, second] = [device(), device()];
  const [sourceBytes, targetBytes] = [new Uint8Array(bytes), new Uint8Array(bytes)];
  return {
    source: host(sourceBytes),
    sourceBytes,
    target: host(targetBytes),
    targetBytes,
    reference: host(new Uint8Array(bytes)),
    first,
    firstKey: endpoint.unpackRkey(context.packRkey(first)),
    secondKey: endpoint.unpackRkey(context.packRkey(second)),
  };
}

function openHops(endpoint: Endpoint, stage: Stage): Hop[] {
  const hop = (name: string, explanation: Explanation | undefined): Hop => {
    return { name, bytes: 0, ns: 0, transport: '-', protocol: '-', explanation, why: [] };
  };
  return [
    hop('host -> HBM', endpoint.explain('put', stage.source, stage.firstKey)),
    hop('HBM -> HBM', endpoint.explain('put', stage.first, stage.secondKey)),
    hop('HBM -> host', endpoint.explain('get', stage.target, stage.secondKey)),
    hop('memcpy', undefined),
  ];
}

/** State of a run. */
interface Run {
  readonly worker: Worker;
  readonly endpoint: Endpoint;
  readonly stage: Stage;
  readonly hops: readonly Hop[];
  readonly bar: ProgressBar;
}

interface Digests {
  readonly before: string;
  readonly after: string;
}

/** Sends the whole file, segment by segment. */
async function stream(file: FileHandle, size: number, run: Run): Promise<Digests> {
  const before = createHash('sha256');
  const after = createHash('sha256');
  const { sourceBytes, targetBytes } = run.stage;
  for (let position = 0; position < size; ) {
    const bytes = Math.min(sourceBytes.byteLength, size - position);
    const data = sourceBytes.subarray(0, bytes);
    await readFully(file, data, position);
    before.update(data);
    if (position === 0) warmUp(run, bytes);
    targetBytes.fill(0);
    runSegment(run, bytes, position * 3);
    after.update(targetBytes.subarray(0, bytes));
    position += bytes;
  }
  return { before: before.digest('hex'), after: after.digest('hex') };
}

/** Touches all memory once, so that page faults are not measured. */
function warmUp(run: Run, bytes: number): void {
  const quiet: Run = { ...run, hops: run.hops.map((hop) => ({ ...hop })), bar: SILENT };
  runSegment(quiet, bytes, 0);
}

const SILENT = new ProgressBar({ write: () => {} }, 1);

/** Runs the three hops and the reference copy of one segment. */
function runSegment({ worker, endpoint, stage, hops, bar }: Run, bytes: number, progress: number): void {
  const { source, target, reference, first, firstKey, secondKey } = stage;
  const [down, within, up, copy] = hops as readonly [Hop, Hop, Hop, Hop];
  const params = { noImmediateCompletion: true };
  const show = (hop: Hop, base: number) => (done: number) => bar.update(hop.name, progress + base + done);
  transfer([worker, down], bytes, show(down, 0), (at, n) => endpoint.putNbx(source, at, n, firstKey, at, params));
  transfer([worker, within], bytes, show(within, bytes), (at, n) =>
    endpoint.putNbx(first, at, n, secondKey, at, params),
  );
  transfer([worker, up], bytes, show(up, 2 * bytes), (at, n) => endpoint.getNbx(target, at, n, secondKey, at, params));
  const begin = systemClock.nowNs();
  for (let at = 0; at < bytes; at += CHUNK_BYTES) {
    const from = Number(source.address) + at;
    memcpy(Number(reference.address) + at, from, Math.min(CHUNK_BYTES, bytes - at));
  }
  copy.ns += systemClock.nowNs() - begin;
  copy.bytes += bytes;
}

/** Moves `bytes` in chunks, several in flight, and adds the time to the hop. */
function transfer(
  [worker, hop]: readonly [Worker, Hop],
  bytes: number,
  show: (done: number) => void,
  start: (at: number, byteLength: number) => number | Request,
): void {
  const begin = systemClock.nowNs();
  const flying: Request[] = [];
  for (let at = 0; at < bytes; at += CHUNK_BYTES) {
    const request = start(at, Math.min(CHUNK_BYTES, bytes - at));
    if (typeof request === 'number') throw statusError(request, hop.name);
    flying.push(request);
    if (flying.length === WINDOW) finish(worker, hop, flying.shift()!);
    show(at);
  }
  for (const request of flying) finish(worker, hop, request);
  hop.ns += systemClock.nowNs() - begin;
  hop.bytes += bytes;
  show(bytes);
}

function finish(worker: Worker, hop: Hop, request: Request): void {
  while (!request.isCompleted) worker.progress();
  const { status } = request;
  hop.transport = `${request.transport}/${request.device}`;
  hop.protocol = request.protocol;
  request.free();
  if (status < 0) throw statusError(status, hop.name);
}

/** The text of a result, without a newline at its end. */
export function describeOneCard({ file, byteLength, emulated, hops, before, after }: OneCardResult): string {
  const copy = hops.at(-1)!;
  const rows = hops.map((hop) => [
    hop.name,
    formatBytes(hop.bytes),
    formatTime(hop.ns),
    formatRate(hop.bytes, hop.ns),
    hop === copy ? 'reference' : (copy.ns / hop.ns).toFixed(2),
    hop.transport,
    hop.protocol,
  ]);
  return [
    `${file}: ${formatBytes(byteLength)} through ${emulated ? 'an emulated Gaudi card' : 'a Gaudi card'}`,
    '',
    formatTable([['hop', 'bytes', 'time', 'GB/s', '/ memcpy', 'transport', 'protocol'], ...rows]),
    '',
    ...hops.flatMap(({ why }) => why),
    `sha-256 before ${before}`,
    `sha-256 after  ${after}`,
    before === after ? 'the received file is identical' : 'the received file is DIFFERENT',
    ...(emulated ? ['', EMULATED_NOTE] : []),
  ].join('\n');
}

/** Reasons for the protocol of a hop, from the explanation of its plan. */
function whyLines({ name, protocol, transport, explanation }: Hop): string[] {
  if (explanation === undefined) return [];
  const row = explanation.chosen.find((step) => step.protocol === protocol && step.transport === transport);
  if (row === undefined) return [];
  const { bytesMin, bytesMax } = row;
  const sizes =
    bytesMax === Number.POSITIVE_INFINITY ? `${bytesMin} bytes or more` : `${bytesMin} to ${bytesMax} bytes`;
  const others = explanation.rejected.find((entry) => entry.protocol === undefined);
  return [
    `why ${name}: ${protocol} on ${transport} has the lowest estimated cost`,
    `  for messages of ${sizes}`,
    ...(others === undefined ? [] : [`  ${others.transport} ${others.reason}`]),
  ];
}

/**
 * Fills `data` with the bytes of the file from `position` on.
 * @throws UcxError ERR_INVALID_PARAM if the file is shorter; the errors of node:fs
 */
export async function readFully(file: FileHandle, data: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < data.byteLength; ) {
    const { bytesRead } = await file.read(data, done, data.byteLength - done, position + done);
    if (bytesRead === 0) throw invalidParam('file', 'must not shrink while it is read', position + done);
    done += bytesRead;
  }
}
