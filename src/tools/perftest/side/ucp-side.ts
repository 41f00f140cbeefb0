/**
 * One side of a UCP test: context, worker, memory, and the endpoint to the other side. Base class of the traffic of UCP operations: pending requests,
 * the flush, and the check of contents.
 */

import type { Context } from '../../../api/contract/context.ts';
import type { Endpoint } from '../../../api/contract/endpoint.ts';
import type { IovPiece, LocalBuffer, LocalMemory, MemoryHandle, RemoteKey } from '../../../api/contract/memory.ts';
import type { Request, RequestParams } from '../../../api/contract/request.ts';
import type { Worker } from '../../../api/contract/worker.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { type Datatype, messageBytes, type TestSpec } from '../spec.ts';
import { MemoryProbe } from './memory-probe.ts';
import { bytesOf, type Hello, hexOf, TestContext } from './test-context.ts';
import { Content, type Part, Traffic } from './traffic.ts';

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

  /** True if the context has cards and they are emulated. */
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

  /** Key of the receive memory of the other side. */
  get rkey(): RemoteKey {
    if (this.#rkey === undefined) throw invalidParam('side', 'must be connected', undefined);
    return this.#rkey;
  }

  /** Offsets and lengths of the elements of a message. */
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

  /** Memory as programs pass it: bytes for host memory, unless the test uses memory handles (-z). */
  local(memory: MemoryHandle): LocalMemory {
    return this.spec.mapped ? memory : (memory.bytes ?? memory);
  }

  /** Memory in the form that message operations take. */
  buffer(handle: MemoryHandle, type: Datatype): LocalBuffer {
    const memory = this.local(handle);
    if (type === 'contig') return memory;
    return this.parts(type).map((part): IovPiece => ({ memory, ...part }));
  }

  /** Closes at once: operations in flight are cancelled. */
  async close(): Promise<void> {
    this.#rkey?.release();
    await this.#opened.close();
  }
}

/** Traffic over an endpoint. */
export abstract class UcpTraffic extends Traffic {
  protected readonly spec: TestSpec;
  protected readonly worker: Worker;
  protected readonly endpoint: Endpoint;
  protected readonly byteLength: number;
  protected readonly verifies: boolean;
  protected readonly sourceProbe: MemoryProbe;
  protected readonly targetProbe: MemoryProbe;
  /** Contents of a verified test; empty in others. */
  protected readonly sourceContent: Content;
  protected readonly targetContent: Content;
  /** Ends a message that was sent. */
  protected readonly sent: Required<Pick<RequestParams, 'callback'>>;
  /** Name and version of libucp if it runs the operations; undefined for the native engine. */
  readonly #library: string | undefined;
  /** Lane of the first operation that did not end in its call, if libucp reports it; undefined before. */
  #lane: string | undefined;
  #flushing: Request | undefined;

  constructor(side: UcpSide) {
    super();
    this.spec = side.spec;
    const { name, version } = side.context.engine;
    this.#library = name === 'native' ? undefined : `libucp ${version}`;
    this.worker = side.worker;
    this.endpoint = side.endpoint;
    this.byteLength = messageBytes(side.spec);
    this.verifies = side.spec.verify;
    this.sourceProbe = new MemoryProbe(side.context, side.worker, side.source);
    this.targetProbe = new MemoryProbe(side.context, side.worker, side.target);
    this.sourceContent = new Content(this.sourceProbe, this.verifies ? side.parts(side.spec.sendType) : []);
    this.targetContent = new Content(this.targetProbe, this.verifies ? side.parts(side.spec.recvType) : []);
    this.sent = {
      callback: (request, status) => {
        this.outstanding -= 1;
        this.onSent(request, status);
        request.free();
      },
    };
  }

  override progress(): number {
    return this.worker.progress();
  }

  override causeOf(status: Status): unknown {
    return this.worker.causeOf(status);
  }

  override sleep(signal: AbortSignal): Promise<void> {
    return this.worker.wait({ signal });
  }

  override flush(): boolean {
    if (this.#flushing === undefined) {
      const started = this.worker.flushNbx();
      if (started === Status.NO_RESOURCE) return false;
      if (typeof started === 'number') {
        this.checkStatus(started);
        return true;
      }
      this.#flushing = started;
    }
    if (!this.#flushing.isCompleted) return false;
    this.checkStatus(this.#flushing.status);
    this.#flushing.free();
    this.#flushing = undefined;
    return true;
  }

  override close(): void {
    this.sourceProbe.close();
    this.targetProbe.close();
  }

  /** libucp and its lane, if it runs the operations. */
  protected get libraryCarrier(): string | undefined {
    return this.#library === undefined ? undefined : `${this.#library} ${this.#lane ?? ''}`.trimEnd();
  }

  /** A message that was sent has ended. */
  protected onSent(request: Request, status: Status): void {
    if (this.#library !== undefined && this.#lane === undefined) {
      const { transport, device } = request;
      this.#lane = device === undefined ? '' : `${transport}/${device}`;
    }
    this.checkStatus(status);
  }

  /** Handles the return value of an operation. The callback is set on its request, because some operations are faster without parameters. */
  protected settle(started: Status | Request): Status {
    if (typeof started === 'number') return started;
    this.outstanding += 1;
    started.callback = this.sent.callback;
    return Status.INPROGRESS;
  }

  protected checkStatus(status: Status): void {
    if (status < 0) this.error ??= statusError(status, `operation of ${this.spec.kind.name}`, this.causeOf(status));
  }
}
