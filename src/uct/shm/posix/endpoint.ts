/**
 * An endpoint of posix: loads and stores in attached memory of peers, and messages through a ring that the first message creates. Also the unpacked remote key
 * of posix: remote memory that is mapped into this process.
 */

import { moveBytes, storeWords } from '../../../ucs/memory/bytes.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';
import type { AmPacker, AtomicCall, UctEndpoint } from '../../api/iface.ts';
import type { RemoteKey } from '../../api/memory.ts';
import { AtomicWords } from '../../base/atomic-word.ts';
import { fitsMessage, isInBytes, isInside } from '../../base/checks.ts';
import { Transfer, type TransferCounters } from '../../base/counters.ts';
import { checkIov, type HostIovEntry } from '../../base/host/memory.ts';
import type { PublishedKey } from '../../base/key/rkey-table-reader.ts';
import { isLackOfResources, type Segment, type SegmentCache } from '../../base/key/segment.ts';
import { messageBytesMax, type RingGeometry, type RingSender, SLOTS } from './layout.ts';
import type { Peer } from './peer.ts';
import { RingWriter } from './ring.ts';

/** Offsets below it are small integers in V8. */
const WORD_OFFSET_MAX = 2 ** 31;
/** Number of blocked sends after which a sender checks whether the receiver runs. */
const REFUSALS_PER_CHECK = 256;

/** The fields of {@link PosixShared} that are given. */
type PosixSharedOptions = Pick<PosixShared, 'geometry' | 'counters' | 'sender' | 'folder' | 'onShortage'>;

/** State that the endpoints of one interface share. */
export class PosixShared {
  readonly geometry: RingGeometry;
  readonly counters: TransferCounters;
  /** The interface as the sender of messages. */
  readonly sender: RingSender;
  /** Folder of its files, and of those of its peers. */
  readonly folder: string;
  /** Called when the ring of an endpoint cannot be created; warns once. Returns the reason, as text for users. */
  readonly onShortage: (error: UcxError) => string;
  readonly endpoints: Set<PosixEndpoint> = new Set();
  /** Endpoints that have found no free slot. */
  readonly blocked: PosixEndpoint[] = [];

  constructor({ geometry, counters, sender, folder, onShortage }: PosixSharedOptions) {
    this.geometry = geometry;
    this.counters = counters;
    this.sender = sender;
    this.folder = folder;
    this.onShortage = onShortage;
  }

  /** Notes that an endpoint has found no free slot. */
  blockOnSend(endpoint: PosixEndpoint): void {
    endpoint.blockedOnSend = true;
    this.blocked.push(endpoint);
  }

  /** Called when one of the blocked endpoints has a free slot: all of them retry. */
  unblock(): void {
    for (const endpoint of this.blocked) endpoint.blockedOnSend = false;
    this.blocked.length = 0;
  }

  forget(endpoint: PosixEndpoint): void {
    this.endpoints.delete(endpoint);
    const at = this.blocked.indexOf(endpoint);
    if (at >= 0) this.blocked.splice(at, 1);
  }
}

export class PosixEndpoint implements UctEndpoint {
  /** Whether this endpoint is in the list of blocked endpoints of the interface. */
  blockedOnSend = false;
  readonly #shared: PosixShared;
  readonly #peer: Peer;
  readonly #counters: TransferCounters;
  readonly #messageBytesMax: number;
  #ring: RingWriter | undefined = undefined;
  /** The ring before it is announced. */
  #newRing: RingWriter | undefined = undefined;
  /** The reason why the peer does not receive any more; OK while it does. */
  #failure: Status = Status.OK;
  #refusals = 0;
  #closed = false;

  constructor(shared: PosixShared, peer: Peer) {
    this.#shared = shared;
    this.#peer = peer;
    this.#counters = shared.counters;
    this.#messageBytesMax = messageBytesMax(shared.geometry);
    shared.endpoints.add(this);
  }

