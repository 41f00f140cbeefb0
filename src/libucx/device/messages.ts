/**
 * Messages from and to memory of cards for libucp: a generic datatype whose functions copy. A message stays one message, and is matched and ordered
 * like any other: the peer may be any program that uses libucp.
 */

import { addressOf, NativeCallback } from '../../sys/index.ts';
import type { Piece } from '../../ucp/api/memory/local-bytes.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_GENERIC_DT_OPS, UCS_MEMORY_TYPE } from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { UcpRequest } from '../request/request.ts';
import { IncomingMessage } from './incoming.ts';
import { OutgoingMessage } from './outgoing.ts';
import type { Staging } from './staged/staging.ts';

const U64 = 'uint64_t';

/** The messages of one worker. */
export class DeviceMessages {
  readonly #staging: Staging;
  /** Messages by the number that libucp receives in place of an address. */
  readonly #outgoing: Map<number, OutgoingMessage> = new Map();
  readonly #incoming: Map<number, IncomingMessage> = new Map();
  #lastNumber = 0;
  /** The datatype of libucp, and its functions; created for the first message. */
  #datatype = 0;
  #callbacks: readonly NativeCallback[] = [];

  constructor(staging: Staging) {
    this.#staging = staging;
  }

  /**
   * Sets the datatype of a message in the parameters of the operation that is being started.
   * @returns the number that is passed in place of its address
   */
  initDatatype(
    request: UcpRequest,
    pieces: readonly Piece<LocalMemory>[],
    byteLength: number,
    isReceived: boolean,
  ): number {
    if (this.#datatype === 0) this.#create();
    const { requests } = this.#staging.worker;
    requests.setDatatype(this.#datatype);
    requests.setMemoryType(UCS_MEMORY_TYPE.HOST);
    this.#lastNumber += 1;
    if (isReceived) this.#expect(this.#lastNumber, request, pieces, byteLength);
    else this.#offer(this.#lastNumber, request, pieces, byteLength);
    return this.#lastNumber;
  }

  /** Copies received bytes into memory, for a request that ends with {@link Requests.endedAtOnce}. */
  copyOut(
    request: UcpRequest,
    pieces: readonly Piece<LocalMemory>[],
    source: Uint8Array,
    offset: number,
    byteLength: number,
  ): void {
    this.#lastNumber += 1;
    const message = this.#expect(this.#lastNumber, request, pieces, byteLength);
    if (byteLength > 0) message.unpack(0, addressOf(source) + offset, byteLength);
  }

  /** Releases the datatype; libucp has no message any more. */
  close(): void {
    if (this.#datatype === 0) return;
    this.#staging.worker.functions.ucp_dt_destroy(this.#datatype);
    for (const callback of this.#callbacks) callback.close();
  }

  #offer(number: number, request: UcpRequest, pieces: readonly Piece<LocalMemory>[], byteLength: number): void {
    const message = new OutgoingMessage(this.#staging, pieces, byteLength);
    this.#outgoing.set(number, message);
    request.deferEnd = (ended, status) => message.deferEnd(ended, status);
    request.settle = (_, status) => {
      this.#outgoing.delete(number);
      if (message.failure === Status.OK) return status;
      this.#giveUp(request, message.failure);
      return message.failure;
    };
  }

  /** Fails the connection, because a message in flight cannot be withdrawn and its receiver must not treat its zeros as data. */
  #giveUp({ sender }: UcpRequest, failure: Status): void {
    const { log } = this.#staging.worker.context;
    log.error('a message could not be read from a card, and its receiver gets zeros: the connection is given up');
    sender?.onFailed(failure);
  }

  #expect(
    number: number,
    request: UcpRequest,
    pieces: readonly Piece<LocalMemory>[],
    byteLength: number,
  ): IncomingMessage {
    const message = new IncomingMessage(this.#staging, pieces, byteLength);
    this.#incoming.set(number, message);
    request.deferEnd = (ended, status) => message.deferEnd(ended, status);
    request.settle = (_, status) => {
      this.#incoming.delete(number);
      message.close();
      return status >= 0 && message.failure < 0 ? message.failure : status;
    };
    return message;
  }

  #create(): void {
    const { functions } = this.#staging.worker;
    const start = new NativeCallback({
      result: U64,
      parameters: [U64, U64, U64],
      fallback: 0,
      call: (_context: number, number: number) => number,
    });
    const packedSize = new NativeCallback({
      result: U64,
      parameters: [U64],
      fallback: 0,
      call: (number: number) => (this.#outgoing.get(number) ?? this.#incoming.get(number))!.byteLength,
    });
    const pack = new NativeCallback({
      result: U64,
      parameters: [U64, U64, U64, U64],
      fallback: 0,
      call: (number: number, offset: number, address: number, max: number) =>
        this.#outgoing.get(number)!.pack(offset, address, max),
    });
    const unpack = new NativeCallback({
      result: 'int8_t',
      parameters: [U64, U64, U64, U64],
      fallback: Status.IO_ERROR,
      call: (number: number, offset: number, address: number, byteLength: number) => {
        this.#incoming.get(number)!.unpack(offset, address, byteLength);
        return Status.OK;
      },
    });
    const finish = new NativeCallback({ result: 'void', parameters: [U64], call: () => {} });
    this.#callbacks = [start, packedSize, pack, unpack, finish];
    using operations = new Fields(UCP_GENERIC_DT_OPS);
    using datatype = new OutValue();
    operations.setU64('start_pack', start.address).setU64('start_unpack', start.address);
    operations.setU64('packed_size', packedSize.address).setU64('pack', pack.address);
    operations.setU64('unpack', unpack.address).setU64('finish', finish.address);
    checkStatus(functions.ucp_dt_create_generic(operations.address, 0, datatype.address), 'ucp_dt_create_generic');
    this.#datatype = datatype.value;
  }
}
