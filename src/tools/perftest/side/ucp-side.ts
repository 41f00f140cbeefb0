/**
 * One side of a UCP test: context, worker, memory, and the endpoint to the other side.
 */

import type { Context } from '../../../api/contract/context.ts';
import type { Endpoint } from '../../../api/contract/endpoint.ts';
import type { IovPiece, LocalBuffer, LocalMemory, MemoryHandle, RemoteKey } from '../../../api/contract/memory.ts';
import type { Worker } from '../../../api/contract/worker.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { Datatype, TestSpec } from '../options/spec.ts';
import type { Part } from './content.ts';
import { bytesOf, type Hello, hexOf, TestContext } from './test-context.ts';

/** One side. */
export class UcpSide {
  readonly spec: TestSpec;
  readonly worker: Worker;
  readonly source: MemoryHandle;
  readonly target: MemoryHandle;
  readonly #opened: TestContext;
  #endpoint: Endpoint | undefined;
  #rkey: RemoteKey | undefined;

  private constructor(spec: TestSpec, opened: TestContext) {
    this.spec = spec;
    this.#opened = opened;
    this.source = opened.source;
    this.target = opened.target;
    this.worker = opened.context.worker({ progress: 'manual' });
  }

  /** Opens a side. @throws UcxError: see TestContext.open */
  static async open(spec: TestSpec): Promise<UcpSide> {
    const needsCard = spec.sendMemory === 'gaudi' || spec.recvMemory === 'gaudi';
    return new UcpSide(spec, await TestContext.open(spec, needsCard));
  }

  get context(): Context {
    return this.#opened.context;
  }

  /** True when cards take part and are emulated. */
  get emulated(): boolean {
    const { sendMemory, recvMemory } = this.spec;
    return this.context.emulated && (sendMemory === 'gaudi' || recvMemory === 'gaudi');
  }

  greet(): Hello {
    return { address: hexOf(this.worker.address()), key: hexOf(this.context.packRkey(this.target)) };
  }

  /**
   * Connects to the other side, or to itself.
   * @throws UcxError ERR_INVALID_PARAM, ERR_ADDRESS_MALFORMED, ERR_RKEY_MALFORMED, ERR_UNREACHABLE
   */
  connect(peer: Readonly<Record<string, unknown>>): void {
    const errorHandling = this.spec.errorHandling ? 'peer' : 'none';
    this.#endpoint = this.worker.endpoint(bytesOf('address of the peer', peer['address']), { errorHandling });
    this.#rkey = this.#endpoint.unpackRkey(bytesOf('key of the peer', peer['key']));
  }

  get endpoint(): Endpoint {
    if (this.#endpoint === undefined) throw invalidParam('side', 'must be connected', undefined);
    return this.#endpoint;
  }

  /** Key of the memory that the other side receives into. */
  get rkey(): RemoteKey {
    if (this.#rkey === undefined) throw invalidParam('side', 'must be connected', undefined);
    return this.#rkey;
  }

  /** Where the parts of a message lie. */
  parts(type: Datatype): Part[] {
    const { sizes, stride } = this.spec;
    const total = sizes.reduce((sum, size) => sum + size, 0);
    if (type === 'contig') return [{ offset: 0, byteLength: total }];
    let next = 0;
    return sizes.map((byteLength, index) => {
      const offset = stride === 0 ? next : index * stride;
      next += byteLength;
      return { offset, byteLength };
    });
  }

  /** Memory as programs pass it: bytes, unless they are of a card or the test asks for mapped memory (-z). */
  local(memory: MemoryHandle): LocalMemory {
    return this.spec.mapped ? memory : (memory.bytes ?? memory);
  }

  /** Memory as the operations of messages take it. */
  buffer(handle: MemoryHandle, type: Datatype): LocalBuffer {
    const memory = this.local(handle);
    if (type === 'contig') return memory;
    return this.parts(type).map((part): IovPiece => ({ memory, ...part }));
  }

  /** Ends at once: operations in flight are cancelled. */
  async close(): Promise<void> {
    this.#rkey?.release();
    await this.#opened.close();
  }
}
