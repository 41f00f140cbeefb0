/**
 * The libucp datatype of messages from and to memory of cards: a generic datatype whose functions copy. libucp matches and orders such a message like any
 * other, so the peer may be any program that uses libucp.
 */

import type { Piece } from '../../api/memory/local.ts';
import { addressOf, NativeCallback } from '../../sys/index.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_GENERIC_DT_OPS, UCS_MEMORY_TYPE } from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';
import { type CopiedMessage, IncomingMessage, OutgoingMessage } from './staged.ts';
import type { CardSteps } from './steps.ts';

const U64 = 'uint64_t';

/** The device-memory messages of one worker. */
export class CardDatatype {
  readonly #staging: CardSteps;
  /** Messages by the number that is passed to libucp in place of an address. */
  readonly #outgoing: Map<number, OutgoingMessage> = new Map();
  readonly #incoming: Map<number, IncomingMessage> = new Map();
  #lastNumber = 0;
  /** Handle of the datatype, created for the first message; 0 before. */
  #datatype = 0;
  #callbacks: readonly NativeCallback[] = [];

  constructor(staging: CardSteps) {
    this.#staging = staging;
  }

  /** Implements the callback of {@link LocalRanges}. */
  initDatatype(request: UcpRequest, pieces: readonly Piece<LocalMemory>[], byteLength: number): number {
    if (this.#datatype === 0) this.#create();
    const { requests } = this.#staging.core;
    requests.parameters.setDatatype(this.#datatype);
    requests.parameters.setMemoryType(UCS_MEMORY_TYPE.HOST);
    if (request.kind !== RequestKind.SEND)
      return this.#add(this.#incoming, request, new IncomingMessage(this.#staging, pieces, byteLength));
    const message = new OutgoingMessage(this.#staging, pieces, byteLength);
    request.startFailure = message.readHead();
    return this.#add(this.#outgoing, request, message);
  }

  /** Copies received bytes into memory, for a request that {@link Requests.endedAtOnce} ends. */
  copyOut(
    request: UcpRequest,
    pieces: readonly Piece<LocalMemory>[],
    {
      source,
      dataOffset,
      byteLength,
    }: { readonly source: Uint8Array; readonly dataOffset: number; readonly byteLength: number },
  ): void {
    const message = new IncomingMessage(this.#staging, pieces, byteLength);
    this.#add(this.#incoming, request, message);
    if (byteLength > 0) message.unpack(0, addressOf(source) + dataOffset, byteLength);
  }

  /** Releases the datatype. Call this when libucp has no messages any more. */
  close(): void {
    if (this.#datatype === 0) return;
    this.#staging.core.functions.ucp_dt_destroy(this.#datatype);
    for (const callback of this.#callbacks) callback.close();
  }

  /** Ends the message together with a request. @returns the number of the message */
  #add<M extends CopiedMessage>(messages: Map<number, M>, request: UcpRequest, message: M): number {
    this.#lastNumber += 1;
    const number = this.#lastNumber;
    messages.set(number, message);
    request.deferEnd = (ended, status) => message.deferEnd(ended, status);
    request.settle = (ended, status) => {
      messages.delete(number);
      return message.settle(ended, status);
    };
    return number;
  }

  #create(): void {
    const { functions } = this.#staging.core;
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
      call: (number: number) => (this.#outgoing.get(number) ?? this.#incoming.get(number))?.byteLength ?? 0,
    });
    const pack = new NativeCallback({
      result: U64,
      parameters: [U64, U64, U64, U64],
      fallback: 0,
      call: (number: number, offset: number, address: number, max: number) =>
        this.#outgoing.get(number)?.pack(offset, address, max) ?? 0,
    });
    const unpack = new NativeCallback({
      result: 'int8_t',
      parameters: [U64, U64, U64, U64],
      fallback: Status.IO_ERROR,
      call: (number: number, offset: number, address: number, byteLength: number) => {
        this.#incoming.get(number)?.unpack(offset, address, byteLength);
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
