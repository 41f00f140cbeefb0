/** Receives of the data of active messages into host or device memory, for programs and for the engine itself. */

import { lengthOf } from '../../api/awaited/endpoint.ts';
import type { ReceivedMessage } from '../../api/awaited/messages.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import { type GivenMemory, isList, type LocalRange, piecesOf } from '../../api/memory/local.ts';
import { invalidParam, outsideOf } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { Arrivals, Descriptor } from '../request/arrivals.ts';
import { cutList } from '../request/local.ts';
import { RequestKind, TRANSPORT } from '../request/request.ts';
import type { CardDatatype } from './datatype.ts';
import type { CardSteps, StepDone, StepStart } from './steps.ts';

/** Received bytes of a message or a stream, in memory of this process. */
export interface ArrivedBytes {
  readonly source: Uint8Array;
  readonly dataOffset: number;
  readonly byteLength: number;
  isReceived: boolean;
}

/** The data receives of one worker. */
export class DataReceives {
  readonly #core: WorkerCore;
  readonly #arrivals: Arrivals;
  readonly #steps: CardSteps;
  readonly #datatype: CardDatatype;

  constructor(core: WorkerCore, arrivals: Arrivals, steps: CardSteps, datatype: CardDatatype) {
    this.#core = core;
    this.#arrivals = arrivals;
    this.#steps = steps;
    this.#datatype = datatype;
  }

  /** Copies received bytes into local memory. @param access access for which it must be mapped: bits of MemAccess */
  copyOut(
    arrived: ArrivedBytes,
    { local, localOffset }: GivenMemory<LocalMemory>,
    params: RequestParams | undefined,
    access: number,
  ): Status | Request {
    const { context, requests } = this.#core;
    const { byteLength } = arrived;
    const pieces = piecesOf<LocalMemory>(context, { local, localOffset, byteLength }, access);
    const request = requests.beginComposite('am/libucp');
    if (request === undefined) return Status.NO_RESOURCE;
    request.kind = RequestKind.AM_RECV;
    request.transport = TRANSPORT;
    request.pin(local, byteLength);
    arrived.isReceived = true;
    request.receivedBytes = byteLength;
    this.#datatype.copyOut(request, pieces, arrived);
    return requests.endedAtOnce(request, Status.OK, params);
  }

  /**
   * See AmMessageBase.receiveNbx. Also returns the status of the sender's endpoint if it has failed: its data cannot be received any more.
   * @param access access for which the memory must be mapped: bits of MemAccess
   * @throws UcxError ERR_INVALID_PARAM for memory that is too short; the data can then be received again
   */
  receive(
    message: ReceivedMessage,
    given: GivenMemory<LocalMemory>,
    params: RequestParams | undefined,
    access: number = MemAccess.LOCAL_WRITE,
  ): Status | Request {
    const { local, localOffset, byteLength } = given;
    const { buffers, functions, handle, requests } = this.#core;
    const room = isList(local) ? lengthOf(local) : byteLength;
    if (!Number.isSafeInteger(room)) throw invalidParam('byteLength', 'must be an integer of 0 or more', room);
    if (room < message.byteLength) {
      throw outsideOf('local memory', 'byteLength', { offset: 0, byteLength: message.byteLength, size: room });
    }
    const { waiting } = message;
    if (waiting === undefined) return this.copyOut(message, given, params, access);
    const cut = isList(local) ? cutList(local, message.byteLength) : local;
    const target = { local: cut, localOffset, byteLength: message.byteLength };
    const sender = message.sender as EngineEndpoint | undefined;
    if (sender !== undefined && sender.status !== Status.OK) {
      buffers.check(target, access);
      // libucp would wait for the failed sender until the endpoint is closed here.
      message.isReceived = true;
      message.waiting = undefined;
      this.#arrivals.release(waiting as Descriptor);
      return sender.status;
    }
    const request = buffers.begin(RequestKind.AM_RECV, 'am/libucp', target, access);
    if (request === undefined) return Status.NO_RESOURCE;
    request.endpoint = sender;
    message.isReceived = true;
    message.waiting = undefined;
    const descriptor = this.#arrivals.take(waiting as Descriptor);
    const { address, count } = request;
    const started = functions.ucp_am_recv_data_nbx(handle, descriptor, address, count, requests.parameters.address);
    if (started === 0) request.receivedBytes = message.byteLength;
    return requests.started(request, started, params);
  }

  /**
   * Receives the data of an internal message, as a step.
   * @param isWanted called if the receive has to be retried; false drops the data
   */
  receiveOwn(
    message: ReceivedMessage,
    { local, localOffset }: LocalRange<LocalMemory>,
    isWanted: () => boolean,
    done: StepDone,
  ): void {
    let waiting: ReceivedMessage | undefined = message;
    const start: StepStart = (params) => {
      if (waiting === undefined || !isWanted()) return Status.CANCELED;
      // The access was checked already: an operation of a peer does not need local access.
      const range = { local, localOffset, byteLength: waiting.byteLength };
      const started = this.receive(waiting, range, params, 0);
      if (started !== Status.NO_RESOURCE) waiting = undefined;
      else if (waiting.isView) waiting = waiting.retain();
      return started;
    };
    this.#steps.run(start, (status, error) => {
      waiting?.release();
      done(status, error);
    });
  }
}
