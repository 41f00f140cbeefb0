/**
 * Releases mappings that a worker thread leaves behind, however the thread ends: a mapping belongs to the process.
 *
 * All threads of a process record their mappings in one table, a mapped memfd without a descriptor, which threads find by its name in /proc/self/maps. It stays
 * mapped and needs no lock: an entry belongs to the thread whose id is in its first word. The main thread ends with the process, and records nothing.
 */

import { existsSync, readFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import {
  closeCall,
  dlsym,
  ftruncateCall,
  gettidCall,
  koffi,
  memfdCreateCall,
  mmap,
  munmap,
  viewOfMemory,
} from './libc.ts';

/** The name contains the version of the layout. */
const NAME = 'gaudi-ucx-mappings.1';
const LINE = /^([0-9a-f]+)-\S+ rw-s .* \/memfd:gaudi-ucx-mappings\.1 /;
/** Maximum number of entries; mappings beyond it are not released when their thread ends. */
const ENTRIES_MAX = 2 ** 16;
const ENTRY_WORDS = 8;
/** Word of the first entry, which is the header: number of entries ever used, including the header. */
const USED_WORD = 0;
/** Words of an entry. TID: 0 for a free entry, negative while a thread writes or releases it. KIND: see {@link MappingKind}. Lengths are in bytes. */
const Word = { TID: 0, KIND: 1, ADDRESS: 2, LENGTH: 4 } as const;
const TABLE_BYTES: number = ENTRIES_MAX * ENTRY_WORDS * 4;

const PROT_NONE = 0;
const PROT_READ_WRITE = 3;
const MAP_SHARED = 0x1;
/** MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE */
const RESERVED = 0x4032;
const MFD_CLOEXEC = 1;

/**
 * How the mapping of an ended thread is released. Peers may still have keys of SHARED memory, by which the kernel copies (process_vm_writev): its addresses
 * stay reserved without access, so that such copies fail instead of accessing other memory. LOCAL memory, whose address peers never have, is unmapped.
 */
export const MappingKind = { SHARED: 0, LOCAL: 1 } as const;
export type MappingKind = (typeof MappingKind)[keyof typeof MappingKind];

interface Table {
  readonly words: Int32Array;
  readonly numbers: Float64Array;
}

let own: Table | undefined;
const views = new Map<number, Table>();
/** Entry from which this thread searches for a free one. */
let next = 1;
const tid: number = isMainThread ? 0 : gettidCall();

/** Records a mapping of this thread. Returns its entry, for {@link forgetMapping}; 0 if it is not recorded. */
export function noteMapping(address: number, byteLength: number, kind: MappingKind): number {
  if (isMainThread) return 0;
  own ??= tables()[0] ?? makeTable();
  if (own === undefined) return 0;
  const { words, numbers } = own;
  for (let tried = 1; tried < ENTRIES_MAX; tried++) {
    const entry = next;
    next = next === ENTRIES_MAX - 1 ? 1 : next + 1;
    const at = entry * ENTRY_WORDS;
    if (Atomics.compareExchange(words, at + Word.TID, 0, -tid) !== 0) continue;
    for (let used = Atomics.load(words, USED_WORD); used <= entry; used = Atomics.load(words, USED_WORD)) {
      Atomics.compareExchange(words, USED_WORD, used, entry + 1);
    }
    words[at + Word.KIND] = kind;
    numbers[(at + Word.ADDRESS) / 2] = address;
    numbers[(at + Word.LENGTH) / 2] = byteLength;
    Atomics.store(words, at + Word.TID, tid);
    return entry;
  }
  return 0;
}

/** Removes an entry. Call it before the memory is unmapped, because the addresses may then be reused at once. */
export function forgetMapping(entry: number): void {
  if (entry === 0 || own === undefined) return;
  Atomics.store(own.words, entry * ENTRY_WORDS + Word.TID, 0);
  next = Math.min(next, entry);
}

/**
 * Releases the mappings of ended threads of this process. They are not in use: before a thread ends, Node.js ends the threads that it has started, and its
 * pending calls.
 * @returns the number of released mappings
 */
export function releaseAbandonedMappings(): number {
  let released = 0;
  for (const table of tables()) released += releaseIn(table);
  return released;
}

/**
 * Whether a process has a thread with this id; true if that cannot be determined.
 * @param pid another process of the same pid namespace
 */
export function isThreadAlive(id: number, pid: number | 'self' = 'self'): boolean {
  const threads = `/proc/${pid}/task`;
  return existsSync(`${threads}/${id}`) || !existsSync(threads);
}

function releaseIn({ words, numbers }: Table): number {
  const alive = new Map<number, boolean>();
  const isAlive = (id: number): boolean => {
    const known = alive.get(id) ?? isThreadAlive(id);
    alive.set(id, known);
    return known;
  };
  let released = 0;
  const used = Atomics.load(words, USED_WORD);
  for (let entry = 1; entry < used; entry++) {
    const at = entry * ENTRY_WORDS;
    const owner = Atomics.load(words, at + Word.TID);
    if (owner === 0 || isAlive(Math.abs(owner))) continue;
    // A negative owner marks an incomplete entry, whose address is not valid.
    if (owner > 0 && Atomics.compareExchange(words, at + Word.TID, owner, -gettidCall()) === owner) {
      release(numbers[(at + Word.ADDRESS) / 2]!, numbers[(at + Word.LENGTH) / 2]!, words[at + Word.KIND]!);
      released += 1;
      Atomics.store(words, at + Word.TID, 0);
    } else if (owner < 0) Atomics.compareExchange(words, at + Word.TID, owner, 0);
  }
  return released;
}

function release(address: number, byteLength: number, kind: number): void {
  if (kind === MappingKind.LOCAL) munmap(address, byteLength);
  else mmap(address, byteLength, PROT_NONE, RESERVED, -1, 0);
}

/** Undefined without memory for the table: mappings are then not recorded. */
function makeTable(): Table | undefined {
  const fd = memfdCreateCall(NAME, MFD_CLOEXEC);
  if (fd < 0) return undefined;
  const address = ftruncateCall(fd, TABLE_BYTES) === 0 ? mmap(0, TABLE_BYTES, PROT_READ_WRITE, MAP_SHARED, fd, 0) : -1;
  closeCall(fd);
  if (address === -1) return undefined;
  const table = tableAt(address);
  Atomics.compareExchange(table.words, USED_WORD, 0, 1);
  return table;
}

/** The tables of this process: normally one, more if threads created a table at the same time. */
function tables(): readonly Table[] {
  let maps: string;
  try {
    maps = readFileSync('/proc/self/maps', 'latin1');
  } catch {
    return []; // The file cannot be read without a free descriptor: retried next time.
  }
  return maps.split('\n').flatMap((line) => {
    const address = LINE.exec(line)?.[1];
    return address === undefined ? [] : [tableAt(Number.parseInt(address, 16))];
  });
}

/** Views are made once, because V8 counts their length as external memory. */
function tableAt(address: number): Table {
  const known = views.get(address);
  if (known !== undefined) return known;
  const buffer = viewOfMemory(address, TABLE_BYTES);
  const table = { words: new Int32Array(buffer), numbers: new Float64Array(buffer) };
  views.set(address, table);
  return table;
}

/*
 * Closes the descriptors of worker threads that end without closing them: a thread that is terminated from outside (`worker.terminate()`) cannot run code, and
 * its descriptors belong to the process.
 *
 * Node.js runs the cleanup hooks of a thread's environment however the thread ends, after its event loop and its pending calls. Each descriptor that this
 * folder opens in a worker thread has such a hook, which is close(2). The main thread ends with the process, and needs none.
 */

const POINTER = 'uint64_t';
const program = koffi.load(null);
const addHook: (env: typeof koffi.node.env, call: number, argument: number) => number = program.func(
  'napi_add_env_cleanup_hook',
  'int',
  [POINTER, POINTER, POINTER],
);
const removeHook: typeof addHook = program.func('napi_remove_env_cleanup_hook', 'int', [POINTER, POINTER, POINTER]);

/** The address of close(2). */
const closeAddress: number = isMainThread ? 0 : dlsym(0, 'close');
/** Descriptors with a hook. Node.js aborts if the same hook is added twice. */
const noted = new Set<number>();

/** Records a descriptor that this thread has made or received; negative values are ignored. Returns it. */
export function noteDescriptor(fd: number): number {
  if (isMainThread || fd < 0 || noted.has(fd)) return fd;
  noted.add(fd);
  addHook(koffi.node.env, closeAddress, fd);
  return fd;
}

/** Removes the hook of a descriptor, before it is closed or handed over to the program. */
export function forgetDescriptor(fd: number): void {
  if (noted.delete(fd)) removeHook(koffi.node.env, closeAddress, fd);
}

/** Closes a descriptor. Only this function may close descriptors made by this folder. Returns as close(2): 0, or -1 with errno. */
export function closeDescriptor(fd: number): number {
  forgetDescriptor(fd);
  return closeCall(fd);
}
