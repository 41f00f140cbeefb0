/** A snapshot as lines of text, for `gaudi-ucx inspect` and for the dump at a signal. */

import type {
  CardSnapshot,
  ContextSnapshot,
  DmabufSnapshot,
  EndpointSnapshot,
  RequestSnapshot,
  WorkerSnapshot,
} from '../../api/contract/snapshot.ts';
import { clip } from '../../ucs/type/inspect.ts';
import type { NumberedContext, ProcessSnapshot } from './process-snapshot.ts';

const STEP = '  ';
/** Column limit for a command. */
const COMMAND_COLUMNS = 100;
const MS_PER_S = 1000;

/** Describes the worker with an id, such as `worker 0 of context 1 of process 4711`; undefined for an unknown worker. */
export type WorkerNames = (id: string) => string | undefined;

/** Names the workers of several processes. */
export function workerNames(snapshots: readonly ProcessSnapshot[]): WorkerNames {
  const names = new Map<string, string>();
  for (const snapshot of snapshots) {
    for (const context of snapshot.contexts) {
      for (const [index, { id }] of context.workers.entries()) names.set(id, workerName(snapshot, context, index));
    }
  }
  return (id) => names.get(id);
}

function workerName(process: ProcessSnapshot, context: NumberedContext, index: number): string {
  return `worker ${index} of context ${context.number} of ${processName(process)}`;
}

function processName({ pid, tid }: ProcessSnapshot): string {
  return tid === pid ? `process ${pid}` : `process ${pid} thread ${tid}`;
}

/** The lines of one thread of a process. */
export function snapshotText(snapshot: ProcessSnapshot, names: WorkerNames = workerNames([snapshot])): string[] {
  const { host, command, version, nodeVersion, uptimeSeconds, contexts } = snapshot;
  const shown = clip(command, COMMAND_COLUMNS);
  return [
    `${processName(snapshot)} on ${host}: ${shown}`,
    `${STEP}gaudi-ucx ${version}, Node.js ${nodeVersion}, running for ${uptimeSeconds} s, ${plural(contexts.length, 'context')}`,
    ...contexts.flatMap((context) => indented(contextLines(snapshot, context, names))),
  ];
}

function contextLines(process: ProcessSnapshot, context: NumberedContext, names: WorkerNames): string[] {
  const { engine, resources, cards, memory, dmabufs, channels, caches, workers } = context;
  const mapped = memory.map(({ memoryType, sysDevice, mappings, byteLength }) => {
    const place = sysDevice === undefined ? memoryType : `${memoryType} of ${labelOf(cards, sysDevice)}`;
    return `${place} ${byteLength} bytes in ${plural(mappings, 'mapping')}`;
  });
  const cached = caches.map(
    ({ name, regions, byteLength }) => `${name} ${byteLength} bytes in ${plural(regions, 'region')}`,
  );
  return [
    `context ${context.number}: engine ${engine.name} ${engine.version} (${engine.reason}), cards ${cardsText(context)}`,
    `${STEP}transports: ${listOf(resources)}`,
    ...cards.map((card) => `${STEP}${cardLine(card)}`),
    ...(mapped.length === 0 ? [] : [`${STEP}mapped memory: ${mapped.join('; ')}`]),
    ...channels.map((channel) => `${STEP}${channelLine(channel)}`),
    ...dmabufs.flatMap((each) => (isUsed(each) ? [`${STEP}${dmabufLine(each)}`] : [])),
    ...(cached.length === 0 ? [] : [`${STEP}registration caches: ${cached.join('; ')}`]),
    ...workers.flatMap((worker, index) => indented(workerLines(worker, workerName(process, context, index), names))),
  ];
}

/** Describes the node of the cards: after a restart of a node server, programs may use different nodes. */
function cardsText({ emulated, node: { kind, pid, socket } }: NumberedContext): string {
  if (!emulated) return 'real';
  if (kind === 'server') return `emulated by node server ${pid} at ${socket}`;
  return kind === 'private' ? 'emulated in this process only' : 'emulated behind device nodes';
}

function channelLine({
  id,
  local,
  remote,
  puts,
  gets,
  bytesPut,
  bytesGot,
}: ContextSnapshot['channels'][number]): string {
  return `channel ${id} from ${local} to the card at ${remote}: ${plural(puts, 'put')} of ${bytesPut} bytes, ${plural(gets, 'get')} of ${bytesGot} bytes`;
}

function isUsed({ exports, imports }: DmabufSnapshot): boolean {
  return exports + imports > 0;
}

function dmabufLine(dmabufs: DmabufSnapshot): string {
  const { owner, exports, exportBytes, imports, importBytes, mappings, mappedBytes, descriptors } = dmabufs;
  const out = `${exports} exported (${exportBytes} bytes)`;
  const now = `${mappings} mapped (${mappedBytes} bytes)`;
  return `dma-bufs of ${owner}: ${out}, ${imports} imported (${importBytes} bytes), ${now}, ${plural(descriptors, 'descriptor')} kept open`;
}

