/**
 * Registry of the descriptors of worker threads, so that those of a thread that was terminated from outside (`worker.terminate()`) can be closed: its code no
 * longer runs, and its descriptors belong to the process.
 *
 * A worker thread has a table in a memfd while it has descriptors: a bit for each that this folder has made and not closed. The name of the memfd contains
 * the thread id, and other threads find it in /proc/self/fd. The main thread ends with the process, and needs no table.
 */

import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { closeCall, ftruncateCall, gettidCall, memfdCreateCall, mmap, munmap, viewOfMemory } from './libc.ts';

const NAME = 'gaudi-ucx-thread.';
const LINK = /^\/memfd:gaudi-ucx-thread\.(\d+) /;
/** Range of descriptors in a table; larger ones are not recorded. */
const DESCRIPTORS_MAX = 2 ** 18;
const HEADER_WORDS = 2;
const TABLE_WORDS: number = HEADER_WORDS + DESCRIPTORS_MAX / 32;
/** Words of the header. TAKEN: 1 once a thread closes the remaining descriptors. */
const Word = { MAGIC: 0, TAKEN: 1 } as const;
const MAGIC = 0x6764_7464;
const PROT_READ_WRITE = 3;
const MAP_SHARED = 1;
const MFD_CLOEXEC = 1;

/** A mapped table. */
interface Table {
  readonly fd: number;
  readonly address: number;
  readonly words: Int32Array;
}

let own: Table | undefined;
let noted = 0;

/** Records a descriptor that this thread has made or received; negative values are ignored. Returns it. */
export function noteDescriptor(fd: number): number {
  if (isMainThread || fd < 0 || fd >= DESCRIPTORS_MAX) return fd;
  own ??= makeTable();
  if (own === undefined) return fd;
  own.words[HEADER_WORDS + (fd >>> 5)]! |= 1 << (fd & 31);
  noted += 1;
  return fd;
}

/** Removes a descriptor before it is closed, and one that becomes the program's: it is no longer closed behind a terminated thread. */
export function forgetDescriptor(fd: number): void {
  if (own === undefined || fd < 0 || fd >= DESCRIPTORS_MAX) return;
  const word = HEADER_WORDS + (fd >>> 5);
  const bit = 1 << (fd & 31);
  if ((own.words[word]! & bit) === 0) return;
  own.words[word]! &= ~bit;
  noted -= 1;
  if (noted > 0) return;
  closeTable(own);
  own = undefined;
}

/**
 * Closes the descriptors of terminated threads of this process. 50 us for 100 open descriptors.
 * @returns the number of closed descriptors
 */
export function closeAbandonedDescriptors(): number {
  let closed = 0;
  for (const [fd, tid] of tables()) {
    if (isThreadAlive(tid)) continue;
    const table = mapTable(fd);
    if (table === undefined) continue;
    const isOurs = Atomics.compareExchange(table.words, Word.TAKEN, 0, 1) === 0;
    if (isOurs && table.words[Word.MAGIC] === MAGIC) {
      for (const each of descriptorsIn(table)) closed += closeCall(each) === 0 ? 1 : 0;
      closeTable(table);
    } else munmap(table.address, TABLE_WORDS * 4);
  }
  return closed;
}

/**
 * True while a process has a thread with this id, and where that is hidden.
 * @param pid another process of the same pid namespace
 */
export function isThreadAlive(tid: number, pid: number | 'self' = 'self'): boolean {
  const threads = `/proc/${pid}/task`;
  return existsSync(`${threads}/${tid}`) || !existsSync(threads);
}

/** Undefined if there is no descriptor or memory for it: the descriptors of the thread are then not recorded. */
function makeTable(): Table | undefined {
  const fd = memfdCreateCall(NAME + gettidCall(), MFD_CLOEXEC);
  if (fd < 0) return undefined;
  const table = ftruncateCall(fd, TABLE_WORDS * 4) === 0 ? mapTable(fd) : undefined;
  if (table === undefined) closeCall(fd);
  else table.words[Word.MAGIC] = MAGIC;
  return table;
}

function mapTable(fd: number): Table | undefined {
  const address = mmap(0, TABLE_WORDS * 4, PROT_READ_WRITE, MAP_SHARED, fd, 0);
  if (address === -1) return undefined;
  return { fd, address, words: new Int32Array(viewOfMemory(address, TABLE_WORDS * 4)) };
}

function closeTable({ fd, address }: Table): void {
  munmap(address, TABLE_WORDS * 4);
  closeCall(fd);
}

/** Descriptors of tables with the ids of their threads. */
function tables(): readonly (readonly [number, number])[] {
  const found: (readonly [number, number])[] = [];
  let names: string[];
  try {
    names = readdirSync('/proc/self/fd');
  } catch {
    return found; // Without a free descriptor the folder cannot be read: retried next time.
  }
  for (const name of names) {
    const tid = LINK.exec(linkOf(name))?.[1];
    if (tid !== undefined) found.push([Number(name), Number(tid)]);
  }
  return found;
}

function linkOf(name: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${name}`);
  } catch {
    return ''; // Closed meanwhile, such as the descriptor of the listing.
  }
}

function descriptorsIn({ words }: Table): readonly number[] {
  const found: number[] = [];
  for (let word = 0; word < DESCRIPTORS_MAX / 32; word++) {
    const bits = words[HEADER_WORDS + word]!;
    for (let bit = 0; bits !== 0 && bit < 32; bit++) if ((bits & (1 << bit)) !== 0) found.push(word * 32 + bit);
  }
  return found;
}
