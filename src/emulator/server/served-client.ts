/**
 * One client of a node server: its connection, its requests and its open files. Its messages are not trusted: if it violates the protocol, it loses its
 * connection and all resources.
 */

import { fstatSync } from 'node:fs';
import {
  close as closeFd,
  copyFromProcess,
  dup,
  Errno,
  errnoName,
  getSeals,
  isFuse,
  isSyscallError,
  MESSAGE_BYTES_MAX,
  OpenFlag,
  PAGE_SIZE,
  PollEvent,
  type PollSubscription,
  pollNow,
  pollReadable,
  type ScratchBlock,
  SealFlag,
  SyscallError,
  type UnixSocket,
} from '../../sys/index.ts';
import { DRM_IOCTLS, ioctlIndex } from '../../uapi/index.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { asError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { DeviceService } from '../device-nodes/device-service.ts';
import { cutRuns } from '../driver/base/dmabuf.ts';
import {
  argumentWords,
  DescriptorUse,
  descriptorUse,
  EXPORT_FLAGS_WORD,
  GIVEN_WORD,
  pinnedPages,
  pinsMemory,
  takenWord,
} from '../driver/base/ioctl-request.ts';
import type { EmulatedNode } from '../emulated-node.ts';
import { readFault } from '../faults/fault-plan.ts';
import { otherVersionText, type ServerIdentity } from './any-version.ts';
import { ATTACHMENTS_MAX, ServedDmabufs } from './dmabufs.ts';
import { BLOCK_WORDS_MAX, NODE_PROTOCOL_VERSION } from './mailbox.ts';
import {
  DESCRIPTORS_MAX,
  decodeMessage,
  encodeMessage,
  errorReplyOf,
  integerField,
  type Message,
  ProtocolError,
  SETTLED,
  textField,
  wordsField,
} from './message.ts';
import type { NodeStatus } from './node-status.ts';
import { ServedFile } from './served-file.ts';

/** Limit of open files per client; the next one fails with EMFILE. */
export const FILES_PER_CLIENT_MAX = 64;
/** Limit of concurrent waits per client, over all its files; the next one fails with EAGAIN. */
export const WAITS_MAX = 16_384;
/** Time limit for a client's hello. */
const HELLO_NS = 10e9;
/** Requests of one client that are served before other clients get a turn. */
const REQUESTS_PER_POLL = 16;
const ID_MAX = Number.MAX_SAFE_INTEGER;
const UINT32_MAX = 0xffff_ffff;
const ADDRESS_MAX = 2 ** 47;
const NAME_MAX = 256;

/** Services of the server that its clients use. */
export interface ClientHost {
  readonly node: EmulatedNode;
  /** Rate-limited log for messages that clients can cause repeatedly. */
  readonly log: LimitedLog;
  readonly clock: Clock;
  /** Called when a client has sent its hello. */
  readonly onGreeted: (client: ServedClient) => void;
  /** Scratch words for reading memory of a client. */
  readonly scratch: ScratchBlock;
  /** Called when there may be work in mailboxes. */
  readonly wake: () => void;
  readonly yieldToEventLoop: () => void;
  /** Reason for rejecting a new client; undefined if it can be accepted. */
  readonly rejection: () => string | undefined;
  /** Device nodes for programs that open cards by path. */
  readonly devices: DeviceService;
  readonly status: () => NodeStatus;
  readonly identity: () => ServerIdentity;
  readonly shutdown: () => void;
  readonly onFiles: () => void;
  readonly onGone: (client: ServedClient) => void;
}

/** A reply: its fields and its descriptor. */
interface ServedReply {
  readonly fields: object;
  readonly fd?: number;
  /** Called after the reply was sent. */
  readonly sent?: () => void;
}

/** An ioctl that pins memory backed by a file. */
interface PinningCall {
  readonly file: ServedFile;
  readonly request: number;
  readonly address: number;
  readonly words: Uint32Array;
  readonly fd: number;
}

