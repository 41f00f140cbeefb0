/**
 * Operations of transports that are driven to their end, and their parameters: memory, keys, completions. It does not depend on vitest, so that
 * programs can use it.
 */

import { strictEqual } from 'node:assert';
import { Status } from '../../../src/ucs/type/status.ts';
import type { Completion, Iface, UctEndpoint } from '../../../src/uct/api/iface.ts';
import type { MdMemory } from '../../../src/uct/api/memory.ts';
import type { MemoryDomain } from '../../../src/uct/api/memory-domain.ts';

/** A completion that records the number and order of its calls. */
export class CountingCompletion implements Completion {
  count = 1;
  failure: Status = Status.OK;
  calls = 0;
  readonly #order: unknown[] | undefined;
  readonly #name: unknown;

  constructor(order?: unknown[], name?: unknown) {
    this.#order = order;
    this.#name = name;
  }

  onComplete(): void {
    this.calls += 1;
    this.#order?.push(this.#name);
  }
}

/** Drives an interface until `isDone`. */
export async function driveUntil(iface: Iface, isDone: () => boolean): Promise<void> {
  for (let turn = 0; !isDone(); turn++) {
    if (iface.progress() === 0 && turn % 64 === 63) await iface.wait(1e6);
  }
}

/** Starts an operation, and retries while there are no resources: transports connect with the first one. Returns the status of its start. */
export async function started(iface: Iface, completion: CountingCompletion, start: () => Status): Promise<Status> {
  let status = start();
  while (status === Status.NO_RESOURCE) {
    strictEqual(completion.calls, 0);
    if (iface.progress() === 0) await iface.wait(1e6);
    status = start();
  }
  return status;
}

/** Starts an operation like {@link started} and returns its final status. */
export async function finish(iface: Iface, start: (completion: Completion) => Status): Promise<Status> {
  const completion = new CountingCompletion();
  const status = await started(iface, completion, () => start(completion));
  if (status !== Status.INPROGRESS) {
    strictEqual(completion.calls, 0);
    return status;
  }
  await driveUntil(iface, () => completion.calls > 0);
  strictEqual(completion.calls, 1);
  return completion.failure;
}

/** Waits until all operations have reached remote memory. */
export function flush(iface: Iface, endpoint: UctEndpoint): Promise<Status> {
  return finish(iface, (completion) => endpoint.flush(completion));
}

/** The key of memory, packed and unpacked. */
export function keyOf(md: MemoryDomain, memory: MdMemory): ReturnType<MemoryDomain['rkeyUnpack']> {
  return md.rkeyUnpack(packedKey(md, memory));
}

/** The packed key of memory. */
export function packedKey(md: MemoryDomain, memory: MdMemory): Uint8Array {
  const packed = new Uint8Array(md.attributes.rkeyPackedBytes);
  md.mkeyPack(memory, packed, 0);
  return packed;
}

/** The error that a call throws; fails if it throws none. */
export function errorOf(call: () => unknown): {
  readonly code: string;
  readonly status: Status;
  readonly message: string;
} {
  try {
    call();
  } catch (error) {
    return error as { code: string; status: Status; message: string };
  }
  throw new Error('nothing was thrown');
}

/** A buffer with its own ArrayBuffer. */
export function ownBytes(byteLength: number): Uint8Array {
  return new Uint8Array(new ArrayBuffer(byteLength));
}
