/**
 * The workload of puts, gets, flushes and fences: every end has memory at its peer that it alone writes, cell by cell. It checks that flushed puts have
 * arrived when the flush ends, that a get reads earlier puts, and that unmapped memory is not accessed any more.
 */

import type { Context } from '../../src/ucp/core/context.ts';
import type { MemoryHandle } from '../../src/ucp/mem/memory-handle.ts';
import type { RemoteKey } from '../../src/ucp/mem/remote-key.ts';
import { MemoryType } from '../../src/ucs/memory/memory-type.ts';
import { isUcxError } from '../../src/ucs/type/error.ts';
import { Status } from '../../src/ucs/type/status.ts';
import type { Actor } from './actor.ts';
import type { SimulatedIface } from './iface.ts';
import type { End } from './link.ts';
import { LocalSpace, storageOf } from './local-memory.ts';
import type { Entry } from './operation-checker.ts';
import { differenceOf, payload } from './payload.ts';
import type { Schedule } from './schedule.ts';

interface Put {
  readonly version: number;
  readonly era: number;
  /** Its operations: one, or one for each part. */
  entries: readonly Entry[];
}

/** A part of remote memory that is written as a whole. */
interface Cell {
  readonly offset: number;
  readonly byteLength: number;
  /** Contents that are certain when nothing is in flight; undefined after a failure. */
  committed: number | undefined;
  /** Puts since then, in order, separated by fences. */
  puts: Put[];
  /** The last era in which a get was started that has not ended. */
  gets: number;
  getEra: number;
}

/** Lengths of the parts of a cell, and how many it has at most. */
const PART_BYTES: readonly number[] = [8, 16, 60, 200];
const PARTS_MAX = 8;

/** Memory that one end writes at its peer. */
interface Region {
  readonly end: End;
  readonly owner: Actor;
  readonly handle: MemoryHandle;
  readonly storage: Uint8Array;
  rkey: RemoteKey;
  readonly cells: readonly Cell[];
  /** Operations of one era are unordered. */
  era: number;
  /** Its contents when it was unmapped. */
  left: Uint8Array | undefined;
  isUnmapped: boolean;
}

/** A flush that has not ended. */
interface Flush {
  readonly ends: readonly End[];
  /** The number of operations of transports before it. */
  readonly operations: number;
  /** One of them has failed, and lanes tell that only once. */
  mustFail: boolean;
}

/** A cell that a list writes. */
export interface WrittenCell {
  readonly version: number;
  readonly offset: number;
  readonly byteLength: number;
  readonly rkey: RemoteKey;
  /** Whether the list may fail with a status because of this cell. */
  excuses(status: Status): boolean;
  /** The list has failed. */
  spoil(): void;
  /** The list has been started. */
  startedBy(entry: Entry): void;
  /** The contents of the cell must be those of the list, unless something later is written to it. */
  expectWritten(): void;
}

/** The puts and gets of one schedule. */
export class RmaWorkload {
  readonly #schedule: Schedule;
  readonly #regions: Map<End, Region> = new Map();
  /** Flushes that have not ended, in their order. */
  readonly #flushes: Flush[] = [];
  /** Ends of which a lane has told a fence, or a look, that a put has failed: the next flush reports it. */
  readonly #told: Set<End> = new Set();
  readonly #promises: { readonly region: Region; readonly cell: Cell; readonly put: Put }[] = [];

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
    schedule.onEnd.push((end) => this.#addRegion(end));
    schedule.network.onFailureTaken = (port, peerPort, operation) => {
      const end = schedule.ends.find(({ actor, peerActor }) => hasPort(actor, port) && hasPort(peerActor, peerPort));
      if (end === undefined) return;
      schedule.note(`${end} tells of a failed put`);
      const flush = this.#flushes.find(({ ends, operations }) => ends.includes(end) && operations >= operation);
      if (flush === undefined) this.#told.add(end);
      else flush.mustFail = true;
    };
  }

  put(end: End): void {
    const region = this.#regions.get(end)!;
    const cell = this.#schedule.find(region.cells, (one) => isFree(one, region.era));
    if (cell === undefined) return;
    const version = this.#schedule.newId();
    this.#putParts(region, cell, version, cell.byteLength);
  }

