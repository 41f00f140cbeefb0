/** The functions that libucp calls at the end of an operation, by the kind of its request. */

import { NativeCallback } from '../../sys/index.ts';
import type { Status } from '../../ucs/type/status.ts';
import { RequestKind } from './request.ts';

const [HANDLE, STATUS, INDEX] = ['uint64_t', 'int8_t', 'uint64_t'] as const;

/** What a callback reports: runs inside a call of C. */
export interface EndReports {
  /** @param handle of libucp @param index number of the request, which its parameters have */
  onEnd(handle: number, index: number, status: Status): void;
  /** The same for a receive of a tagged message. @param info address of ucp_tag_recv_info_t */
  onTagEnd(handle: number, index: number, status: Status, info: number): void;
  /** The same for a receive of an active message. */
  onReceiveEnd(handle: number, index: number, status: Status, byteLength: number): void;
}

/** The callbacks of one worker. */
export class EndCallbacks {
  readonly #callbacks: readonly NativeCallback[];

  constructor(reports: EndReports) {
    const send = new NativeCallback({
      result: 'void',
      parameters: [HANDLE, STATUS, INDEX],
      call: (handle: number, status: Status, index: number) => reports.onEnd(handle, index, status),
    });
    const tagReceive = new NativeCallback({
      result: 'void',
      parameters: [HANDLE, STATUS, 'uint64_t', INDEX],
      call: (handle: number, status: Status, info: number, index: number) =>
        reports.onTagEnd(handle, index, status, info),
    });
    const receive = new NativeCallback({
      result: 'void',
      parameters: [HANDLE, STATUS, 'uint64_t', INDEX],
      call: (handle: number, status: Status, byteLength: number, index: number) =>
        reports.onReceiveEnd(handle, index, status, byteLength),
    });
    this.#callbacks = [send, tagReceive, receive];
  }

  /** Addresses, by RequestKind; the last kind has none. */
  get addresses(): readonly number[] {
    return this.#callbacks.slice(0, RequestKind.COMPOSITE).map(({ address }) => address);
  }

  /** Releases the callbacks; libucp has no request any more. */
  close(): void {
    for (const callback of this.#callbacks) callback.close();
  }
}
