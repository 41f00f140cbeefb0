/** What the demonstration and its worker processes say to each other over the channel of node:child_process. Types only. */

/** How the cards get the slices of the others. */
export type Round = 'put' | 'get' | 'tag';

/** What a process must know of another to reach it and its HBM. */
export interface Contact {
  /** Packed address of its worker. */
  readonly address: Uint8Array;
  /** Packed remote key of its HBM. */
  readonly key: Uint8Array;
}

/** What a process is told about itself. */
export interface Assignment {
  /** Number of its slice of the file. */
  readonly index: number;
  /** Cards that take part. */
  readonly count: number;
  readonly file: string;
  /** Bytes of the file that the cards exchange. */
  readonly byteLength: number;
  /** Bytes behind the file in the HBM, twice: from the first half is measured, to the second. */
  readonly spareBytes: number;
}

/** What a process is asked to do: one thing at a time. */
export type Command =
  | ({ readonly kind: 'open' } & Assignment)
  | { readonly kind: 'connect'; readonly cards: readonly Contact[] }
  | { readonly kind: 'load' }
  | { readonly kind: 'exchange'; readonly round: Round }
  | { readonly kind: 'digest' }
  | { readonly kind: 'measure'; readonly to: number; readonly repetitions: number };

/** What a process did in a round. */
export interface RoundAnswer {
  readonly bytes: number;
  /** Transport and device that carried the bytes, and the protocol; undefined where there was nothing to move. */
  readonly transport: string | undefined;
  readonly protocol: string | undefined;
}

/** What it answers, by the kind of command. */
export interface Answers {
  open: Contact;
  connect: null;
  load: null;
  exchange: RoundAnswer;
  /** SHA-256 of what its HBM holds, as hexadecimal digits. */
  digest: string;
  /** Nanoseconds for all repetitions. */
  measure: number;
}

/** Ends a process. */
export const END = 'end';

/** An answer, or why there is none. */
export type Reply = { readonly value: Answers[keyof Answers] } | { readonly failure: string };
