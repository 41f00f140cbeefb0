/** Base class of the traffic of UCP operations: pending requests, the flush, and the check of contents. */

import type { Endpoint } from '../../../api/contract/endpoint.ts';
import type { Request, RequestParams } from '../../../api/contract/request.ts';
import type { Worker } from '../../../api/contract/worker.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { messageBytes, type TestSpec } from '../options/spec.ts';
import { Content } from './content.ts';
import { MemoryProbe } from './memory-probe.ts';
import { Traffic } from './traffic.ts';
import type { UcpSide } from './ucp-side.ts';

/** Traffic over an endpoint. */
export abstract class UcpTraffic extends Traffic {
  protected readonly spec: TestSpec;
  protected readonly worker: Worker;
  protected readonly endpoint: Endpoint;
  protected readonly byteLength: number;
  protected readonly verifies: boolean;
  protected readonly sourceProbe: MemoryProbe;
  protected readonly targetProbe: MemoryProbe;
  /** Contents of a verified test; those of others are empty. */
  protected readonly sourceContent: Content;
  protected readonly targetContent: Content;
  /** Ends a message that was sent. */
  protected readonly sent: Required<Pick<RequestParams, 'callback'>>;
  /** Name and version of the library that carries operations; undefined for this library. */
  readonly #library: string | undefined;
  /** Lane of the first operation that did not end in its call, if that library reports it; undefined before. */
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

  /** What carries operations where it is not this library: the library, and its lane. */
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

  /** Handles the return value of an operation. The callback is set on its request here because some operations are faster without parameters. */
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
