/** Tagged messages, active messages and streams as traffic of a test. */

import type { AmMessage } from '../../../api/contract/active-message.ts';
import type { LocalBuffer, LocalMemory } from '../../../api/contract/memory.ts';
import type { AmSendParams, Request, RequestParams, StreamRecvParams, Tag } from '../../../api/contract/request.ts';
import { Status } from '../../../ucs/type/status.ts';
import { SEQUENCE_MASK } from './traffic.ts';
import { type UcpSide, UcpTraffic } from './ucp-side.ts';

/** The tag of ucx_perftest. */
const TAG = 0x1337a880;
const AM_ID = 1;
const ACKNOWLEDGEMENT_BYTES = 1;

/** Messages that are received by a posted receive or a handler. */
abstract class MessageTraffic extends UcpTraffic {
  protected readonly source: LocalMemory;
  protected readonly target: LocalMemory;
  /** Buffer of a message: the memory, or a list of its elements. */
  protected readonly outgoing: LocalBuffer;
  protected readonly incoming: LocalBuffer;
  protected readonly outgoingBytes: number;
  protected readonly incomingBytes: number;
  protected readonly taken: RequestParams;
  #verified = 0;

  constructor(side: UcpSide) {
    super(side);
    const { sendType, recvType } = side.spec;
    this.source = side.local(side.source);
    this.target = side.local(side.target);
    this.outgoing = side.buffer(side.source, sendType);
    this.incoming = side.buffer(side.target, recvType);
    this.outgoingBytes = sendType === 'iov' ? 0 : this.byteLength;
    this.incomingBytes = recvType === 'iov' ? 0 : this.byteLength;
    this.taken = {
      callback: (request, status) => {
        this.received += 1;
        this.checkStatus(status);
        request.free();
      },
    };
  }

  override send(sequence: number): Status {
    if (this.verifies) this.sourceContent.fill(sequence);
    return this.settle(this.start(this.outgoing, this.outgoingBytes));
  }

  override hasArrived(_sequence: number, index: number): boolean {
    if (this.verifies) this.verifyNew();
    return this.received > index;
  }

  override reset(): void {
    super.reset();
    this.#verified = 0;
    this.receivesData = true;
  }

  override acknowledge(): Status {
    return this.settle(this.start(this.source, ACKNOWLEDGEMENT_BYTES));
  }

  override get carrier(): string {
    return this.endpoint.messageTransport ?? this.libraryCarrier ?? 'none';
  }

  protected abstract start(local: LocalBuffer, byteLength: number): Status | Request;

  /** Counts a receive that ended in its call. */
  protected count(started: Status | Request): Status {
    if (started === Status.OK) this.received += 1;
    return typeof started === 'number' ? started : Status.INPROGRESS;
  }

  /** Checks messages received since the last call. The sender of a stream of messages receives only acknowledgements. */
  protected verifyNew(): void {
    for (; this.#verified < this.received; this.#verified++) {
      if (this.receivesData) this.targetContent.check(this.#verified & SEQUENCE_MASK);
    }
  }

  /** False while this side waits for an acknowledgement. */
  protected receivesData = true;

  override expectAcknowledgement(): boolean {
    this.receivesData = false;
    return true;
  }
}

/** Tagged messages, synchronous or not. */
export class TagTraffic extends MessageTraffic {
  readonly #isSync: boolean;
  /** Undefined for all bits. */
  readonly #mask: Tag | undefined;
  readonly #isProbed: boolean;

  constructor(side: UcpSide) {
    super(side);
    this.#isSync = side.spec.kind.operation === 'tag_sync';
    this.#mask = side.spec.wildcard ? 0 : undefined;
    this.#isProbed = side.spec.unexpected;
  }