/** The label of the card with a system device. */
function labelOf(cards: readonly CardSnapshot[], sysDevice: number): string {
  return cards.find(({ name }) => name === `gaudi${sysDevice}`)?.label ?? `card ${sysDevice}`;
}

function cardLine({ label, moduleId, submissionsInFlight, transfers }: CardSnapshot): string {
  const done = transfers.map(({ direction, inFlight, operations, byteLength, errors }) => {
    const failed = errors === 0 ? '' : `, ${errors} failed`;
    return `${direction} ${operations} transfers of ${byteLength} bytes${failed}, ${inFlight} in flight`;
  });
  const module = moduleId === undefined ? '' : `, module ${moduleId}`;
  return `${label}${module}: ${submissionsInFlight} submissions in flight${done.length === 0 ? '' : `; ${done.join('; ')}`}`;
}

function workerLines(worker: WorkerSnapshot, name: string, names: WorkerNames): string[] {
  const { id, endpointCount, endpoints, requests, unexpected } = worker;
  const hidden = endpointCount - endpoints.length;
  const lines = [
    `${name} (${id}): ${plural(endpointCount, 'endpoint')}, ${requests.pending} of ${requests.max} requests pending, ${requests.ended} completed and not freed`,
    ...endpoints.map((endpoint) => `${STEP}${endpointLine(endpoint, names)}`),
    ...(hidden > 0 ? [`${STEP}and ${plural(hidden, 'endpoint')} more`] : []),
  ];
  for (const { protocol, reason, count, byteLength, oldestMs } of requests.groups) {
    lines.push(
      `${STEP}pending: ${count} ${protocol}, ${byteLength} bytes, wait for: ${reason}, oldest ${ageText(oldestMs)}`,
    );
  }
  lines.push(...requests.oldest.map((request) => `${STEP}${STEP}${requestLine(request)}`));
  if (unexpected === undefined) lines.push(`${STEP}arrived, not received yet: unknown`);
  else if (unexpected.messages + unexpected.streamBytes + unexpected.amBytes > 0) {
    const { messages, messageBytes, streamBytes, amBytes, bytesMax, first } = unexpected;
    lines.push(
      `${STEP}arrived, not received yet: ${plural(messages, 'tagged message')} (${messageBytes} bytes), ${streamBytes} bytes of streams, ${amBytes} bytes of active messages; limit ${bytesMax} bytes`,
      ...first.map(({ tag, byteLength }) => `${STEP}${STEP}tag ${tag}: ${byteLength} bytes`),
    );
  }
  return lines;
}

function endpointLine(endpoint: EndpointSnapshot, names: WorkerNames): string {
  const { id, peer, state, isClaimed, queued, awaitingPeer, creditBytes } = endpoint;
  const lanes = endpoint.lanes.map(
    ({ transport, carriesMessages }) => `${transport}${carriesMessages === true ? ' (messages)' : ''}`,
  );
  const waiting =
    queued === undefined || awaitingPeer === undefined || queued + awaitingPeer === 0
      ? ''
      : `, ${queued} queued, ${awaitingPeer} await the peer`;
  const credit = creditBytes === undefined || waiting === '' ? '' : `, ${creditBytes} bytes of credit`;
  const owner = isClaimed ? '' : ', made by the peer (no endpoint here)';
  const to = peer === undefined ? 'a libucp peer' : (names(peer) ?? peer);
  return `endpoint ${id} to ${to}: ${state === 'not known' ? 'state unknown' : state}${owner}${waiting}${credit}; ${lanes.length === 0 ? 'lanes unknown' : `lanes ${listOf(lanes)}`}`;
}

function requestLine({
  protocol,
  byteLength,
  doneBytes,
  ageMs,
  endpoint,
  transport,
  waitsFor,
}: RequestSnapshot): string {
  const done = doneBytes === 0 ? '' : `${doneBytes} of `;
  const to = endpoint === undefined ? '' : ` on endpoint ${endpoint}`;
  const over = transport === undefined ? '' : ` over ${transport}`;
  return `${protocol} ${done}${byteLength} bytes${to}${over}, ${ageText(ageMs)}, waits for ${waitsFor}`;
}

/** The lines of UCX_PRINT_TRANSPORT_TABLES. */
export function transportTable({ engine, resources, unavailable }: ContextSnapshot): string[] {
  // The transports of libucp are only known as text, which info -d prints.
  const others = engine.name === 'libucx' ? ', in addition to those of libucp (gaudi-ucx info -d)' : '';
  return [
    `transports and devices of the engine ${engine.name} ${engine.version}${others}:`,
    ...resources.map((name) => `${STEP}${name}`),
    ...unavailable.map(({ name, reason }) => `${STEP}${name} is unusable: ${reason}`),
  ];
}

function ageText(ms: number): string {
  return ms < MS_PER_S ? `${ms} ms` : `${(ms / MS_PER_S).toFixed(1)} s`;
}

function listOf(names: readonly string[]): string {
  return names.length === 0 ? 'none' : names.join(', ');
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

function indented(lines: readonly string[]): string[] {
  return lines.map((line) => STEP + line);
}