export class ServedClient {
  readonly pid: number;
  readonly files: Map<number, ServedFile> = new Map();
  readonly #host: ClientHost;
  readonly #socket: UnixSocket;
  readonly #subscription: PollSubscription;
  readonly #bytes: Uint8Array = new Uint8Array(MESSAGE_BYTES_MAX);
  readonly #helloTimer: Timer;
  /** The dma-bufs that the RDMA devices of the client access. */
  readonly #dmabufs: ServedDmabufs = new ServedDmabufs();
  /** Number of waiting ioctls of its files. */
  #waits = 0;
  #greeted = false;
  #isDropped = false;

  /** @throws SyscallError EMFILE */
  constructor(socket: UnixSocket, pid: number, host: ClientHost) {
    this.#socket = socket;
    this.pid = pid;
    this.#host = host;
    this.#subscription = pollReadable(socket.fd, () => this.#readable());
    this.#helloTimer = host.clock.setTimer(HELLO_NS, () => this.#disconnect(`no handshake within ${HELLO_NS / 1e9} s`));
  }

  /** Disconnects a client that has not sent its hello, unless the hello has just arrived. */
  evict(): void {
    this.#readable();
    if (!this.#greeted) this.#disconnect('evicted: no handshake, and newer connections wait');
  }

  #disconnect(why: string): void {
    if (this.#isDropped) return;
    this.#host.log.warn(`disconnected client ${this.pid}: ${why}`);
    this.drop();
  }

  /** Number of ioctls that its open files have executed. */
  get ioctls(): number {
    let sum = 0;
    for (const file of this.files.values()) sum += file.ioctls;
    return sum;
  }

  /** Runs the pending requests in the mailboxes of a file of this client. */
  poll(file: ServedFile): boolean {
    try {
      return file.poll();
    } catch (error) {
      this.#misbehaved(error);
      return true;
    }
  }

  /** Releases everything of the client. Idempotent. */
  drop(): void {
    if (this.#isDropped) return;
    this.#isDropped = true;
    this.#helloTimer.cancel();
    this.#subscription.close();
    this.#socket.close();
    // First, because closing files withdraws memory, which must not wait for copies of this client.
    this.#dmabufs.close();
    for (const file of this.files.values()) {
      file.unshareAll();
      file.close();
    }
    this.files.clear();
    this.#host.onFiles();
    this.#host.onGone(this);
  }

  #misbehaved(error: unknown): void {
    const why = error instanceof ProtocolError ? error.message : `defect: ${asError(error).stack}`;
    // A client that closed its connection before the greeting has freed the memory that its hello refers to.
    const hasGivenUp = !this.#greeted && this.#hasHungUp;
    if (!hasGivenUp || !(error instanceof ProtocolError))
      this.#host.log.warn(`disconnected client ${this.pid}: ${why}`);
    this.drop();
  }

  get #hasHungUp(): boolean {
    return (pollNow(this.#socket.fd, PollEvent.HUP) & PollEvent.HUP) !== 0;
  }

  #readable(): void {
    try {
      for (let served = 0; served < REQUESTS_PER_POLL && !this.#isDropped; served++) {
        if (!this.#readOne()) break;
      }
    } catch (error) {
      this.#misbehaved(error);
    }
    this.#host.wake();
  }

  /** Handles one message; returns false if there is none. */
  #readOne(): boolean {
    const fds: number[] = [];
    const received = this.#socket.recvmsg(this.#bytes, fds);
    if (received === -Errno.EAGAIN) return false;
    if (received === 0 || received === -Errno.ECONNRESET) {
      this.drop();
      return false;
    }
    try {
      if (received < 0) throw new ProtocolError(`recvmsg failed with ${errnoName(-received)}`);
      if (fds.length > DESCRIPTORS_MAX)
        throw new ProtocolError(`message has ${fds.length} descriptors, at most ${DESCRIPTORS_MAX} allowed`);
      // A client that hung up, for instance while the server was stopped, has reported failure: its request must have no effect.
      if (received > 1 && this.#hasHungUp) {
        this.drop();
        return false;
      }
      // The doorbell has no contents: its arrival has woken the server.
      if (received > 1) this.#request(decodeMessage(this.#bytes.subarray(0, received)), fds[0] ?? -1);
    } finally {
      for (const fd of fds) closeFd(fd);
    }
    return true;
  }

  #request(message: Message, fd: number): void {
    const id = integerField(message, 'id', ID_MAX);
    let answer: ServedReply;
    try {
      answer = this.#answer(message, fd);
    } catch (error) {
      const rejection = errorReplyOf(error);
      if (rejection === undefined) throw error;
      answer = { fields: { error: rejection } };
    }
    const sent = this.#socket.sendmsg(
      encodeMessage({ id, ...answer.fields }),
      answer.fd === undefined ? [] : [answer.fd],
    );
    answer.sent?.();
    // The client has ended meanwhile.
    if (sent === -Errno.EPIPE || sent === -Errno.ECONNRESET) {
      this.drop();
      return;
    }
    if (sent < 0 && !this.#isDropped) {
      throw new ProtocolError(`cannot send a reply (${errnoName(-sent)}): the client does not read its replies`);
    }
  }

  #answer(message: Message, fd: number): ServedReply {
    const op = textField(message, 'op', NAME_MAX);
    if (op === 'hello') return this.#hello(message);
    if (op === 'who') return { fields: { who: this.#host.identity() } };
    if (op === 'shutdown') return { fields: {}, sent: this.#host.shutdown };
    if (!this.#greeted) throw new ProtocolError(`request ${op} before the hello`);
    const { node } = this.#host;
    switch (op) {
      case 'ioctl':
        return this.#ioctl(message, fd);
      case 'open':
        return this.#open(message);
      case 'close':
        return this.#close(message);
      case 'mmap':
      case 'mapRegisters':
        return this.#map(message, op);
      case 'munmap':
        this.#file(message).unshare(integerField(message, 'mapping', ID_MAX));
        return { fields: {} };
      case 'cards':
        return { fields: { cards: node.cards() } };
      case 'absentCards':
        return { fields: { cards: node.absentCards() } };
      case 'ownerOf':
        return { fields: { pid: node.ownerOf(minorOf(message)) } };
      case 'attribute':
        return { fields: { value: node.attribute(minorOf(message), textField(message, 'name', NAME_MAX)) } };
      case 'temperature':
        return { fields: { value: node.temperature(minorOf(message)) } };
      case 'links':
        return { fields: { links: node.links(minorOf(message)) } };
      case 'transfers':
        return { fields: { transfers: node.transfers() } };
      case 'attachments':
        return { fields: {}, fd: this.#dmabufs.pageFd };
      case 'attach':
        return this.#attach(message, fd);
      case 'detach':
        this.#dmabufs.detach(integerField(message, 'attachment', ATTACHMENTS_MAX));
        return { fields: {} };
      case 'devices':
        this.#host.devices.attach(descriptorOf(fd, isFuse));
        return { fields: {} };
      case 'supervise':
        return this.#supervise();
      case 'status':
        return { fields: { status: this.#host.status() } };
      case 'fault':
        node.inject(minorOf(message), readFault(message['fault']));
        return { fields: {} };
      default:
        throw new ProtocolError(`unknown request ${op}`);
    }
  }

  #hello(message: Message): ServedReply {
    const version = integerField(message, 'version', UINT32_MAX);
    if (version !== NODE_PROTOCOL_VERSION) {
      const { package: other = 'of an unknown version' } = message;
      throw rejected(otherVersionText(this.#host.identity(), `${other}`.slice(0, NAME_MAX), version));
    }
    const rejection = this.#greeted ? undefined : this.#host.rejection();
    if (rejection !== undefined) throw rejected(rejection);
    const { scratch } = this.#host;
    const address = integerField(message, 'address', ADDRESS_MAX);
    const copied = copyFromProcess(this.pid, address, scratch.address, 4);
    if (copied !== 4) {
      const what = `cannot read memory of process ${this.pid} (${errnoName(-copied)})`;
      const remedy = 'kernel.yama.ptrace_scope must be at most 1, or the server needs CAP_SYS_PTRACE';
      const reason = `${what}: both must be in one pid namespace, and ${remedy}; see "ptrace access mode" in ptrace(2)`;
      return { fields: { access: false, reason } };
    }
    if (scratch.words[0] !== integerField(message, 'value', UINT32_MAX)) {
      throw new ProtocolError(`the peer is not process ${this.pid}`);
    }
    if (!this.#greeted) this.#host.onGreeted(this);
    this.#greeted = true;
    this.#helloTimer.cancel();
    const { identity, config } = this.#host.node;
    return { fields: { access: true, identity, nics: config.nics } };
  }

  #open(message: Message): ServedReply {
    const minor = minorOf(message);
    const id = integerField(message, 'file', ID_MAX);
    if (this.files.has(id)) throw new ProtocolError(`opened file id ${id}, which is in use`);
    if (this.files.size >= FILES_PER_CLIENT_MAX) {
      throw new SyscallError('open', Errno.EMFILE, `this client has ${FILES_PER_CLIENT_MAX} open files, the maximum`);
    }
    const opened = this.#host.node.openFor(minor, this.pid, message['control'] === true);
    let file: ServedFile;
    try {
      file = new ServedFile(id, minor, opened, {
        onSettled: () => this.#notice(),
        onWaiting: () => this.#beginWait(),
        onWaited: () => {
          this.#waits -= 1;
        },
        onDefect: (error) => this.#host.log.warn(`ioctl of client ${this.pid}: ${asError(error).stack}`),
      });
    } catch (error) {
      opened.close();
      throw error;
    }
    this.files.set(file.id, file);
    this.#host.onFiles();
    const family = opened.numbers === DRM_IOCTLS ? 'drm' : 'habanalabs';
    return { fields: { family }, fd: file.mailboxFd, sent: () => file.forgetMailboxFd() };
  }

  #close(message: Message): ServedReply {
    const file = this.#file(message);
    this.files.delete(file.id);
    this.#host.onFiles();
    file.close();
    return { fields: {} };
  }

  #map(message: Message, op: string): ServedReply {
    const byteLength = integerField(message, 'byteLength', ADDRESS_MAX);
    const offset = textField(message, 'offset', 20);
    if (!/^\d+$/.test(offset)) throw new ProtocolError('field offset must be a number');
    const mapping = integerField(message, 'mapping', ID_MAX);
    const file = this.#file(message);
    const cookie = BigInt.asUintN(64, BigInt(offset));
    if (op === 'mapRegisters') {
      file.mapRegisters(mapping, byteLength, cookie);
      return { fields: {} };
    }
    const pages = file.share(mapping, byteLength, cookie);
    return { fields: { byteLength: pages.byteLength, offset: pages.offset }, fd: pages.fd };
  }

  #supervise(): ServedReply {
    const { devices } = this.#host;
    const supervisor = devices.supervise();
    return { fields: { nodes: devices.nodes }, fd: supervisor.fd, sent: () => supervisor.close() };
  }

  /** Attaches a range of a dma-buf for an RDMA device of the client. */
  #attach(message: Message, fd: number): ServedReply {
    const id = integerField(message, 'attachment', ATTACHMENTS_MAX);
    if (id === 0 || this.#dmabufs.has(id)) throw new ProtocolError(`attachment id ${id} is in use or 0`);
    if (fd < 0) throw new ProtocolError('message lacks its descriptor');
    const offset = integerField(message, 'offset', ADDRESS_MAX);
    const byteLength = integerField(message, 'byteLength', ADDRESS_MAX);
    const dmabuf = this.#host.node.dmabufForDevice(fd, offset, byteLength);
    this.#dmabufs.attach(id, dmabuf, fd);
    return { fields: { runs: cutRuns(dmabuf.runs, offset, byteLength) }, fd: dmabuf.memory.fd };
  }

  /** An ioctl with a descriptor: the descriptor number in the block is replaced by that of this process, which is closed after the driver has duplicated it. */
  #ioctl(message: Message, fd: number): ServedReply {
    const file = this.#file(message);
    const request = integerField(message, 'request', UINT32_MAX);
    const address = integerField(message, 'address', ADDRESS_MAX);
    const words = wordsField(message, 'words', 0, BLOCK_WORDS_MAX);
    const index = ioctlIndex(request);
    const use = descriptorUse(request, words);
    if (use === DescriptorUse.NONE) return this.#pin(message, { file, request, address, words, fd });
    if (use === DescriptorUse.TAKES && takenWord(index) < words.length) words[takenWord(index)] = fd;
    if (use === DescriptorUse.GIVES) words[EXPORT_FLAGS_WORD] = words[EXPORT_FLAGS_WORD]! | OpenFlag.CLOEXEC;
    const result = file.run(request, address, words);
    const fields = { result, words: [...words.subarray(0, argumentWords(request))] };
    if (use !== DescriptorUse.GIVES || result !== 0) return { fields };
    const given = words[GIVEN_WORD]!;
    return { fields, fd: given, sent: () => closeFd(given) };
  }

  /** An ioctl that pins memory of a file: the server maps the file, and accesses the memory as its own. */
  #pin(message: Message, call: PinningCall): ServedReply {
    const { file, request, address, words, fd } = call;
    if (fd < 0 || !pinsMemory(request, words))
      throw new ProtocolError('message has an ioctl that does not use descriptors');
    const offset = integerField(message, 'offset', ADDRESS_MAX);
    const range = pinnedPages(words);
    // If a mapped file could shrink, the next access to the lost pages would end the server.
    if (!isSealed(fd) || offset % PAGE_SIZE !== 0 || offset + range.byteLength > fstatSync(fd).size) {
      throw new ProtocolError('file to pin is not sealed or is too short');
    }
    const result = file.run(request, address, words, { populated: true, file: { fd, offset } });
    return { fields: { result, words: [...words.subarray(0, argumentWords(request))] } };
  }

  #file(message: Message): ServedFile {
    const id = integerField(message, 'file', ID_MAX);
    const file = this.files.get(id);
    if (file === undefined) throw new ProtocolError(`used file id ${id}, which is not open`);
    return file;
  }

  #beginWait(): boolean {
    if (this.#waits >= WAITS_MAX) return false;
    this.#waits += 1;
    this.#host.yieldToEventLoop();
    return true;
  }

  /** A full queue wakes the client too: it then checks its mailboxes anyway. */
  #notice(): void {
    if (!this.#isDropped) this.#socket.sendmsg(SETTLED);
  }
}

/**
 * Duplicates the descriptor of a message, for an object that keeps it.
 * @param isRight whether the descriptor has the required kind: another one might never report its end, or cannot be polled
 */
function descriptorOf(fd: number, isRight: (fd: number) => boolean): number {
  if (fd < 0) throw new ProtocolError('message lacks its descriptor');
  if (!isRight(fd)) throw new ProtocolError('descriptor has the wrong kind');
  return dup(fd);
}

function isSealed(fd: number): boolean {
  try {
    return (getSeals(fd) & SealFlag.SHRINK) !== 0;
  } catch (error) {
    if (isSyscallError(error)) return false;
    throw error;
  }
}

/** The minor of a card; invalid values are treated as absent cards. */
function minorOf(message: Message): number {
  return message['minor'] === -1 ? -1 : integerField(message, 'minor', UINT32_MAX);
}

function rejected(message: string): UcxError {
  return new UcxError({ code: 'ERR_NODE_REFUSED', status: Status.REJECTED, message });
}