  override expect(): Status {
    if (this.#isProbed && this.worker.tagProbe(TAG, this.#mask) === undefined) return Status.NO_RESOURCE;
    return this.count(this.worker.tagRecvNbx(this.incoming, 0, this.incomingBytes, TAG, this.#mask, this.taken));
  }

  override expectAcknowledgement(): boolean {
    super.expectAcknowledgement();
    this.count(this.worker.tagRecvNbx(this.target, 0, ACKNOWLEDGEMENT_BYTES, TAG, this.#mask, this.taken));
    return true;
  }

  protected override start(local: LocalBuffer, byteLength: number): Status | Request {
    return this.#isSync
      ? this.endpoint.tagSendSyncNbx(local, 0, byteLength, TAG)
      : this.endpoint.tagSendNbx(local, 0, byteLength, TAG);
  }
}

/** Active messages. Eager data is read in place for host memory, as in ucx_perftest, and received into device memory. */
export class AmTraffic extends MessageTraffic {
  readonly #header: Uint8Array | undefined;
  readonly #copies: boolean;
  /** Messages of a verified test that wait until the previous one was checked. */
  readonly #kept: AmMessage[] = [];
  #isBusy = false;
  readonly #params: AmSendParams | undefined = undefined;

  constructor(side: UcpSide) {
    super(side);
    const { headerBytes, recvMemory, recvType } = side.spec;
    this.#header = headerBytes === 0 ? undefined : new Uint8Array(headerBytes);
    this.#copies = recvMemory !== 'host' || recvType === 'iov';
    side.worker.setAmHandler(AM_ID, (message) => this.#onMessage(message));
  }

  override close(): void {
    for (const message of this.#kept.splice(0)) message.release();
    this.worker.setAmHandler(AM_ID, undefined);
    super.close();
  }

  protected override start(local: LocalBuffer, byteLength: number): Status | Request {
    return this.endpoint.amSendNbx(AM_ID, this.#header, local, 0, byteLength, this.#params);
  }

  protected override verifyNew(): void {
    if (this.#isBusy && this.received > this.#taken) this.#isBusy = false;
    super.verifyNew();
    const message = this.#isBusy ? undefined : this.#kept.shift();
    if (message === undefined) return;
    this.#isBusy = true;
    this.#taken = this.received;
    this.#receive(message);
    if (this.received > this.#taken) this.verifyNew();
  }

  #taken = 0;

  #onMessage(message: AmMessage): void {
    if (this.verifies && this.receivesData) this.#kept.push(message.retain());
    else if (message.isRendezvous || (this.#copies && this.receivesData)) this.#receive(message);
    else this.received += 1;
  }

  #receive(message: AmMessage): void {
    const isData = message.byteLength === this.byteLength;
    const [local, bytes] = isData ? [this.incoming, this.incomingBytes] : [this.target, message.byteLength];
    this.checkStatus(this.count(message.receiveNbx(local, 0, bytes, this.taken)));
  }
}

/** Bytes of a stream. */
export class StreamTraffic extends MessageTraffic {
  readonly #isData: boolean;
  readonly #waitAll: StreamRecvParams;
  #unit: number;
  #bytes = 0;

  constructor(side: UcpSide) {
    super(side);
    this.#isData = side.spec.streamData;
    this.#waitAll = { ...this.taken, waitAll: true };
    this.#unit = this.byteLength;
  }

  override expect(): Status {
    if (this.#isData) return Status.OK;
    return this.count(this.endpoint.streamRecvNbx(this.incoming, 0, this.incomingBytes, this.#waitAll));
  }

  override hasArrived(sequence: number, index: number): boolean {
    if (this.#isData) this.#takeData();
    return super.hasArrived(sequence, index);
  }

  override reset(): void {
    super.reset();
    this.#unit = this.byteLength;
  }

  override expectAcknowledgement(): boolean {
    super.expectAcknowledgement();
    this.#unit = ACKNOWLEDGEMENT_BYTES;
    if (!this.#isData) {
      this.count(this.endpoint.streamRecvNbx(this.target, 0, ACKNOWLEDGEMENT_BYTES, this.#waitAll));
    }
    return true;
  }

  protected override start(local: LocalBuffer, byteLength: number): Status | Request {
    return this.endpoint.streamSendNbx(local, 0, byteLength);
  }

  /** Reads data in place; a verified test copies it, message by message. */
  #takeData(): void {
    for (let data = this.endpoint.streamRecvData(); data !== undefined; data = this.endpoint.streamRecvData()) {
      for (let at = 0; at < data.byteLength; ) {
        const bytes = Math.min(this.#unit - this.#bytes, data.byteLength - at);
        if (this.verifies) {
          this.targetProbe.write(this.#bytes, data.subarray(at, at + bytes));
        }
        at += bytes;
        this.#bytes += bytes;
        if (this.#bytes < this.#unit) continue;
        this.#bytes = 0;
        this.received += 1;
        if (this.verifies) this.verifyNew();
      }
      this.endpoint.streamDataRelease(data);
    }
  }
}