  /** Writes a cell twice: as a whole and in parts, which may take another lane. Only the fence between them orders them. */
  overwrite(end: End): void {
    const schedule = this.#schedule;
    const region = this.#regions.get(end)!;
    const cell = schedule.find(region.cells, (one) => isFree(one, region.era));
    if (cell === undefined) return;
    const partBytes = Math.max(schedule.pick(PART_BYTES), Math.ceil(cell.byteLength / PARTS_MAX));
    const lengths = [cell.byteLength, partBytes];
    if (schedule.isOneOf(2)) lengths.reverse();
    this.#putParts(region, cell, schedule.newId(), lengths[0]!);
    this.fence(end, schedule.isOneOf(3));
    // The first may have failed in its call.
    if (isFree(cell, region.era)) this.#putParts(region, cell, schedule.newId(), lengths[1]!);
  }

  #putParts(region: Region, cell: Cell, version: number, partBytes: number): void {
    const schedule = this.#schedule;
    const { end } = region;
    const put: Put = { version, era: region.era, entries: [] };
    cell.puts.push(put);
    const contents = payload(version, cell.byteLength);
    const excuses = (status: Status): boolean => isStale(status) && region.isUnmapped;
    for (let at = 0; at < cell.byteLength; at += partBytes) {
      const byteLength = Math.min(partBytes, cell.byteLength - at);
      const offset = cell.offset + at;
      const space = new LocalSpace(schedule, end.actor, byteLength, false);
      space.fill(contents.subarray(at, at + byteLength));
      const onEnd = (status: Status): void => {
        if (status !== Status.OK) spoil(cell);
        space.spend();
      };
      const name = `put ${version} ${end} ${offset}+${byteLength}${space.kind}`;
      const entry = schedule.start({ name, actor: end.actor, end, excuses, onEnd }, (params) =>
        end.endpoint.putNbx(space.single, space.offset, byteLength, region.rkey, offset, params),
      );
      put.entries = [...put.entries, entry];
    }
  }

  /** Takes a cell for a list; undefined if none is free. */
  write(end: End, version: number): WrittenCell | undefined {
    const region = this.#regions.get(end)!;
    const cell = this.#schedule.find(region.cells, (one) => isFree(one, region.era));
    if (cell === undefined) return undefined;
    const put: Put = { version, era: region.era, entries: [] };
    cell.puts.push(put);
    const { offset, byteLength } = cell;
    return {
      version,
      offset,
      byteLength,
      rkey: region.rkey,
      excuses: (status) => isStale(status) && region.isUnmapped,
      spoil: () => spoil(cell),
      startedBy: (entry) => {
        put.entries = [entry];
      },
      expectWritten: () => {
        const last = cell.puts.at(-1);
        const isLast = cell.committed !== undefined && (last === undefined ? cell.committed === version : last === put);
        if (!isLast || region.isUnmapped || region.owner.host.isDead) return;
        this.#compare(end, region.storage, { ...cell, committed: version });
      },
    };
  }

  get(end: End): void {
    const schedule = this.#schedule;
    const region = this.#regions.get(end)!;
    const cell = schedule.pick(region.cells);
    const last = cell.puts.at(-1);
    // Before the get there are only the old contents, or those ordered by a fence.
    const isSure = last === undefined || last.era < region.era;
    const version = last === undefined ? cell.committed : last.version;
    const space = new LocalSpace(schedule, end.actor, cell.byteLength, false);
    cell.gets += 1;
    cell.getEra = region.era;
    const onEnd = (status: Status): void => {
      cell.gets -= 1;
      if (status === Status.OK && isSure && version !== undefined && cell.committed !== undefined) {
        const difference = differenceOf(space.read(), payload(version, cell.byteLength));
        if (difference !== undefined) schedule.fail(`a get of ${end} did not see put ${version}: ${difference}`);
      }
      if (space.isTouchedBehind(cell.byteLength)) schedule.fail(`a get of ${end} wrote beyond its end`);
      space.release();
    };
    const excuses = (status: Status): boolean => isStale(status) && region.isUnmapped;
    const name = `get ${end} ${cell.offset}+${cell.byteLength}${space.kind}`;
    schedule.start({ name, actor: end.actor, end, excuses, onEnd }, (params) =>
      end.endpoint.getNbx(space.single, space.offset, cell.byteLength, region.rkey, cell.offset, params),
    );
  }

  fence(end: End, isOfWorker: boolean): void {
    this.#schedule.note(`fence ${isOfWorker ? end.actor : end}`);
    if (isOfWorker) end.actor.worker.fence();
    else end.endpoint.fence();
    for (const region of this.#regions.values()) {
      if (region.end === end || (isOfWorker && region.end.actor === end.actor)) region.era += 1;
    }
  }

  flush(end: End, isOfWorker: boolean): void {
    const { actor } = end;
    const regions = [...this.#regions.values()].filter((region) =>
      isOfWorker ? region.end.actor === actor && !region.end.isClosing : region.end === end,
    );
    const promised = regions.flatMap((region) =>
      region.cells.flatMap((cell) =>
        cell.puts.length > 0 ? [{ region, cell, count: cell.puts.length, put: cell.puts.at(-1)! }] : [],
      ),
    );
    const ends = isOfWorker ? this.#schedule.ends.filter((each) => each.actor === actor) : [end];
    const flush: Flush = { ends, operations: this.#schedule.network.operations, mustFail: false };
    for (const each of ends) if (this.#told.delete(each)) flush.mustFail = true;
    this.#flushes.push(flush);
    const onEnd = (status: Status): void => {
      this.#flushes.splice(this.#flushes.indexOf(flush), 1);
      if (status === Status.OK && flush.mustFail) this.#schedule.fail(`a flush of ${end} hides a failed put`);
      for (const { region, cell, put } of promised) this.#flushed(region, cell, put, status);
    };
    const isUnmapped = (): boolean => regions.some((region) => region.isUnmapped);
    const excuses = (status: Status): boolean => {
      const isBreak = status === Status.CONNECTION_RESET || status === Status.ENDPOINT_TIMEOUT;
      if (isBreak || status === Status.CANCELED) return isOfWorker && this.#mayBreak(actor);
      return isStale(status) && isUnmapped();
    };
    const name = `flush ${isOfWorker ? actor : end}`;
    this.#schedule.start(
      { name, actor, end: isOfWorker ? undefined : end, isWithdrawable: true, excuses, onEnd },
      (params) => (isOfWorker ? actor.worker.flushNbx(params) : end.endpoint.flushNbx(params)),
    );
  }

  /** The owner unmaps memory. */
  unmap(end: End): void {
    const region = this.#regions.get(end);
    if (region === undefined || region.isUnmapped || region.owner.host.isDead || !region.owner.isActive) return;
    if (!unmapped(region.owner.host.context, region.handle)) {
      this.#schedule.note(`region of ${end} is busy`);
      return;
    }
    this.#schedule.note(`region of ${end} unmapped`);
    region.isUnmapped = true;
    end.hasStale = true;
    region.left = region.storage.slice();
    for (const cell of region.cells) spoil(cell);
  }

  /** Checks flushes that have ended in this step: their puts have ended as well, and have arrived. */
  checkFlushed(): void {
    for (const { region, cell, put } of this.#promises.splice(0)) {
      const { end, owner, storage } = region;
      if (end.actor.host.isDead) continue;
      const statuses = put.entries.map(({ status }) => status);
      if (statuses.includes(undefined)) this.#schedule.fail(`a flush of ${end} ended before put ${put.version}`);
      const isLast = cell.puts.length === 0 && cell.committed === put.version;
      if (statuses.some((status) => status !== Status.OK) || !isLast || owner.host.isDead || region.isUnmapped)
        continue;
      this.#compare(end, storage, cell);
    }
  }

  check(): void {
    const schedule = this.#schedule;
    for (const { end, owner, cells, storage, left } of this.#regions.values()) {
      if (owner.host.isDead) continue;
      if (left !== undefined) {
        const difference = differenceOf(storage, left);
        if (difference !== undefined)
          schedule.fail(`memory of ${end} was written after it was taken back: ${difference}`);
        continue;
      }
      if (!end.isReliable) continue;
      for (const cell of cells) {
        if (cell.puts.length === 0 && cell.committed !== undefined) this.#compare(end, storage, cell);
      }
    }
  }

  /** Unmaps all mapped memory; false if transports use some of it. */
  release(): boolean {
    let isDone = true;
    for (const region of this.#regions.values()) {
      if (!region.end.actor.host.isDead) region.rkey.release();
      if (region.isUnmapped || region.owner.host.isDead) continue;
      region.isUnmapped = unmapped(region.owner.host.context, region.handle);
      isDone &&= region.isUnmapped;
    }
    return isDone;
  }

  #addRegion(end: End): void {
    const schedule = this.#schedule;
    const { context } = end.peerActor.host;
    const sizes = [8, 40, 256, 300, 1000, schedule.variation.bytesMax];
    const lengths = [0, 1, 2].map(() => schedule.pick(sizes));
    const byteLength = lengths.reduce((sum, length) => sum + length + 8, 0);
    const isOfCard = schedule.variation.hasCard && schedule.isOneOf(2);
    let handle: MemoryHandle;
    if (isOfCard) handle = context.memMap({ allocate: byteLength, memoryType: MemoryType.GAUDI, sysDevice: 0 });
    else if (schedule.isOneOf(2)) handle = context.memMap({ buffer: new Uint8Array(byteLength) });
    else handle = context.memMap({ allocate: byteLength });
    const storage = storageOf(handle);
    let offset = 0;
    const cells = lengths.map((length): Cell => {
      const cell: Cell = { offset, byteLength: length, committed: schedule.newId(), puts: [], gets: 0, getEra: -1 };
      storage.set(payload(cell.committed!, length), offset);
      offset += length + 8;
      return cell;
    });
    const rkey = end.endpoint.unpackRkey(context.packRkey(handle));
    const region = {
      end,
      owner: end.peerActor,
      handle,
      storage,
      rkey,
      cells,
      era: 0,
      left: undefined,
      isUnmapped: false,
    };
    this.#regions.set(end, region);
  }

  #flushed(region: Region, cell: Cell, put: Put, status: Status): void {
    if (status !== Status.OK) {
      spoil(cell);
      return;
    }
    // An earlier flush of the same put may have ended before.
    const index = cell.puts.indexOf(put);
    if (index < 0 || cell.committed === undefined) return;
    cell.puts.splice(0, index + 1);
    cell.committed = put.version;
    this.#promises.push({ region, cell, put });
  }

  #compare(end: End, storage: Uint8Array, { offset, byteLength, committed }: Cell): void {
    const actual = storage.subarray(offset, offset + byteLength);
    const difference = differenceOf(actual, payload(committed!, byteLength));
    if (difference !== undefined) this.#schedule.fail(`put ${committed} of ${end} is not there: ${difference}`);
  }

  #mayBreak(actor: Actor): boolean {
    return this.#schedule.ends.some(
      (end) => (end.actor === actor && (end.mayBreak || end.isClosing)) || (end.peerActor === actor && !end.isReliable),
    );
  }
}

/** Unmaps memory; false if transports use it. */
export function unmapped(context: Context, handle: MemoryHandle): boolean {
  try {
    context.memUnmap(handle);
    return true;
  } catch (error) {
    if (isUcxError(error) && error.status === Status.BUSY) return false;
    throw error;
  }
}

/** Statuses of operations on memory that its owner has unmapped. */
function isStale(status: Status): boolean {
  return status === Status.INVALID_ADDR || status === Status.INVALID_PARAM;
}

function hasPort({ worker }: Actor, port: number): boolean {
  return worker.ifaces.some((iface) => (iface as SimulatedIface).id === port);
}

/** Whether a put to a cell is ordered after all operations on it. */
function isFree({ puts, gets, getEra, committed }: Cell, era: number): boolean {
  if (committed === undefined) return false;
  const last = puts.at(-1);
  return (last === undefined || last.era < era) && (gets === 0 || getEra < era);
}

/** The contents of a cell are unknown. */
function spoil(cell: Cell): void {
  cell.committed = undefined;
  cell.puts = [];
}