  get peerPlace(): string {
    return this.#peer.place;
  }

  putShort(source: Uint8Array, sourceOffset: number, byteLength: number, remoteOffset: number, key: PosixKey): Status {
    if (!isInBytes(sourceOffset, byteLength, source)) return Status.INVALID_PARAM;
    if (!isInside(remoteOffset, byteLength, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    const at = key.base + remoteOffset;
    if ((at & 3) === 0 && at < WORD_OFFSET_MAX) {
      storeWords(key.words, at >> 2, key.all, source, sourceOffset, byteLength);
    } else {
      moveBytes(key.bytes, remoteOffset, source, sourceOffset, byteLength);
    }
    this.#counters.short(Transfer.PUT, byteLength);
    return Status.OK;
  }

  getShort(target: Uint8Array, targetOffset: number, byteLength: number, remoteOffset: number, key: PosixKey): Status {
    if (!isInBytes(targetOffset, byteLength, target)) return Status.INVALID_PARAM;
    if (!isInside(remoteOffset, byteLength, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    moveBytes(target, targetOffset, key.bytes, remoteOffset, byteLength);
    this.#counters.short(Transfer.GET, byteLength);
    return Status.OK;
  }

  putZcopy(iov: readonly HostIovEntry[], remoteOffset: number, key: PosixKey): Status {
    const total = checkIov(iov, POSIX_NAME);
    if (!isInside(remoteOffset, total, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    let at = remoteOffset;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      moveBytes(key.bytes, at, memory.bytes, offset, byteLength);
      at += byteLength;
    }
    this.#counters.zcopy(Transfer.PUT, total);
    return Status.OK;
  }

  getZcopy(iov: readonly HostIovEntry[], remoteOffset: number, key: PosixKey): Status {
    const total = checkIov(iov, POSIX_NAME);
    if (!isInside(remoteOffset, total, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    let at = remoteOffset;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      moveBytes(memory.bytes, offset, key.bytes, at, byteLength);
      at += byteLength;
    }
    this.#counters.zcopy(Transfer.GET, total);
    return Status.OK;
  }

  /** Stores are complete when the call returns, and are visible to other processes in order, which x86 guarantees. */
  flush(): Status {
    return this.#counters.flush(Status.OK);
  }

  fence(): Status {
    return this.#counters.fence(Status.OK);
  }

  amShort(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    if (!fitsMessage(headerWords, payload, payloadOffset, payloadLength, this.#messageBytesMax))
      return Status.INVALID_PARAM;
    const ring = this.#ring;
    if (ring === undefined || this.#failure !== Status.OK) {
      const status = this.#announce();
      return status === Status.OK
        ? this.amShort(id, header, headerWords, payload, payloadOffset, payloadLength)
        : status;
    }
    const status = ring.push(id, header, headerWords, payload, payloadOffset, payloadLength);
    if (status !== Status.OK) return this.#refused();
    this.#counters.short(Transfer.AM, headerWords * 4 + payloadLength);
    return this.#peer.messagePublished();
  }

  amBcopy(id: number, packer: AmPacker): Status {
    const ring = this.#ring;
    if (ring === undefined || this.#failure !== Status.OK) {
      const status = this.#announce();
      return status === Status.OK ? this.amBcopy(id, packer) : status;
    }
    const bytes = ring.pack(id, packer);
    if (bytes < 0) return bytes === Status.NO_RESOURCE ? this.#refused() : statusOf(bytes);
    this.#counters.bcopy(Transfer.AM, bytes);
    return this.#peer.messagePublished();
  }

  atomic(call: AtomicCall, remoteOffset: number, key: PosixKey): Status {
    if (!isInside(remoteOffset, call.wordBytes, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    const status = key.atomics.run(call, remoteOffset);
    if (status === Status.OK) this.#counters.atomic();
    return status;
  }

  check(): Status {
    if (!this.#isGone() && this.#peer.hasThreadEnded) this.#failure = Status.ENDPOINT_TIMEOUT;
    return this.#failure;
  }

  isPeerStopped(): boolean {
    return this.#peer.isStopped;
  }

  /**
   * Requests that the receiver wake this process when the ring has free space.
   * @returns `room` if the next message can be sent or fails, `asked` if the receiver will notify this process, `unknown` if it will not
   */
  wantRoom(): 'room' | 'asked' | 'unknown' {
    if (this.#isGone()) return 'room';
    if (this.#ring === undefined) return 'unknown';
    return this.#ring.wantRoom() ? 'asked' : 'room';
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const ring = this.#ring?.segment;
    if (this.#peer.retire()) ring?.leaveTo(this.#peer.goneProbe());
    ring?.close();
    this.#newRing?.segment.close();
    this.#peer.close();
    this.#failure = Status.CANCELED;
    this.#shared.forget(this);
  }

  openMessages(): string | undefined {
    if (!this.#peer.claim()) return `the peer has ${SLOTS} senders over ${POSIX_NAME}, which is the maximum`;
    try {
      this.#newRing ??= this.#makeRing();
      return undefined;
    } catch (error) {
      if (!isUcxError(error) || isLackOfResources(error)) throw error;
      return this.#shared.onShortage(error);
    }
  }

  /** Announces the ring to the receiver, before the first message. */
  #announce(): Status {
    if (this.#failure !== Status.OK) return this.#failure;
    let ring: RingWriter;
    try {
      ring = this.#newRing ?? this.#makeRing();
    } catch (error) {
      if (!isUcxError(error)) throw error;
      if (!isLackOfResources(error)) this.#shared.onShortage(error);
      return error.status;
    }
    this.#newRing = ring;
    if (this.#peer.announce(ring.segment.packedName) !== Status.OK) return this.#refused();
    this.#newRing = undefined;
    this.#ring = ring;
    return Status.OK;
  }

  #makeRing(): RingWriter {
    return new RingWriter(this.#shared.geometry, this.#shared.sender, this.#shared.folder);
  }

  #isGone(): boolean {
    if (this.#failure === Status.OK) this.#failure = this.#peer.check();
    return this.#failure !== Status.OK;
  }

  #refused(): Status {
    this.#refusals += 1;
    if (this.#refusals % REFUSALS_PER_CHECK === 0 && this.#isGone()) return this.#failure;
    if (!this.blockedOnSend) this.#shared.blockOnSend(this);
    return this.#counters.refused(Status.NO_RESOURCE);
  }
}

/** Name of component, memory domain and transport. */
export const POSIX_NAME = 'posix';

/** A remote key. */
export class PosixKey implements RemoteKey {
  readonly mdName: string = POSIX_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly byteLength: number;
  /** The remote memory. Operations of the transport check that it is still valid; other users of this field must do so themselves. */
  readonly bytes: Uint8Array;
  /** The whole segment, and the offset of the memory in it. */
  readonly words: Int32Array;
  readonly all: Uint8Array;
  readonly base: number;
  readonly atomics: AtomicWords;
  readonly #published: PublishedKey;
  readonly #segment: Segment;
  readonly #segments: SegmentCache;
  #released = false;

  /** @param offset offset of the memory in the segment, which contains all of it */
  constructor(published: PublishedKey, segment: Segment, offset: number, segments: SegmentCache) {
    this.byteLength = published.byteLength;
    this.bytes = segment.bytes.subarray(offset, offset + published.byteLength);
    this.words = segment.words;
    this.all = segment.bytes;
    this.base = offset;
    this.atomics = new AtomicWords(this.bytes);
    this.#published = published;
    this.#segment = segment;
    this.#segments = segments;
  }

  /** False once the owner has freed the memory, or the key was released. */
  get live(): boolean {
    return !this.#released && this.#published.live;
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#published.release();
    this.#segments.release(this.#segment);
  }
}
