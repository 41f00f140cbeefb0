/** Messages between the demonstration and its processes, over the IPC channel of node:child_process. */

/** Operation for exchanging the slices. */
export type Round = 'put' | 'get' | 'tag';

/** Address of a process, and key of its HBM. */
export interface Contact {
  /** Packed address of its worker. */
  readonly address: Uint8Array;
  /** Packed remote key of its HBM. */
  readonly key: Uint8Array;
}

/** Parameters of a process. */
export interface Assignment {
  /** Index of its slice of the file. */
  readonly index: number;
  /** Number of cards in the exchange. */
  readonly count: number;
  readonly file: string;
  /** Bytes of the file that the cards exchange. */
  readonly byteLength: number;
  /** Size of each of the two ranges after the file in the HBM: source and target of the measured puts. */
  readonly spareBytes: number;
}

/** Commands to a process, one at a time. */
export type Command =
  | ({ readonly kind: 'open' } & Assignment)
  | { readonly kind: 'connect'; readonly cards: readonly Contact[] }
  | { readonly kind: 'load' }
  | { readonly kind: 'exchange'; readonly round: Round }
  | { readonly kind: 'digest' }
  | { readonly kind: 'measure'; readonly to: number; readonly repetitions: number };

/** Transfers of a process in a round. */
export interface RoundAnswer {
  readonly bytes: number;
  /** Transport, device and protocol of the transfers; undefined if there were no bytes to transfer. */
  readonly transport: string | undefined;
  readonly protocol: string | undefined;
  /** Note of explain for the protocol of a put or get, such as `dma-buf`. */
  readonly note?: string | undefined;
}

/** Replies, by the kind of command. */
export interface Answers {
  open: Contact;
  connect: null;
  load: null;
  exchange: RoundAnswer;
  /** SHA-256 of the file in its HBM, as hexadecimal digits. */
  digest: string;
  /** Nanoseconds for all repetitions. */
  measure: number;
}

/** Ends a process. */
export const END = 'end';

/** Reply to a command, or the reason of its failure. */
export type Reply = { readonly value: Answers[keyof Answers] } | { readonly failure: string };
